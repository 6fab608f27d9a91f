// replay_source.h - the random numbers of a recorded step, for a rule that reads recorded rows.
//
// Draws are addressed (sampling/rng.h), so they are the run's. A race over a row of which entries are missing has the winner that was
// recorded with it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "sampling/rng.h"

struct recorded_rows;

struct replay_source {
    struct rng rng; // first
    struct philox philox;
    const struct recorded_rows *rows;
    bool uncertain; // a race over an incomplete row was not recorded
};

struct replay_source replay_source_of(uint64_t seed, int64_t sequence, int root, const struct recorded_rows *rows);
