// synthetic.c - LOSSY, for timing only: synthetic acceptance at a given rate.
//
// Each draft token that is tried is accepted with probability `rate`, whatever it is. After a rejection the next token
// is sampled from the residual of `rejection`, so all of its work is done. A loop can thus be timed at a given number
// of tokens per step without a pair of models that accepts as many: with random weights, or with a head of the right
// shape. The text is meaningless. The i-th sibling, counted from 0, is accepted with probability rate (1 - rate)^i: the
// tokens per step of a tree follow from its shape alone.
#include <stddef.h>

#include "verifier/rules/rejection.h"

// Of a struct acceptance_test; the other field is 0: the target's row is ignored.
static const struct option options[] = {
    { "rate", OPTION_REAL, offsetof(struct acceptance_test, rate), "0.7", "acceptance probability of a draft token", 0,
      1, NULL },
    { 0 },
};

const struct rule synthetic_rule = {
    .name = "synthetic",
    .summary = "LOSSY, for timing: accepts each draft token with probability `rate`, at the cost of rejection",
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
