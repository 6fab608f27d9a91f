// bench.h - the cost of passes, measured in rounds; each round takes every measurement once, in a new order.
//
// The speed of a shared machine changes from minute to minute, so measurements to be compared are interleaved, and results
// are medians over rounds. Memory, compute and placement are probed between rounds: a round counts if the probes before
// and after it agree and no other process used the machine meanwhile. Medians are taken within a placement, never across.
// A peer is another engine (llama.cpp) that takes the same measurements in the same rounds.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/error.h"
#include "experiments/machine.h"
#include "commands/bench/bench_model.h"
#include "commands/command_line.h"
#include "engine/engine.h"
#include "kernels/cpu/probe.h"
#include "kernels/timed.h"
#include "results/cost.h"
#include "statistics/spread.h"

enum { MAX_ROWS = 64, SLOT_COUNTS = 16, MAX_PASS_ROWS = 512, MAX_PEERS = 4 }; // MAX_ROWS, SLOT_COUNTS: entries of lists
#define MAX_FOREIGN_LOAD 0.08 // processors that other processes may use in a round that counts

struct peer;

struct peer_program {
    const char *const *words; // program and arguments, as for execvp
    const char *label;        // its name in messages
    struct flag_texts option; // "KEY=VALUE", passed to it
};

struct bench_plan {            // the options of the command
    const char *model, *draft; // draft NULL: none
    struct precision precision;
    int packed;                      // enum packed_how
    int threads, repeats, prompt;    // threads 0: all; prompt 0: none
    int n_rows, rows[MAX_ROWS];      // of each slot in a pass, ascending
    int n_slots, slots[SLOT_COUNTS]; // of passes, ascending; n_slots 0: one slot
    int n_contexts, context[MAX_CONTEXTS];
    const char *text;    // a file whose tokens the passes have; NULL: random tokens
    bool contexts_given; // contexts that do not fit are errors instead of being dropped
    bool probe;
    bool passes_only; // neither operations nor overhead are measured
    int n_peers;
    struct peer_program peer[MAX_PEERS];
};

enum bench_kind {
    BENCH_PASS,       // of the model
    BENCH_DRAFT_STEP, // of the draft model
    BENCH_PROMPT,     // of the model
};

struct measurement { // taken once in each round
    enum bench_kind kind;
    int slots, n;                    // n: rows of each slot in the pass, or tokens of the prompt
    int context_index, context;      // context: cached tokens of each slot
    double *ns, *peer_ns[MAX_PEERS]; // (rounds) time; peer_ns NULL: not measured by peers
    int64_t experts; // that a pass reads, over all layers: its tokens are the same in every round; 0: none
};

struct round {
    struct machine_state before, after;
    enum placement placement;
    double foreign; // processors used by other processes; NAN: the round was too short to measure them
    bool counts;
};

struct operation { // a part of a pass: bench_operations.c
    int slots, n, context;
    const char *name;    // "q, k, v", "attention"; "between": time outside all operations
    double ns;           // median over passes
    int64_t calls;       // in one pass, as are bytes and flops
    double bytes, flops; // of matrix products and attention; 0 for others
};

enum { OVERHEADS = 3 };
struct overhead {               // time of a step of plain decoding, ns
    const char *mode;           // "greedy"
    struct spread outside, all; // without the step's pass; with it. n 0: not measured
};

struct bench { // start with { 0 }
    struct bench_plan plan;
    struct target target, draft; // the target's backend is timed (kernels/timed.h); draft.model NULL: no draft model
    struct bench_model model, draft_model;
    int n_peers;
    struct peer *peer[MAX_PEERS];
    char *machine, *started;
    struct prober *prober;
    int n_peaks;
    struct peak peak[MAX_PEAKS];

    int n_measurements, n_rounds, capacity;
    struct measurement *measurement;
    struct round *round;
    int counted[PLACEMENTS]; // rounds that count, by placement
    bool none_counts;        // every round was disturbed: all are shown

    int n_operations;
    struct operation *operation;
    struct overhead overhead[OVERHEADS]; // the first is greedy
    struct cost cost[PLACEMENTS];        // cost model of passes; form COST_NONE: no rounds in that placement
};

// Opens models and peers, and limits the plan to the model's context.
bool bench_open(struct bench *b, const struct bench_plan *plan, struct error *err);
bool bench_run(struct bench *b, struct error *err);
void bench_close(struct bench *b);

// Over the rounds that count in this placement: speclab's times, a peer's times, and the peer's time over speclab's within
// each round.
struct spread bench_ns(const struct bench *b, const struct measurement *m, enum placement p);
struct spread bench_peer_ns(const struct bench *b, const struct measurement *m, int peer, enum placement p);
struct spread bench_ratio(const struct bench *b, const struct measurement *m, int peer, enum placement p);
struct spread bench_memory(const struct bench *b, enum placement p); // probed bytes/s with all threads
// NULL: not measured
const struct measurement *bench_find(const struct bench *b, enum bench_kind kind, int slots, int n, int context);

// Of a pass of n rows in each slot, with the logits of every row.
double bench_flops(const struct bench *b, int slots, int n, int context);
// Read: the cache, and the weights once; of a mixture of experts those of the experts that the pass read, if it was measured, or is
// expected to read (config_experts_expected).
double bench_bytes(const struct bench *b, int slots, int n, int context);
// Of a mixture, how many experts of a layer a pass of so many rows reads: expected, and on average over the layers, as measured.
double bench_experts_expected(const struct bench *b, const struct measurement *m);
double bench_experts(const struct bench *b, const struct measurement *m);
bool bench_of_mixture(const struct bench *b);
double bench_prompt_flops(const struct bench *b); // of the prompt, with the logits of its last row
double bench_peak(const struct bench *b); // peak operations/s of the device for the model's activations; 0: unknown
