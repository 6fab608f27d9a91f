// tuning.h - what the parts of `speclab tune --drafter` share.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "commands/tune/setting_search.h"
#include "core/digest.h"
#include "commands/tune/setting_tune.h"
#include "statistics/intervals.h"

struct error;
struct settings;
struct store;

struct measured {
    struct interval speedup;
    double tokens_per_step, both; // both: geometric mean of predicted and measured speedup by their numbers of prompts
};

struct tuning {
    const struct setting_tune *t;
    char *folder;                    // of temporary files
    char *model, *prompts, *file[2]; // absolute; file: prompts of the probes and of the confirmation
    char digest[HASH_TEXT];          // of model, prompts and settings: in the names of its experiments
    char *chat;
    int n_prompts[2];
    struct settings *sampling, *rule;
    bool lossy; // the rule
    struct setting_search search;
    struct store *store;
    int64_t began, probed_ns;
    int most; // draft tokens of a probe that is no chain
    int confirmed;
    struct measured *measured; // (confirmed) of the first candidates
    const volatile int *stop;
};

// Both create files below u->folder, which tuning_remove_folder removes. The lines of u->prompts go to the probes and to the confirmation in
// turn, up to `limit` each; of a file of one line it goes to both.
bool tuning_open_folder(struct tuning *u, struct error *err);
bool tuning_divide_prompts(struct tuning *u, struct error *err);
void tuning_remove_folder(struct tuning *u);

// An experiment with these drafters, a list that it takes.
struct settings *tuning_experiment(const struct tuning *u, const char *name, const char *prompts, bool trials,
                                   struct settings *drafters);
struct settings *tuning_drafters(void); // a list of none
// One line for each key, as a person would write it; frees s.
bool tuning_write(const char *path, const char *comment, struct settings *s, struct error *err);
// Relative names of files in a drafter's options become absolute, since its experiment is in another folder.
void tuning_make_absolute(struct settings *s);
