// observed_cell.h - a cell of an experiment that decodes with a listener of its own (exact_run.c, bits_run.c,
// heads.c).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "experiments/cells.h"

struct error;

struct observed_cell { // do not move while open
    const struct experiment *e;
    struct loaded_experiment *loaded; // borrowed
    struct cell cell;
    int slots;
    struct speclab_decoder *decoder;
};

char *observed_cell_label(const struct observed_cell *c); // "ngram, match, temperature=1"; to be freed
// Whether it is an error of a plugin, which ends its cell alone, and no interruption.
bool error_ends_cell(const struct error *why, const volatile int *stop);

bool observed_cell_open(struct observed_cell *c, struct speclab_listener listener, struct error *err);
// Starts text `number`: the first turn of prompt number % prompts, so that prompts
// repeat with other random numbers. *slot: its slot, -1 on failure. ids: its prompt's ids are appended, unless NULL.
bool observed_cell_start(const struct observed_cell *c, int64_t number, int *slot, struct ids *ids, struct error *err);

// What runs the cells of an experiment. stop: see experiment_run.
struct observed_cells {
    const struct experiment *e;
    const char *command, *kept; // whose messages these are; where results of finished cells are, NULL: nowhere
    FILE *out;
    const volatile int *stop;
};

// Calls each() for every cell except those of `none`, in the experiment's order, until one fails. An error of a plugin
// ends its cell alone: a row on `out` says that it failed, its sentence is on stderr, the other cells follow, and in
// the end this fails; any other error, and a signal, ends them at once. Fails if there is no cell.
// c: not yet open; closed afterwards.
bool each_observed_cell(const struct observed_cells *all,
                        bool (*each)(void *self, struct observed_cell *c, struct error *err), void *self,
                        struct error *err);
