// store.h - the results database: one SQLite file. Tables: results/schema*.sql; views: results/views*.sql.
//
// Tables hold raw facts, every published number is a view. One transaction per sequence, write-ahead log, foreign keys
// on: a killed process leaves complete sequences and nothing else. Times are integer nanoseconds of a monotonic clock.
//
// A *pair* is one paired run: cells that differ only in drafter or rule, `none` among them, decoded the same prompts
// back to back. Speedups are taken within pairs only.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct store;

struct run_row {            // columns of table run
    const char *experiment; // the file's `name`
    const char *cell;       // hash of the resolved settings; a cell has one row
    const char *peers;      // hash of the settings without drafter and rule: cells that share it can be paired
    const char *settings;   // the cell as JSON, every default filled in
    const char *file, *folder, *model_path, *prompts_path; // see schema.sql; NULL: not known
    const char *config_hash, *tokenizer_hash;              // NULL: not known
    const char *target, *drafter, *rule, *sampling;        // texts as reports show them: "ngram(longest=3, tokens=8)"
    const char *drafter_kind;                              // "none", "ngram", ...
    const char
        *drafter_options; // JSON: the options in its name, each as it is shown there: {"longest": "3", "tokens": "8"};
                          // NULL: none
    const char *device, *machine, *revision; // "cpu"; processor and threads; speclab's revision
    const char *target_hash, *drafter_hash;  // hashes of weights; drafter_hash NULL: no weights
    const char *prompts;                     // name and hash of the file
    const char *model_type;                  // "q4_1": type of most of the target's bytes
    const char *activations;                 // "int8": resolved, never "default"
    const char *cache;                       // "f32": element type of the target's KV cache
    bool lossless;                           // the rule is exact
    bool drafter_invariant;                  // the rule's text is the same for every drafter
    bool marked_inflated;                    // the target is an inflated model (python/speclab/inflation.py)
    uint64_t seed;
    int batch;
};

struct trial_row {         // columns of table trial: an acceptance test of a draft token
    int node, depth, rank; // rank: among its siblings, from 0
    int32_t token;
    int proposal; // enum proposal
    double p, q;  // the probabilities tested; q NAN for a DETERMINISTIC token
    bool accepted;
    const char *source; // the source in struct source_row; NULL: the drafter has no parts
};

struct source_row { // columns of table step_source: draft tokens of one step by the parts of the drafter that proposed
                    // them
    const char *source; // "ngram", or "ngram+eagle3" if both proposed
    int drafted, accepted;
};

struct expected_row { // columns of table step_rule: the step's draft under one rule
    const char *rule; // string constant; "(bound)": what no exact rule can exceed
    bool lossless;    // the rule is exact
    double accepted;  // E[accepted | draft]; NAN: not known
    double first;     // probability that at least one draft token is accepted; NAN: not known
};

struct draft_row { // columns of table draft
    int position;  // position of the root
    int n;
    const int32_t *token, *parent; // (n)
    const uint8_t *proposal;       // (n) enum proposal
    int n_out;
    const int32_t *out; // (n_out) tokens of the step before an end of text cuts them
    int entries;        // entries of a row that are kept; 0: all
    const void *rows;   // (bytes) packed
    size_t bytes;
};

// The columns of table `step` that the recorder sets, each with its type here and how it is bound: SQL, or SQL_UNLESS_0
// or SQL_FROM_0 for a number that is NULL where it is 0 or below 0. The struct and the row's insertion follow from this
// list.
#define STEP_COLUMNS(X) \
    X(int, drafted, SQL)  /* draft tokens */ \
    X(int, depth, SQL)    /* of the deepest node */ \
    X(int, accepted, SQL) /* accepted draft tokens in the text; store_sequence cuts them at an end of text or limit */ \
    X(double, expected, SQL) /* E[accepted | draft] and its variance; NAN: not recorded */ \
    X(double, variance, SQL) \
    X(int, accepted_uncut, SQL_FROM_0) /* accepted draft tokens before that cut; -1: not recorded */ \
    X(int64_t, propose_ns, SQL)        /* of the whole batch, as the next two */ \
    X(int64_t, verify_ns, SQL) \
    X(int64_t, advance_ns, SQL) \
    X(int64_t, at_ns, SQL)            /* from the end of the sequence's prefill */ \
    X(int, batch, SQL)                /* sequences in the pass */ \
    X(int, round, SQL)                /* the slice in which it was taken */ \
    X(int64_t, experts, SQL_UNLESS_0) /* that the pass read, of all sequences and layers; 0: no mixture of experts */

struct step_row { // columns of table step
#define MEMBER(type, name, bound) type name;
    STEP_COLUMNS(MEMBER)
#undef MEMBER
    const struct trial_row *trial;
    int n_trials;
    const struct expected_row *by_rule; // (n_by_rule) empty unless expected is recorded
    int n_by_rule;
    const struct source_row *by_source; // (n_by_source) empty unless the drafter combines several
    int n_by_source;
    const struct draft_row *draft; // NULL: not recorded
};

struct environment {        // columns of table environment: where the texts of a run are decoded
    const char *processor;  // "AMD EPYC 7B13"
    const char *arithmetic; // "avx2, 2 threads", or a GPU
    const char *revision;   // revision of speclab
    // Probes: memory reads of all threads and of one, bytes a second; a cache line's round trip, ns; MHz. 0 or NAN: not
    // measured.
    double read, read_one, round_trip, mhz;
};

struct sequence_row {      // columns of table sequence
    int64_t prompt;        // position in the prompt file, from 0
    const char *prompt_id; // its id in the file ("81", "HumanEval/3")
    const char *category;  // NULL: the file has none
    int turn, repeat;      // counted from 0
    int64_t pair;          // returned by store_new_pair
    int prompt_tokens, new_tokens;
    int shared_tokens;    // prompt tokens whose rows an earlier text of the pair had computed
    int64_t prefill_ns;   // includes the time that those rows took
    int64_t decode_ns;    // its share of the time in steps: a batch's time is split evenly over its sequences
    int64_t wall_ns;      // time from the end of its prefill to its end
    const int32_t *token; // (new_tokens) new ids; an interrupted conversation resumes from them
    const char *text;     // their text; NULL: the model has no tokenizer
    const char *stop;     // "end", "string", "limit", "context"
    const struct step_row *step;
    int n_steps;
    const struct environment
        *under; // environment that is stored with it unless it equals the run's last one; NULL: that of the run's last
                // sequence
};

struct slice_row { // columns of table slice
    int64_t pair, run;
    int round;
    int64_t ns;
    double foreign_load; // NAN: not known
    bool disturbed;
};

// Opens the database, or creates it. A database of another program or another schema version is an error. Returns NULL
// and sets err on failure.
struct store *store_open(const char *path, struct error *err);
struct store *store_open_existing(const char *path,
                                  struct error *err); // never creates it: a missing file is a mistake of the call
                                                      // (fail_usage)
void store_close(struct store *s);                    // NULL: no effect
bool store_read_only(const struct store *s);
// Locks an experiment for the process that runs it, until the store is closed: two processes would both decode what is
// missing, and the report would count it twice. Fails if another process holds the lock. Other experiments can be
// locked at the same time; readers need no lock.
bool store_lock(struct store *s, const char *experiment, struct error *err);

// Finds or creates the cell's row in its experiment. An existing row must have the same settings (a hash collision is
// an error), weights and prompts. Machine and revision are checked by store_environment. (facts.c)
bool store_run(struct store *s, const struct run_row *r, int64_t *id, struct error *err);
bool store_new_pair(struct store *s, const char *experiment, int64_t *pair, struct error *err);
// Checks the environment before anything of the run is decoded. Fails, unless `mix`, if the run has texts of another
// arithmetic or revision: bits may differ. *changed: a sentence that describes the change, for the caller to free();
// NULL: no change, or no texts yet.
bool store_environment(struct store *s, int64_t run, const struct environment *e, bool mix, char **changed,
                       struct error *err);
// Adds the environment of the run's next text, which belongs to `pair`, unless it equals the run's last one, and
// updates run.machine and run.revision. store_sequence calls it, so every stored environment has a text, which refers
// to it.
bool store_add_environment(struct store *s, int64_t run, int64_t pair, const struct environment *e, struct error *err);
bool store_slice(struct store *s, const struct slice_row *r, struct error *err);
bool store_sequence(struct store *s, int64_t run, const struct sequence_row *q, struct error *err); // one transaction

// A stored turn of a conversation.
struct stored_turn {
    bool found;
    int64_t pair;
    int n;
    int32_t *token; // (n) the caller frees it
};
// Reads the run's latest sequence of that turn; found = false if there is none. Returns false and sets err on failure.
bool store_turn(struct store *s, int64_t run, int64_t prompt, int turn, int repeat, struct stored_turn *to,
                struct error *err);
// *paired: whether some pair has a sequence of that turn both of `run` and of the run `none`.
bool store_has_pair(struct store *s, int64_t run, int64_t none, int64_t prompt, int turn, int repeat, bool *paired,
                    struct error *err);

// Returns the median decode time per new token, ns, of sequences with these settings, for the dry run's estimate; 0:
// none stored.
int64_t store_ns_per_token(struct store *s, const char *target_hash, const char *activations, const char *cache,
                           const char *drafter, struct error *err);

// ---- the parts of a run that are done: table shard (results/schema_shards.sql)

struct shard_row {
    int shard, shards; // 0 .. shards - 1; shards 0 is 1
    const char *work;  // hash of the division
    int parts;         // number of shards that have some of the run
};

// For the next three functions, shard 0 of 1 is the whole run, which has no row: run.finished tells whether it is done.
// store_shard finds or makes the row. A row of other work, as after a change of the experiment's file, is not finished.
bool store_shard(struct store *s, int64_t run, const struct shard_row *r, struct error *err);
// Marks the part as done now; if it is already marked and `again` is false, its time is unchanged. Finishes the run if
// that was its last part; otherwise run.finished is unchanged.
bool store_shard_finished(struct store *s, int64_t run, const struct shard_row *r, bool again, struct error *err);
// Marks the part as unfinished, since sequences of it are missing again; then the run is unfinished as well. A run that
// is decoded as a whole from now on loses its rows.
bool store_shard_unfinished(struct store *s, int64_t run, const struct shard_row *r, struct error *err);
// Finds a row of the experiment with another division. *shards is 0 if there is none.
bool store_other_shard(struct store *s, const char *experiment, int shard, int shards, struct shard_row *other,
                       struct error *err);

// ---- findings of `speclab exact` (results/schema_exact.sql)

struct exact_rule_row {
    const char *rule, *verdict, *revision;
    bool declared_exact;
    int64_t instances, outcomes;
    double distance, formula_error;
};
bool store_exact_rule(struct store *s, const struct exact_rule_row *r, struct error *err);

struct exact_row {
    const char *experiment, *cell, *settings, *target, *drafter, *rule, *sampling, *machine, *revision;
    bool lossless;
    int batch;
    uint64_t seed;
};
struct exact_sums { // sums of sequences 0 .. sequences - 1
    int64_t sequences, tokens, steps;
    double max_log_e;
    double *sum; // (n)
    size_t n;
};
// Finds or creates the cell's row and reads its sums. The sums are unchanged if the row has none or has sums of another
// size.
bool store_exact(struct store *s, const struct exact_row *r, int64_t *id, struct exact_sums *sums, struct error *err);
bool store_exact_sums(struct store *s, int64_t id, const struct exact_sums *sums, struct error *err);
