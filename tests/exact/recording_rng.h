// recording_rng.h - a source of chance that stands between a drafter and the real one and writes down what was drawn from
// what, so that a drafter's word about a node can be held against it.
//
// A drafter that draws from another row than it reports (a temperature, a cut, another precision, an argmax), that says
// another token than it drew, or that drops what it drew, biases the text of every rule that believes it. No test of
// the text is as sharp as this: the weights themselves must be the row.
#pragma once
#include "core/draft.h"
#include "sampling/rng.h"

struct drawing {
    int token, n;
    double *weight; // (n) owned
};

struct witness {
    struct rng rng; // hand this to the drafter
    struct rng *source;
    int n; // drawings so far
    struct drawing drawing[MAX_NODES];
};

void witness_begin(struct witness *w, struct rng *source); // of a step of the source's root
void witness_end(struct witness *w);

struct honesty {
    double distance;    // largest total variation between a row that was drawn from and the one that is reported for it
    int foreign_tokens; // SAMPLED nodes that nobody drew, and drawings that no node shows
};
// Drawings are taken to be those of the SAMPLED nodes, in the order of the draft: chance that decides something else
// about drafts would have to be told apart here first.
struct honesty witness_compare(const struct witness *w, const struct draft *d);
