// outcomes.h - a random source that enumerates every outcome of a function with its probability.
//
//     struct outcomes o;
//     outcomes_begin(&o);
//     while (outcomes_next(&o))
//         record(run(&o.rng), outcomes_probability(&o));     // the probabilities sum to 1
//     outcomes_end(&o);
//
// Depth-first search over decisions: each run repeats a prefix of the decisions of the run before, and takes the first
// possible branch at every new decision. The code under test must be a function of its decisions alone. A certain
// acceptance test (num >= den, or num <= 0) is not a decision. Addresses are recorded; one that occurs twice in a run
// is counted. A run that does not repeat its prefix, with the same addresses and probabilities, has strayed: the code
// under test depends on more than its decisions. That is a failed assertion, unless the caller asks for it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "sampling/rng.h"

struct decision {
    struct address at;
    int taken, next;    // branches: the one of this run, and the next one to take (-1: none); 0
                        // is true and 1 false for accept
    double probability; // probability of the branch taken; NAN: not known before the run
};

struct outcomes {
    struct rng rng;            // must be first; the code under test gets &o.rng
    int n, prefix;             // decisions of this run; how many of them are repeated from the run before
    int repeated;              // addresses that occurred twice within one run, over all runs
    int64_t runs;              // runs started so far
    bool may_stray, strayed;   // set by the caller after outcomes_begin: a run may stray; set here: one has
    struct decision *decision; // (capacity) owned
    int capacity;
};

void outcomes_begin(struct outcomes *o);
bool outcomes_next(struct outcomes *o);                // starts the next run; false: all outcomes are done
void outcomes_again(struct outcomes *o);               // starts the run that has just ended once more, uncounted
bool outcomes_ended(struct outcomes *o);               // the run repeated its prefix; false: it or one before strayed
double outcomes_probability(const struct outcomes *o); // the probability of the run that has just ended
void outcomes_end(struct outcomes *o);
