// bench.h - what passes cost: measured in rounds, each of which visits every measurement once, in another order.
//
// Machines like these are not equally fast from one minute to the next, so what is compared is measured in turns, and
// what counts is the median over rounds. Memory, compute and placement are probed between rounds: a round counts if it
// began and ended alike and nobody else used the machine meanwhile. Medians are taken by placement, never across.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/error.h"
#include "experiments/machine.h"
#include "commands/bench/bench_subject.h"
#include "commands/command_line.h"
#include "engine/engine.h"
#include "kernels/cpu/probe.h"
#include "kernels/timed.h"
#include "results/cost.h"
#include "results/spread.h"

enum { MAX_ROWS = 64, MOST_ROWS = 512, MAX_PEERS = 4 };
#define FOREIGN_MOST 0.08 // processors' worth that others may use in a round that counts

struct peer;

struct peer_call {            // an engine to compare with
    const char *const *words; // what to run, as execvp takes it
    const char *called;       // in messages
    struct flag_texts option; // "KEY=VALUE", told it
};

struct bench_plan {            // as asked for
    const char *model, *draft; // draft NULL: none
    struct precision precision;
    int packed;                   // enum packed_how
    int threads, repeats, prompt; // threads 0: all; prompt 0: none
    int n_rows, rows[MAX_ROWS];   // of passes, ascending
    int n_contexts, context[MAX_CONTEXTS];
    bool contexts_given; // those that do not fit are errors, not left out
    bool probe;
    int n_peers;
    struct peer_call peer[MAX_PEERS];
};

enum measured { A_PASS, A_STEP, A_PROMPT }; // of the model, of the draft model, of the model

struct item { // one thing that each round measures once
    enum measured what;
    int n, which;                     // rows (tokens of the prompt); number of the context
    int context;                      // cached tokens
    double *ours, *theirs[MAX_PEERS]; // (rounds) ns; theirs NULL: peers do not do this
};

struct round {
    struct surroundings before, after;
    enum placement placement;
    double foreign; // NAN: too short to tell
    bool counts;
};

struct operation { // a part of a pass: bench_operations.c
    int n, context;
    const char *name;    // "q, k, v", "attention"; "between": what no operation took
    double ns;           // the median over passes
    int64_t calls;       // of one pass, as are the next two
    double bytes, flops; // of products and attention; 0 for others
};

enum { OVERHEADS = 3 };
struct overhead {               // of a step of plain decoding, ns
    const char *how;            // "greedy"
    struct spread outside, all; // its pass; with it. n 0: not measured
};

struct bench { // start with { 0 }
    struct bench_plan plan;
    struct target target, draft; // target's backend keeps account; draft.model NULL: there is none
    struct subject subject, drafter;
    int n_peers;
    struct peer *peer[MAX_PEERS];
    char *machine, *started;
    struct prober *prober;
    int n_peaks;
    struct peak peak[MAX_PEAKS];

    int n_items, n_rounds, capacity;
    struct item *item;
    struct round *round;
    int counted[PLACEMENTS]; // rounds, by placement
    bool none_counts;        // no round was undisturbed: all of them are shown

    int n_operations;
    struct operation *operation;
    struct overhead overhead[OVERHEADS]; // the first one greedy
    struct cost cost[PLACEMENTS];        // of passes; form COST_NONE: no rounds in that placement
};

// Opens everything and fits the plan to the model.
bool bench_open(struct bench *b, const struct bench_plan *plan, struct error *err);
bool bench_run(struct bench *b, struct error *err);
void bench_close(struct bench *b);

// Over the rounds that count in this placement; ours, a peer's, or within each round the peer's / ours.
struct spread bench_ours(const struct bench *b, const struct item *i, enum placement p);
struct spread bench_theirs(const struct bench *b, const struct item *i, int peer, enum placement p);
struct spread bench_ratio(const struct bench *b, const struct item *i, int peer, enum placement p);
struct spread bench_memory(const struct bench *b, enum placement p); // bytes a second by all threads, between rounds
const struct item *bench_item(const struct bench *b, enum measured what, int n, int context); // NULL: not measured

double bench_flops(const struct bench *b, int n, int context); // of a pass with the logits of every row
double bench_prompt_flops(const struct bench *b);              // of the prompt, with the logits of its last row
double bench_bytes(const struct bench *b, int n, int context); // that it must read: weights once, and the cache
double bench_peak(const struct bench *b);                      // operations a second for its activations, 0: unknown
