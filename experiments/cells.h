// cells.h - an experiment as its file spells it out, and the cells that follow from it.
//
//     experiment   what the file says, checked and completed (experiment.c)
//     opened       with its target: what only the model can say is settled too (loaded_experiment.c)
//     cell         one choice from each list under `cells`: one row of `run` in the database (cells.c)
//     group        the cells that differ only in drafter or rule; they are run side by side (group.c)
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"
#include "engine/engine.h"
#include "engine/prompts.h"

struct cell_runner;
struct drafter;
struct option;
struct settings;
struct store;

// ---- the file

enum { MAX_REPEATS = 1 << 8 }; // beside MAX_PROMPTS and MAX_TURNS

struct entry {                    // one value of a list under `cells`
    const struct settings *given; // as the file or the defaults have it; NULL: `none`, which was added
    struct settings *settings;    // every option said, in one spelling and one order; owned
    char *shown;                  // as people read it: what differs from the defaults, "ngram(longest=5)"
};

struct entries {
    int n;
    struct entry *entry; // (n) no two alike
};

struct experiment {
    char *path, *folder;              // of the YAML file; relative names start from the folder
    struct settings *file, *defaults; // defaults: of the lists under `cells`
    char *name;
    char *target, *device; // target: as written
    struct precision precision;
    int threads;               // as many as will be used: 0 in the file is every processor
    char *prompts_file, *chat; // as written
    int limit, per_category;
    struct prompts prompts;
    int new_tokens, context; // context: as given, or the default, which a smaller model may lower
    bool context_given, ignore_end;
    int n_stop;
    char **stop; // (n_stop)
    uint64_t seed;
    int repeat;
    bool trials;     // a row for each guess that was looked at
    bool expected;   // what each draft is worth to every rule
    bool mix;        // not of the file but of the command: runs may go on where bits may differ (results/environment.h)
    bool none_added; // the file did not list `none`, by which all others are measured
    struct entries sampling, batch, rule, drafter;
};

int experiment_batch(const struct experiment *e, int entry);
bool experiment_is_none(const struct experiment *e, int drafter);
int experiment_turns(const struct experiment *e);     // of all prompts
bool experiment_has_text(const struct experiment *e); // a prompt that needs a tokenizer

// The entries' canonical settings (canonical_settings.c). table: the plugin's options. Numbers are written in one way, defaults are
// filled in, options stand in the table's order: what means the same reads the same.
struct settings *entry_settings(const char *kind, const struct settings *given, const struct option *table);
char *entry_shown(const struct settings *settings, const struct option *table);
struct settings *sampling_settings(const struct settings *given);
char *sampling_shown(const struct settings *settings);

// ---- with its target

struct loaded_experiment { // start with { 0 }
    const struct experiment *e;
    struct target target;
    struct hash weights;     // of the target's
    struct hash identity;    // of all that was read of it: weights, configuration, tokenizer
    struct chat_format chat; // of prompts that are put into one
    int context;
    int n_end;
    int32_t end[TARGET_ENDS]; // ids that end a text
    char *processor;          // "AMD EPYC 7B13"
    int longest;              // tokens of the longest first turn
    int64_t tokens;           // of all first turns
};

// rows: of one pass, at most. Checks every prompt: one that does not fit the context is an error that names it.
bool loaded_experiment_open(struct loaded_experiment *o, const struct experiment *e, int rows, struct error *err);
void loaded_experiment_close(struct loaded_experiment *o);

// ---- cells

struct cell { // which entry of each list
    int sampling, batch, rule, drafter;
};

struct identity {                           // by what a cell is known in the database
    char *settings;                         // an experiment's file of this one cell, on one line, every default settled
    char hash[HASH_TEXT], peers[HASH_TEXT]; // peers: without drafter and rule
    char target_hash[HASH_TEXT];            // of the target's weights
    char drafter_hash[HASH_TEXT];           // of the drafter's own weights and configuration; "": it has none
    char *arithmetic; // "avx2, 2 threads": the target's device, and the drafter's where it has one of its own
    char *machine;    // that behind the processor
};

struct identity cell_identity(const struct loaded_experiment *o, struct cell cell, const struct drafter *d);
void identity_free(struct identity *i);
char *cell_prompts(const struct loaded_experiment *o); // "prompts.jsonl 0123456789abcdef"; free() it

// A cell's pairing: what the file says of it, and that opened. What is wrong with its drafter is said with the place in the file.
bool cell_read(struct pairing *p, const struct experiment *e, struct cell cell, struct error *err);
bool cell_open(struct pairing *p, struct loaded_experiment *o, struct cell cell,
               struct error *err); // p->rows as pairing_open

// ---- groups

struct group {           // start with { 0 }
    int sampling, batch; // the entries that its cells share
    int n;
    struct cell_runner *cell_runner; // (n)
};

struct cell_runner { // a cell, ready to run
    struct cell cell;
    struct pairing pairing;
    struct identity identity;
    bool none;    // the drafter is `none`
    bool warm;    // it has decoded something
    bool entered; // it may go on here (environment.h)
    bool noted;   // its run's row says where and with which revision
    int64_t run;  // its row; 0: it has none yet
    struct decoder *decoder;
    struct recorder *recorder;
};

int groups(const struct experiment *e);
// Opens the group's drafters and caches. If they need longer passes than the target was opened for, o is opened anew.
bool group_open(struct group *g, int number, struct loaded_experiment *o, struct error *err);
void group_close(struct group *g);
