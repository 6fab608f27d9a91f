// experiment.h - loads an experiment from a YAML file and runs its cells.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct experiment;
struct loaded_experiment;
struct settings;
struct store;

struct experiment *experiment_load(const char *path, struct error *err);
// From settings that are parsed. The experiment owns them, also after failure; the names of their files must stay. path: for messages.
struct experiment *experiment_of(struct settings *file, const char *path, const char *folder, struct error *err);
void experiment_free(struct experiment *e);
// Runs what the database lacks. stop: set by a signal handler and read between steps; then finished sequences are in the
// database and the function fails with "interrupted". NULL: not interruptible.
bool experiment_run(const struct experiment *e, struct store *s, FILE *progress, const volatile int *stop,
                    struct error *err);
// Runs one that is open, and leaves it open.
bool experiment_run_loaded(struct loaded_experiment *o, struct store *s, FILE *progress, const volatile int *stop,
                           struct error *err);
