// traversal.h - the recursion shared by `traversal` and `block`: on a chain both are the same rule.
#pragma once
#include "verifier/rules/rule.h"

void traversal_verify(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                      struct verification *out);
void traversal_end_probabilities(const struct draft *d, struct rows *p, const void *options, double *end);
