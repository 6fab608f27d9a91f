// observed_cell.h - a cell of an experiment, opened to be looked at while it decodes (exact_run.c, bits_run.c).
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "decode/decode.h"
#include "experiments/cells.h"
#include "engine/stop_strings.h"

struct error;

struct exact_cell { // start with { 0 }; must stay where it is while open
    const struct experiment *e;
    struct loaded_experiment *opened; // borrowed; opened anew where longer passes are needed
    struct cell cell;
    int slots;
    struct pairing pairing;
    struct stop_strings strings;
    struct stops stops; // what ends a text
};

// watch: of the pairing's steps.
bool exact_cell_open(struct exact_cell *c, struct step_observer observer, struct error *err);
void exact_cell_close(struct exact_cell *c);
// Starts text number `number` of a decoder on the cell's pairing: the first turn of a prompt, which come round again
// and again with other chance. *slot: where it is; ids (NULL: not wanted): its prompt, appended.
bool exact_cell_start(const struct exact_cell *c, struct decoder *d, int64_t number, int *slot, struct ids *ids,
                      struct error *err);

// For every cell but those of `none`, in the experiment's order: false as soon as one says so. None at all is an error.
bool each_exact_cell(const struct experiment *e,
                     bool (*each)(void *self, struct loaded_experiment *o, struct cell cell, struct error *err),
                     void *self, struct error *err);
