// exact_run.h - decodes the cells of an experiment and tests whether their texts have the target's distribution.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "exact/verdict.h"

struct error;
struct experiment;
struct store;

struct exact_plan {
    int64_t tokens; // to test, of each cell
    double level;   // allowed probability of a false alarm
    FILE *out, *progress;
    const volatile int *stop; // as in experiment_run
};

// Tests every cell except those of `none`, one after the other, on the first turns of its prompts, which repeat with other
// random numbers. Resumes from the sums in the database. *worst: BIAS_FOUND if any cell has it, else NO_VERDICT if any has.
bool exact_run(const struct experiment *e, struct store *s, const struct exact_plan *plan, enum answer *worst,
               struct error *err);
