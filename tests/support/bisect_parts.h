// bisect_parts.h - the survey of one instance, shared by the files of bisect.h. A point of the cube is k: (uniforms)
// grid numbers, each below 2^53.
#pragma once
#include "tests/support/bisect.h"

#define BISECT_LAST ((UINT64_C(1) << BISECT_BITS) - 1) // the last grid number; 0 is the first
enum { BISECT_CHECKS = 8 };                            // random points per cell or race

struct outcome {
    int n;
    int32_t token[LAW_NODES], node[LAW_NODES];
};

struct survey { // of one instance
    const struct instance *in;
    struct black_box *box;
    struct table_draft table_draft;
    struct verification out;
    int uniforms;
    double probability; // of the draft
    double *mass;       // (texts) measure of each output
    uint64_t random_state;
    struct bisected found;
};

struct outcome bisect_run(struct survey *s, const uint64_t *k);
void bisect_add_mass(struct survey *s, const struct outcome *o, double share); // share of the draft's probability
void bisect_race(struct survey *s, uint64_t *k, int depth, double share);      // from this depth on; overwrites k
