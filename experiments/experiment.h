// experiment.h - a YAML file, the cells it spells out, and running them.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct experiment;
struct store;

struct experiment *experiment_load(const char *path, struct error *err);
void experiment_free(struct experiment *e);
// Validated cells, memory and an estimate of the time, without running anything.
bool experiment_dry_run(const struct experiment *e, struct store *s, FILE *out, struct error *err);
// stop: set by a signal handler; looked at between steps: what is finished is in the database, and false is returned
// with "interrupted".
bool experiment_run(const struct experiment *e, struct store *s, FILE *progress, const volatile int *stop,
                    struct error *err);
