// rejection.h - the tree walk of `rejection`, shared by rules that differ in the acceptance test only: a child is
// accepted with probability min(1, lenience p / q + rate).
#pragma once
#include "verifier/rules/rule.h"

struct acceptance_test {
    double lenience, rate; // 1 and 0 for `rejection`
};

// The same as parameters of the device's body (kernels/cuda/rejection.cu): lenience, rate.
static inline void rejection_parameters(struct acceptance_test t, double parameter[RULE_PARAMETERS])
{
    parameter[0] = t.lenience;
    parameter[1] = t.rate;
}

// The `verify` of such a rule.
void rejection_walk(const struct draft *d, struct rows *p, struct acceptance_test t, struct rng *rng,
                    struct verification *out);
// The `end_probabilities` of such a rule.
void rejection_end_probabilities(const struct draft *d, struct rows *p, struct acceptance_test t, double *end);
