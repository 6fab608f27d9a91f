// table_machine.h - paired runs of a population's prompts (table_population.h) on a machine whose clock drifts, wanders and jumps.
//
// Every cell has `batch` slots, which are always full: a text that ends is replaced by the next prompt's, and without one by a filler, whose
// steps are not recorded. Cells take turns. In a round each decodes until it has as many tokens in total as the first of that round reached
// in slice_s seconds, forward in even rounds and backward in odd ones. A step's time is divided evenly among its texts.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "tests/results/table_population.h"

enum clock_kind { CLOCK_STEADY, CLOCK_DRIFTS, CLOCK_WANDERS, CLOCK_JUMPS, CLOCK_KINDS };
enum { MAX_CELLS = 5, MAX_BATCH = 64, TURNS = 4 };                          // TURNS: texts of a prompt
static const double slice_s = 1, none_s = 0.06, cell_s[2] = { 0.07, 0.09 }; // a pass takes the last three

struct texts; // an experiment's, by none and the drafters
struct texts *texts_create(const struct population *p, size_t n, uint64_t *state);
void texts_destroy(struct texts *t);

struct experiment {
    int cells, batch, rounds; // rounds: of a unit; 0: every cell in one block of time
    enum clock_kind clock;
    double slower; // times this a pass with drafts takes
};

// Rows of cell X against none, what each decoded of a prompt in a slice; a prompt and a slice may have several.
enum { UNIT_STEPS = 4, UNIT_COLUMNS }; // columns: tokens and seconds of the cell, those of none; steps of the cell
struct units {
    size_t n, capacity;
    int64_t *prompt, *slice; // (n)
    double *x[UNIT_COLUMNS]; // (n)
};
// Decodes the texts on a new clock. Slices have numbers from first_slice on. The caller frees the units.
struct units units_of(const struct texts *t, const struct experiment *e, int64_t first_slice, uint64_t *state);
void units_free(struct units *u);
