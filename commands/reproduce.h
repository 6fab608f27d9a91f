// reproduce.h - a stored run again: what changed since, and whether texts and speeds are what they were.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/memory.h"

struct error;
struct experiment;
struct loaded_experiment;
struct settings;
struct store;

struct stored_run { // a row of table run that is to be run again; strings are owned
    int64_t id;
    char *experiment, *cell, *settings, *file, *folder, *model_path, *prompts_path;
    char *target_hash, *config_hash, *tokenizer_hash, *drafter_hash, *prompts; // "": none
    char *drafter, *rule, *sampling;
    bool none; // the baseline
    int64_t batch;
    bool texts_vary,
        drafts_vary; // from run to run, as drafts depend on other texts or clocks: set by stored_run_changes
    struct settings *given, *resolved; // file and settings, parsed
};

// Fails if there is no such run, or if the database does not have its file.
bool stored_run_read(struct store *s, int64_t id, struct stored_run *to, struct error *err);
void stored_run_free(struct stored_run *r);

// The experiment of this cell alone, with the prompts and repeats of its file; limit: prompts, 0: as in the file. NULL: it failed, or a file that it
// needs is not where the run had it, which is then a line of `changes`.
struct experiment *stored_run_experiment(struct stored_run *r, int limit, struct text *changes, struct error *err);

// Appends a line to `changes` for everything that differs from what the run had: files by their hashes, settings by their keys. Nothing is
// appended if the cell is the same.
bool stored_run_changes(struct stored_run *r, struct loaded_experiment *o, struct text *changes, struct error *err);

// Compares the same cell of `now` with the stored run, over the texts that `now` has, and appends lines for people to `report`, the last of them with
// all that was decided. *same: texts and steps are equal, or may vary; acceptance and speedup are inside, or have no interval.
bool stored_run_compare(const struct stored_run *r, struct store *then, struct store *now, struct text *report,
                        bool *same, struct error *err);
