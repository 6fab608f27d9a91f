// experiment.h - loads an experiment from a YAML file and runs its cells.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct option;
struct experiment;
struct loaded_experiment;
struct settings;
struct store;

// The mappings of an experiment's file that have a table of keys, ended by an entry without keys. experiment.c and
// sweep/cell_lists.c read the keys whose values no table can describe (seed, plugins, rows, stop, chat, cells).
struct experiment_part {
    const char *key; // NULL: the file itself
    const struct option *keys;
    bool required;
};
extern const struct experiment_part experiment_parts[];

struct experiment *experiment_load(const char *path, struct error *err);
// Loads a file after values were set in its settings. set: (n) "key.key=value" (`--set`), borrowed as long as the
// experiment exists; a number in place of a key is an index of a list, from 0; the value is YAML.
struct experiment *experiment_load_with(const char *path, const char *const *set, int n, struct error *err);
// Makes an experiment from parsed settings, which it owns from then on, also after failure. The names of their files
// must remain valid. path: for messages. Their key `plugins` has no effect: what a database names is not loaded.
struct experiment *experiment_of(struct settings *file, const char *path, const char *folder, struct error *err);
void experiment_free(struct experiment *e);
// Runs what the database lacks. stop: a signal handler sets it, and it is read between steps; then finished sequences
// are in the database and the function fails with "interrupted". NULL: not interruptible.
bool experiment_run(const struct experiment *e, struct store *s, FILE *progress, const volatile int *stop,
                    struct error *err);
// Runs the cells of one target that is open, and leaves it open. (runner.c has both.)
bool experiment_run_loaded(struct loaded_experiment *o, struct store *s, FILE *progress, const volatile int *stop,
                           struct error *err);
