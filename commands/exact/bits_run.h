// bits_run.h - checks that a pass over a draft gives bitwise the logits of decoding one token at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "commands/exact/compare_logits.h"

struct error;
struct experiment;
struct store;

struct bits_plan {
    int64_t tokens; // rows of logits to compare, of each cell
    FILE *out;
    const volatile int *stop; // as in experiment_run
};

// Checks every cell except those of `none`. For each text a second KV cache of the target receives the same tokens one at a
// time (the prompt in the same chunks); each row of logits along the text is compared bitwise with that of the verification
// pass. *worst: over all cells.
bool bits_run(const struct experiment *e, struct store *s, const struct bits_plan *plan, enum agreement *worst,
              struct error *err);
