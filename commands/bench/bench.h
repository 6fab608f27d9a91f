// bench.h - the cost of passes, measured in rounds; each round takes every measurement once, in a new order.
//
// The speed of a shared machine changes from minute to minute, so measurements to be compared are interleaved, and
// results are medians over rounds. Memory, compute and placement are probed between rounds: a round counts if the
// probes before and after it agree and no other process used the machine meanwhile. Medians are taken within a
// placement, never across. Other engines (llama.cpp) take the same measurements in turns: words/bench.py starts them,
// and a socket to it tells what comes next.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "core/error.h"
#include "experiments/machine.h"
#include "commands/command_line.h"
#include "engine/engine.h"
#include "kernels/cpu/probe.h"
#include "kernels/timed.h"
#include "results/cost.h"
#include "results/statistics/statistics.h"

struct kv_cache;
struct store;

enum { MAX_ROWS = 64, SLOT_COUNTS = 16, MAX_CONTEXTS = 16, MAX_PASS_ROWS = 512 }; // all but the last: entries of lists

struct bench_plan {                        // the options of the command
    const char *model, *draft;             // draft NULL: none
    struct speclab_target_options options; // device, activations and cache
    int packed;                            // 1: the file of packed weights is kept
    int threads, repeats, prompt;          // threads 0: all; prompt 0: none
    int n_rows, rows[MAX_ROWS];            // rows of each slot in a pass, ascending
    int n_slots, slots[SLOT_COUNTS];       // slots of passes, ascending; n_slots 0: one slot
    int n_contexts, context[MAX_CONTEXTS];
    const char *text;    // a file whose tokens the passes have; NULL: random tokens
    bool contexts_given; // contexts that do not fit are errors instead of being dropped
    bool probe;
    int turns; // a socket to what runs other engines; 0: none
};

enum bench_kind {
    BENCH_PASS,       // a pass of the model
    BENCH_DRAFT_STEP, // a step of the draft model
    BENCH_PROMPT,     // a prompt through the model
};

// A model prepared for timing. Each context has its own cache, which stays filled, so passes can be timed in any order.
struct bench_model {         // start with { 0 }
    struct backend *backend; // borrowed
    struct model *model;     // borrowed
    int rows, slots, prompt; // maxima: rows of a slot, slots of a pass; tokens of the prompt, 0: no prompt
    int n_contexts;
    struct kv_cache *cache[MAX_CONTEXTS], *prompt_cache;
    struct tensor logits; // (slots * rows, vocab)
    int32_t *token;
    int64_t experts; // that the last pass read, over all layers
};

struct measurement { // taken once in each round
    enum bench_kind kind;
    int slots, n;               // n: rows of each slot in the pass, or tokens of the prompt
    int context_index, context; // context: cached tokens of each slot
    double *ns;                 // (rounds) time
    int64_t experts;            // that a pass reads, over all layers: its tokens are the same in every round; 0: none
};

struct round {
    struct machine_state before, after;
    enum placement placement;
    double foreign; // processors used by other processes; NAN: the round was too short to measure them
    bool counts;
};

enum { OVERHEADS = 3 };
struct overhead {               // time of a step of plain decoding, ns
    const char *mode;           // "greedy"
    struct spread outside, all; // outside: the time without the step's pass; n 0: not measured
};

struct bench { // start with { 0 }
    struct bench_plan plan;
    FILE *turns;                           // the answers of plan.turns; NULL: no other engines
    struct speclab_target *target, *draft; // draft NULL: no draft model
    struct bench_model model, draft_model;
    char *machine, *started;
    struct prober *prober;
    int n_peaks;
    struct peak peak[MAX_PEAKS];

    int n_measurements, n_rounds, capacity;
    struct measurement *measurement;
    struct round *round;
    int counted[PLACEMENTS]; // rounds that count, by placement
    bool none_counts;        // every round was disturbed: all are shown

    struct overhead overhead[OVERHEADS]; // the first is greedy
    struct cost cost[PLACEMENTS];        // cost model of passes; form COST_NONE: no rounds in that placement
};

// Opens models, and limits the plan to the model's context.
bool bench_open(struct bench *b, const struct bench_plan *plan, struct error *err);
bool bench_run(struct bench *b, struct error *err);
void bench_close(struct bench *b); // bench_open.c has both

// Over the rounds that count in this placement.
struct spread bench_ns(const struct bench *b, const struct measurement *m, enum placement p);
struct spread bench_memory(const struct bench *b, enum placement p); // probed bytes/s with all threads
// NULL: not measured
const struct measurement *bench_find(const struct bench *b, enum bench_kind kind, int slots, int n, int context);

// Returns the operations of a pass of n rows in each slot, with the logits of every row.
double bench_flops(const struct bench *b, int slots, int n, int context);
// Returns the bytes that are read: the cache, and the weights once; of a mixture of experts those of the experts that
// the pass read, if it was measured, or is expected to read (config_experts_expected).
double bench_bytes(const struct bench *b, int slots, int n, int context);
bool bench_of_mixture(const struct bench *b);
double bench_prompt_flops(const struct bench *b); // operations of the prompt, with the logits of its last row
double bench_peak(const struct bench *b); // peak operations/s of the device for the model's activations; 0: unknown

// ---- between the files of this folder

// bench_model.c: passes. Tokens are those of a given text, again and again, or random ones, each as likely as any
// other; they matter for mixtures of experts alone, whose experts they choose.
struct bench_model_plan {
    int rows, slots, prompt, n_contexts; // slots 0: one
    const int *context;
    const int32_t *text; // (n_text) tokens; n_text 0: random ones. Borrowed for the call
    int n_text;
    enum type cache;
};

// The model must have been opened for at least bench_model_rows() rows a pass. Fills the caches: every slot of each
// takes the time of a prompt of that length, and its memory. On a device that queues they are filled with zeros.
int bench_model_rows(const struct bench_model_plan *p);
bool bench_model_open(struct bench_model *s, struct model *m, const struct bench_model_plan *p, struct error *err);
void bench_model_close(struct bench_model *s); // { 0 } is allowed

// Sets *ns to the time taken. On a device that queues it is the device's own, between stamps, of work that is queued
// while the device is busy with the same work, untimed: the time from one pass to the next, without the host's.
// context_index: index into context[]. Kinds, of n rows of each of the slots:
//     BENCH_PASS         a pass of verification: a chain after the cached tokens, with the logits of every row
//     BENCH_DRAFT_STEP   one row, its logits and their argmax: the work of a draft model for one draft token
//     BENCH_PROMPT       the prompt from an empty cache, with the logits of its last row
bool bench_model_run(struct bench_model *s, enum bench_kind kind, int slots, int n, int context_index, int64_t *ns,
                     struct error *err);

// bench_overhead.c: steps with their operations timed one by one, separate from the rounds that count.
bool bench_overhead(struct bench *b, struct error *err);

// Announces the models to other engines, which open them (bench.c). No effect without any.
bool turns_open(struct bench *b, struct error *err);

// bench_json.c: as one JSON object, and in the database.
void bench_json(const struct bench *b, FILE *to);
bool bench_store(const struct bench *b, struct store *s, struct error *err);
