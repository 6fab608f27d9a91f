// recording_rng.h - a random source between a drafter and the real one that records the weights of every pick, to
// compare them with the rows that the drafter reports.
//
// A drafter that samples from another row than it reports (a temperature, a cut, another precision, an argmax), that
// proposes another token than it sampled, or that drops samples, biases the output of every rule that relies on its
// report. No test of the text is as sensitive as this: the weights themselves must equal the row.
#pragma once
#include "core/draft.h"
#include "sampling/rng.h"

struct recorded_pick {
    int token, n;
    double *weight; // (n) owned
};

struct recording_rng {
    struct rng rng; // passed to the drafter
    struct rng *source;
    int n; // picks so far
    struct recorded_pick recorded_pick[MAX_NODES];
};

void recording_rng_begin(struct recording_rng *w, struct rng *source); // of a step of the source's root
void recording_rng_end(struct recording_rng *w);

struct proposal_error {
    // Largest total variation between the weights of a pick and the reported row, times the mass that earlier siblings leave of it:
    // rounding is to multiples of 2^-52 of the whole row.
    double distance;
    int foreign_tokens; // SAMPLED nodes without a pick, and picks without a node
};
// Picks are assumed to be those of the SAMPLED nodes, in the order of the draft: a drafter that uses randomness for
// other decisions is not supported.
struct proposal_error recording_rng_compare(const struct recording_rng *w, const struct draft *d);
