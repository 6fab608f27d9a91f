// outcomes.h - a source of chance that leaves nothing to chance: it walks through every outcome.
//
//     struct outcomes o;
//     outcomes_begin(&o);
//     while (outcomes_next(&o))
//         record(run(&o.rng), outcomes_probability(&o));     // the probabilities sum to 1
//     outcomes_end(&o);
//
// Depth-first over decisions: each run replays the decisions made so far and takes the first possible branch beyond
// them. It knows nothing of the code it drives, which must be a function of its decisions alone. A coin that is certain
// (num >= den, or num <= 0) is no decision. Every decision's address is kept; one that comes twice in a run is counted.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "sampling/rng.h"

struct decision {
    struct address at;
    int taken, next;    // branches: this run's, and the one to walk after it (-1: none); a coin's: 0 true, 1 false
    double probability; // of the branch taken
};

struct outcomes {
    struct rng rng;            // first: hand &o.rng to the code under test
    int n, replay;             // decisions of this run; how many of them are replayed
    int repeated;              // addresses that came twice within one run, over all runs
    int64_t runs;              // begun so far
    struct decision *decision; // (room) owned
    int capacity;
};

void outcomes_begin(struct outcomes *o);
bool outcomes_next(struct outcomes *o);                // false: every outcome was seen
double outcomes_probability(const struct outcomes *o); // of the run that just ended
void outcomes_end(struct outcomes *o);
