// observed_cell.h - a cell of an experiment that decodes with a listener of its own (exact_run.c, bits_run.c,
// heads.c).
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "experiments/cells.h"

struct error;

struct observed_cell { // do not move while open
    const struct experiment *e;
    struct loaded_experiment *loaded; // borrowed
    struct cell cell;
    int slots;
    struct speclab_decoder *decoder;
};

bool observed_cell_open(struct observed_cell *c, struct speclab_listener listener, struct error *err);
// Starts text `number`: the first turn of prompt number % prompts, so that prompts
// repeat with other random numbers. *slot: its slot, -1 on failure. ids: its prompt's ids are appended, unless NULL.
bool observed_cell_start(const struct observed_cell *c, int64_t number, int *slot, struct ids *ids, struct error *err);

// Calls each() for every cell except those of `none`, in the experiment's order, until one fails. Fails if there is no
// cell. c: not yet open; closed afterwards.
bool each_observed_cell(const struct experiment *e,
                        bool (*each)(void *self, struct observed_cell *c, struct error *err), void *self,
                        struct error *err);
