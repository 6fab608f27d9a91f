// cells.h - an experiment, as its file defines it, and its cells.
//
//     experiment          the file, checked, with defaults filled in (experiment.c)
//     loaded_experiment   with one of its targets; values that depend on the model are resolved (group.c)
//     cell                a target, and one choice from each list under `cells`: one row of table `run` (cells.c);
//                         experiments/sweep makes the cells
//     group               the cells that differ only in drafter or rule; they run side by side (group.c)
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "core/digest.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "engine/prompts.h"
#include "experiments/division.h"

struct cell_runner;
struct drafter;
struct environment;
struct option;
struct runner;
struct settings;
struct target_cache;

// ---- the file

enum { MAX_REPEATS = (1 << 8) - 1 }; // MAX_PROMPTS and MAX_TURNS are further limits
#define SLICE_NS ((int64_t)1e9)

struct chosen_target {
    char *model, *device;   // model: as in the file
    int activations, cache; // enum activations and kv_type
};

struct entry {                    // one target, or one value of a list under `cells`
    const struct settings *given; // read from the file or the defaults; NULL: `none`, added automatically
    struct settings *settings;    // canonical: all options, one spelling, one order; owned
    char *shown;                  // text for reports: options that differ from the defaults, "ngram(longest=5)"
    char *options;                // those of a drafter or a rule that are shown, as JSON: {"longest": "5"}
    char *text;                   // the settings on one line
    struct chosen_target target;  // set if the entry is a target
};

struct entries {
    int n;
    struct entry *entry; // (n) all different
};

enum { SAMPLING, BATCH, RULE, DRAFTER, TARGET, AXES }; // the lists under `cells`, and the targets

struct experiment {
    char *path, *folder;           // path: the YAML file; folder: base of relative paths
    struct settings *file, *lists; // lists: the values of the lists under `cells` (experiments/sweep)
    char *name;
    int threads;                 // resolved: 0 in the file means all processors
    char *prompts_file, *chat;   // spelled as in the file
    struct json *chat_variables; // variables of the template; NULL: none
    int limit, per_category;
    struct prompts prompts;
    int new_tokens, context; // context: given in the file, or the default, which loading limits to the model's
    bool context_given, ignore_end;
    int n_stop;
    char **stop; // (n_stop)
    uint64_t seed;
    int repeat;
    bool trials;        // record table trial
    bool expected;      // record E[accepted | draft] under every rule (table step_rule)
    int rows;           // record drafts with their rows (table draft): entries of a row, or ROWS_NONE or ROWS_FULL
                        // (packed_rows.h)
    int64_t slice_ns;   // how long a cell decodes, in a batch, before it is the next one's turn; only tests set it
    bool share_prompts; // the cells of a pair compute a prompt once (verifier/target_cache.h)
    struct shard shard; // set by the command, not the file: the part of the work that is run; { 0 }: all
    bool probe;      // set by the command, not the file: measure the machine before the first text (table environment)
    FILE *log;       // set by the command, not the file: lines of progress with their times; NULL: none
    bool mix;        // set by the command, not the file: resume runs where bits may differ (results/store.h)
    int none;        // the drafter `none`: the baseline of every speedup
    int first_rule;  // the rule whose `none` rules with bonus_alone share; rule.n: no such rule is listed
    bool none_added; // `none` was added
    bool rule_added; // the last rule was added, for `none` alone
    union {
        struct {
            struct entries sampling, batch, rule, drafter, target;
        };
        struct entries axis[AXES];
    };
    bool *has; // whether each cell of their product exists; experiment_has reads it
};

int experiment_batch(const struct experiment *e, int entry);
// Returns the rule of the `none` with which cells of this rule are compared: one for all rules whose texts of `none`
// are equal (rule.bonus_alone; sweep/cell_lists.c, like experiment_left_out).
int experiment_baseline_rule(const struct experiment *e, int rule);
int experiment_turns(const struct experiment *e); // number of turns in all prompts

extern const struct option target_keys[];
// Reads a value of a list; given is borrowed as long as the entry exists. *to needs entry_free after success only.
bool entry_read(int axis, const struct settings *given, struct entry *to, struct error *err);
void entry_free(struct entry *e);
// Returns whether the entry has all that partial settings specify: {kind: small, tokens: 4} matches a drafter with all
// its options.
bool entry_matches(const struct entry *e, const struct settings *part);

// Canonical settings as reports show them. settings: entry_settings (core/options.h). table: the plugin's options.
// *options: those that are shown, as JSON whose values are texts, {"longest": "5"}, for the caller to free(); options
// NULL: not wanted.
char *entry_shown(const struct settings *settings, const struct option *table, char **options);
struct settings *sampling_settings(const struct settings *given);
char *sampling_shown(const struct settings *settings);

// ---- loaded

struct loaded_experiment { // initialize with { 0 }; do not move while open
    const struct experiment *e;
    int which;                          // its entry among the experiment's targets
    const struct chosen_target *chosen; // what this entry says
    struct speclab_target *target;
    struct hash weights;  // hash of the target's weights
    struct hash identity; // hash of all that was read of the target: weights, configuration, tokenizer
    int context;
    char *processor; // "AMD EPYC 7B13"; then the features that a device has switched off since (backend.log)
    double read, read_one, round_trip, mhz; // see struct environment; 0: not measured
    char *given_up;                         // the last of these sentences, until the runner has reported it; NULL: none
    int longest;                            // number of tokens of the longest first turn
    size_t available; // bytes of memory on the target's device that were free at opening; 0: not known
    int64_t tokens;   // number of tokens in all first turns
};

// Opens a target of the experiment and checks every prompt; the error for one that does not fit the context names it.
bool loaded_experiment_open(struct loaded_experiment *o, const struct experiment *e, int target, struct error *err);
void loaded_experiment_close(struct loaded_experiment *o);

// ---- cells

struct cell { // index into each list of entries
    union {
        struct {
            int sampling, batch, rule, drafter, target;
        };
        int axis[AXES];
    };
};

// The cells that the lists multiply to are numbered: drafters vary fastest, then rules, batches, samplings, targets.
int cell_numbers(const struct experiment *e); // how many there are
int cell_number(const struct experiment *e, struct cell cell);
struct cell cell_numbered(const struct experiment *e, int number);
int groups(const struct experiment *e); // number of groups: those of a target together, in the order of the targets
int target_groups(const struct experiment *e);                     // number of groups of one target
struct cell group_cell(const struct experiment *e, int number);    // what its cells share; rule and drafter 0
bool experiment_has(const struct experiment *e, struct cell cell); // false: `exclude` or `zip` left it out
int experiment_cells(const struct experiment *e);                  // number of cells
// Returns the number of cells that the lists make and zip or exclude left out. *listed: the total number, `none`
// counted once for all rules that share a baseline.
int experiment_left_out(const struct experiment *e, int *listed);

struct identity {                           // identifies a cell in the database
    char *settings;                         // an experiment file of this one cell as JSON, every default resolved
    char hash[HASH_TEXT], peers[HASH_TEXT]; // hash: hash of settings and inputs; peers: hash of those without drafter
                                            // and rule
    char target_hash[HASH_TEXT];            // hash of the target's weights
    char config_hash[HASH_TEXT],
        tokenizer_hash[HASH_TEXT]; // the target's hashes; config: with its weights; tokenizer "": it has none
    char drafter_hash[HASH_TEXT];  // hash of the drafter's weights and configuration; "": none
    char *arithmetic;              // "avx2, 2 threads": the target's device, and the drafter's if it has another
    char *machine;                 // the processor, then arithmetic
};

struct identity cell_identity(const struct loaded_experiment *o, struct cell cell, const struct drafter *d);
void identity_free(struct identity *i);
char *cell_prompts(const struct loaded_experiment *o); // "prompts.jsonl 0123456789abcdef"; free() it

// Reads a cell's decoder, and opens it. Errors in its drafter name the place in the file. NULL on failure.
struct speclab_decoder *cell_read(const struct experiment *e, struct cell cell, struct error *err);
bool cell_open(struct speclab_decoder *d, struct loaded_experiment *o, struct cell cell, struct error *err);
// What a text of a cell ends by, and at how many tokens; sequence and prompt are the caller's.
struct speclab_request cell_request(const struct experiment *e, int64_t sequence, const struct ids *prompt);

// ---- groups

struct group {                   // initialize with { 0 }
    int sampling, batch, target; // indices of the entries that its cells share
    int n;
    struct cell_runner *cell_runner; // (n)
    struct target_cache *cache;      // one for all cells, used by one at a time; NULL: each has its own
    size_t cache_bytes;              // bytes of the cache and of the states of prompts
    int failed;                      // number of cells that a plugin's error left out
    struct text failures;            // their sentences, a line each
};

struct cell_runner { // a cell with everything that decodes it
    struct cell cell;
    struct speclab_decoder *decoder;
    struct identity identity;
    bool none;                // the drafter is `none`
    bool warm;                // it has decoded something
    bool failed;              // its plugin failed, and it decodes nothing more
    bool environment_checked; // environment_check passed
    char *environment_stored; // the processor of the run's last environment in the database; NULL: none yet
    int64_t run;              // id of its row in table run; 0: none yet
    struct recorder *recorder;
};

// Returns the environment of a cell's texts; its strings are borrowed from o and c.
struct environment environment_of(const struct loaded_experiment *o, const struct cell_runner *c);
// Reports a changed environment, and fails if bits may differ (results/store.h). Call it before a cell decodes
// anything.
bool environment_check(struct runner *r, struct cell_runner *c, struct error *err);

int group_cells(const struct experiment *e, int number); // number of its cells; 0: all are left out
// Opens the group's drafters and caches. A cell whose plugin fails is left out (g->failed).
bool group_open(struct group *g, int number, struct loaded_experiment *o, struct error *err);
// Fails, and closes the group, if a plugin's error left out a cell.
bool group_is_whole(struct group *g, struct error *err);
void group_close(struct group *g);
