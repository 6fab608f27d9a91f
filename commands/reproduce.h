// reproduce.h - a stored run again: what changed since, and whether texts and speeds are what they were.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/memory.h"

struct error;
struct experiment;
struct settings;
struct store;

struct stored_run { // a row of table run that is to be run again; strings are owned
    int64_t id;
    char *experiment, *cell, *settings, *file, *folder, *model_path, *prompts_path;
    char *target_hash, *config_hash, *tokenizer_hash, *drafter_hash, *prompts; // "": none
    char *drafter, *rule, *sampling;
    bool none;                         // the baseline
    struct settings *given, *resolved; // file and settings, parsed
};

// Fails if there is no such run, or if the database does not have its file.
bool stored_run_read(struct store *s, int64_t id, struct stored_run *to, struct error *err);
void stored_run_free(struct stored_run *r);

// The experiment of this cell alone, with the prompts and repeats of its file; limit: prompts, 0: as in the file.
struct experiment *stored_run_experiment(struct stored_run *r, int limit, struct error *err);

// Opens the experiment's models and appends a line to `changes` for everything that differs from what the run had: files by their hashes,
// settings by their keys. Nothing is appended if the cell is the same.
bool stored_run_changes(const struct stored_run *r, const struct experiment *e, struct text *changes,
                        struct error *err);

// Compares run `id` of `now` with the stored run, over the texts that `now` has, and appends lines for people to `report`. *same: the texts
// are equal, and the speedup is in the stored interval, if there is one.
bool stored_run_compare(const struct stored_run *r, struct store *then, struct store *now, struct text *report,
                        bool *same, struct error *err);
