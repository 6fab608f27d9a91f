// store.h - the results database. Its schema is results/schema.sql; its questions are results/*.sql.
//
// Raw facts go in, every published number is a view. One transaction a sequence, write-ahead log, foreign keys on: a
// runner killed at any moment leaves whole sequences and nothing else. Times are integer nanoseconds of a monotonic
// clock.
//
// What is compared was run side by side: a *pair* is one occasion on which cells that differ only in drafter or rule
// decoded the same prompt back to back, `none` among them. Speedups are taken within pairs, never between two moments.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct environment;
struct error;
struct store;

struct run_row {            // one cell of an experiment; enough to run it again
    const char *experiment; // the file's `name`
    const char *cell;       // hash of the resolved settings; a cell has one row
    const char *peers;      // hash of them without drafter and rule: cells with the same one can be paired
    const char *settings;   // the cell as YAML, every default filled in
    const char *target, *drafter, *rule, *sampling; // as people read them: "ngram(longest=3, tokens=8)"
    const char *drafter_kind;                       // "none", "ngram", ...
    const char *device, *machine, *revision;        // "cpu", processor and threads, ours
    const char *target_hash, *drafter_hash;         // of weights; drafter_hash NULL: it has none
    const char *prompts;                            // file's name and hash
    const char *model_type;                         // "q4_1", most of the target's bytes
    const char *activations;                        // "int8": settled, never "default"
    const char *cache;                              // "f32": of its elements
    bool lossless;                                  // the rule is exact
    bool marked_inflated;                           // the target is an inflated model (commands/checkpoint/inflate.h)
    uint64_t seed;
    int batch;
};

struct trial_row {         // a guess that was looked at
    int node, depth, rank; // rank: among its siblings, from 0
    int32_t token;
    int proposal; // enum proposal
    double p, q;  // by which it was judged; q NAN for a DETERMINISTIC one
    bool accepted;
};

struct expected_row { // of the same draft, under a rule; "(bound)": what no exact rule can surpass
    const char *rule; // a constant
    bool lossless;    // the rule is exact
    double accepted;  // E[accepted | draft]; NAN: not known
    double first;     // the chance that anything of it stands
};

struct step_row {
    int drafted, depth;                        // nodes without the root; depth of the deepest
    int accepted;                              // nodes that stood and are in the text (cut at an end of text or limit)
    double expected, variance;                 // E[accepted | draft], NAN when not recorded
    int accepted_uncut;                        // accepted nodes, before the text's end cut them; -1: not recorded
    int64_t propose_ns, verify_ns, advance_ns; // of the whole batch
    int batch;                                 // sequences in the pass
    const struct trial_row *trial;
    int n_trials;
    const struct expected_row *by_rule; // (n_by_rule) none unless expected is recorded
    int n_by_rule;
};

struct sequence_row {
    int64_t prompt;        // number in the prompt file's order, from 0
    const char *prompt_id; // its own id in the file ("81", "HumanEval/3")
    const char *category;  // NULL: the file has none
    int turn, repeat;      // from 0
    int64_t pair;          // store_new_pair
    int prompt_tokens, new_tokens;
    int64_t prefill_ns;
    int64_t decode_ns; // this sequence's share of the time in steps: a batch's time is split evenly over its sequences
    int64_t wall_ns;   // from its first step to its last, waiting included
    const int32_t *token; // (new_tokens) new ids, so that a killed conversation goes on where it was
    const char *text;     // their text; NULL: the model has no tokenizer
    const char *stop;     // "end", "string", "limit", "context"
    const struct step_row *step;
    int n_steps;
    const struct environment *under; // (results/environment.h) noted with it; NULL: the same as the run's last sequence
};

struct store *store_open(const char *path, struct error *err); // creates or migrates; an error names file and cause
void store_close(struct store *s);                             // NULL is fine
bool store_read_only(const struct store *s);
// For one who runs the experiment, until the store is closed: two at once would both decode what is lacking, and the
// report would count it twice. A name that is claimed elsewhere is an error; others may be claimed, and all may read.
bool store_lock(struct store *s, const char *experiment, struct error *err);

// Finds the cell's row in its experiment, or makes it. A found one must have the same settings (a hash clash is an
// error), weights and prompts. Under which machine and revision it goes on is environment.h's.
bool store_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err);
bool store_run_finished(struct store *s, int64_t run, struct error *err);
bool store_run_unfinished(struct store *s, int64_t run, struct error *err); // something of it is lacking again
bool store_new_pair(struct store *s, const char *experiment, int64_t *pair, struct error *err);
bool store_sequence(struct store *s, int64_t run, const struct sequence_row *q, struct error *err); // one transaction

// What a run already has of a conversation's turn, the latest if there are several: false if nothing (err untouched,
// found false) or on failure. tokens are the caller's to free.
struct stored_turn {
    bool found;
    int64_t pair;
    int n;
    int32_t *token; // (n)
};
bool store_turn(struct store *s, int64_t run, int64_t prompt, int turn, int repeat, struct stored_turn *to,
                struct error *err);
// Whether, in any pair, a sequence of that turn stands beside one of the run `none`.
bool store_beside(struct store *s, int64_t run, int64_t none, int64_t prompt, int turn, int repeat, bool *is,
                  struct error *err);

// How long such cells took for a token, for the dry run's estimate: median decode ns a new token; 0: never run.
int64_t store_pace(struct store *s, const char *target_hash, const char *activations, const char *cache,
                   const char *drafter, struct error *err);
