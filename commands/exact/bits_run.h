// bits_run.h - whether a pass over a draft gives the very logits that decoding one token at a time would have given.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "commands/exact/compare_logits.h"

struct error;
struct experiment;
struct store;

struct bits_plan {
    int64_t tokens; // that are compared, of each cell
    FILE *out;
    const volatile int *stop; // as experiment_run's
};

// Every cell but those of `none`. Beside each text a cache of the target is fed the same tokens one by one (a prompt by
// the same stretches), and each row of logits on the text's way compared with the verifying pass's: every bit. worst:
// of all cells.
bool bits_run(const struct experiment *e, struct store *s, const struct bits_plan *plan, enum same *worst,
              struct error *err);
