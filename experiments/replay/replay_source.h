// replay_source.h - the random numbers of a recorded step, for a rule that reads recorded rows.
//
// Draws are addressed (sampling/rng.h), so they are the run's. A race over a row of which entries are missing is run among those that are
// there; it is certain if no missing one could win, since its weight is at most row.bound.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "sampling/rng.h"

struct recorded_rows;

struct replay_source {
    struct rng rng; // first
    struct philox philox;
    const struct recorded_rows *rows;
    bool uncertain; // a race over an incomplete row might have had another winner
};

struct replay_source replay_source_of(uint64_t seed, int64_t sequence, int root, const struct recorded_rows *rows);
