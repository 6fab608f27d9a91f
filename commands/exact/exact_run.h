// exact_run.h - an experiment's cells, decoded for as long as it takes to say whether their texts are the target's.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "exact/verdict.h"

struct error;
struct experiment;
struct store;

struct exact_plan {
    int64_t tokens; // that are judged, of each cell
    double level;   // chance of a false alarm that is allowed for
    FILE *out, *progress;
    const volatile int *stop; // as experiment_run's
};

// Every cell but those of `none`, one after the other, on the first turns of its prompts, over and over with other
// chance. What is in the database is gone on with. worst: BIAS_FOUND if any cell's, else NO_VERDICT if any cell's.
bool exact_run(const struct experiment *e, struct store *s, const struct exact_plan *plan, enum answer *worst,
               struct error *err);
