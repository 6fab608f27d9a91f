// rejection.h - the tree walk of `rejection`, which rules share that differ in the acceptance test only: a child is
// accepted with probability min(1, lenience p / q + rate).
#pragma once
#include "verifier/rules/rule.h"

struct acceptance_test {
    double lenience, rate; // 1 and 0 for `rejection`
};

// The functions of such a rule (rule.h). Its options are a struct acceptance_test. The device's body is
// kernels/cuda/rejection.cu.
void rejection_walk(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                    struct rng *rng, struct verification *out);
void rejection_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                                 double *end);
void rejection_parameters(const void *options, double parameter[RULE_PARAMETERS]); // lenience, rate
