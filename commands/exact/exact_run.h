// exact_run.h - decodes the cells of an experiment and tests their texts or logits.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "commands/exact/compare_logits.h"
#include "verifier/exact/verdict.h"
#include "results/store.h"

struct error;
struct experiment;
struct identity;
struct observed_cell;
struct store;

struct exact_plan {
    int64_t tokens; // number of tokens to test, or of rows of logits to compare, in each cell
    double level;   // allowed probability of a false alarm
    FILE *out, *progress;
    const volatile int *stop; // see experiment_run
};

// Tests whether the texts of every cell except those of `none` have the target's distribution, one cell after the
// other, on the first turns of its prompts, which repeat with other random numbers. Resumes from the sums in the
// database. *worst: BIAS_FOUND if any cell has it, else NO_VERDICT if any has.
bool exact_run(const struct experiment *e, struct store *s, const struct exact_plan *plan, enum answer *worst,
               struct error *err);

// Checks that a pass over a draft gives bitwise the logits of decoding one token at a time, in every cell except those
// of `none`. For each text a second KV cache of the target receives the same tokens one at a time (the prompt in the
// same chunks); each row of logits along the text is compared bitwise with that of the verification pass. *worst: over
// all cells. (bits_run.c, with bits_store)
bool bits_run(const struct experiment *e, struct store *s, const struct exact_plan *plan, enum agreement *worst,
              struct error *err);

// Returns the row that identifies a cell in the database; the texts are borrowed from both.
struct exact_row exact_row_of(const struct observed_cell *c, const struct identity *identity);

void exact_print(FILE *to, const struct verdict *v, const struct observed *seen, int64_t texts);
bool exact_store(struct store *s, int64_t id, const struct verdict *v, const struct observed *seen, struct error *err);
bool bits_store(struct store *s, const struct exact_row *row, const struct logit_comparison *c, struct error *err);
