// bisect_parts.h - a survey of one instance, as the files of bisect.h share it. A point of the cube is k: (places)
// numbers of the grid, each below 2^53.
#pragma once
#include "exact/bisect.h"

#define BISECT_LAST ((UINT64_C(1) << BISECT_BITS) - 1) // of the grid, 0 being the first
enum { BISECT_CHECKS = 8 };                            // points by chance, of a cell or a race

struct outcome {
    int n;
    int32_t token[LAW_NODES], node[LAW_NODES];
};

struct survey { // of one instance
    const struct instance *in;
    struct black_box *box;
    struct draft_batch draft_batch;
    struct verification out;
    int places;
    double probability; // of the draft
    double *mass;       // (texts) what was put out
    uint64_t dice;
    struct bisected found;
};

struct outcome bisect_ask(struct survey *s, const uint64_t *k);
void bisect_put_out(struct survey *s, const struct outcome *o, double share); // so much of the draft's probability
void bisect_race(struct survey *s, uint64_t *k, int depth, double share);     // from this depth on; k is used up
