// rejection.h - the walk of `rejection`, for rules that differ from it in when a child stands: with probability
// min(1, lenience p / q + rate).
#pragma once
#include "verifier/rules/rule.h"

struct standing {
    double lenience, rate; // rejection's: 1, 0
};

void rejection_walk(const struct draft *d, struct rows *p, struct standing s, struct rng *rng,
                    struct verification *out);
void rejection_ends(const struct draft *d, struct rows *p, struct standing s, double *end); // a rule's law
