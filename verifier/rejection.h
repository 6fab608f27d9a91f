// rejection.h - the walk of `rejection`, for rules that differ from it in when a child stands: min(1, lenience p / q).
#pragma once
#include "verifier/rule.h"

void rejection_walk(const struct draft *d, struct rows *p, double lenience, struct rng *rng, struct judgement *out);
void rejection_ends(const struct draft *d, struct rows *p, double lenience, double *end); // a rule's law
