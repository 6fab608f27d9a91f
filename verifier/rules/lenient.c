// lenient.c - LOSSY: rejection with a more lenient acceptance test (Leviathan et al. 2023, appendix on lenience).
//
// A sampled draft token x is accepted with probability min(1, l p[x] / q[x]), l > 1, a deterministic one with
// min(1, l p[x]); after a rejection the next token is sampled from the residual of `rejection`. The output distribution
// is not the target's: at a single node with one sampled child it is
//
//     min(q, l p) + (1 - sum min(q, l p)) (p - q)+ / sum (p - q)+
#include <stddef.h>

#include "verifier/rules/rejection.h"

// Of a struct acceptance_test; the other field is 0.
static const struct option options[] = {
    { "lenience", OPTION_REAL, offsetof(struct acceptance_test, lenience), "1.1",
      "a draft token is accepted with probability min(1, lenience p / q)", 1, 1000, NULL },
    { 0 },
};

const struct rule lenient_rule = {
    .name = "lenient",
    .summary = "LOSSY: rejection with its acceptance ratio multiplied by `lenience`",
    .exact = false,
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = rejection_end_probabilities,
    .options = options,
    .options_size = sizeof(struct acceptance_test),
    .device_body = "rejection",
    .device_parameters = rejection_parameters,
    .verify = rejection_walk,
};
