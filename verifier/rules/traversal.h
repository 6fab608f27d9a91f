// traversal.h - the recursion that `traversal` and `block` are: on a chain the two are one rule.
#pragma once
#include "verifier/rules/rule.h"

void traversal_verify(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                      struct verification *out);
void traversal_law(const struct draft *d, struct rows *p, const void *options, double *end);
