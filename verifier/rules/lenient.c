// lenient.c - LOSSY: rejection with a more lenient acceptance test (Leviathan et al. 2023, appendix on lenience).
//
// A sampled draft token x is accepted with probability min(1, l p[x] / q[x]), l > 1, a deterministic one with
// min(1, l p[x]); after a rejection the next token is sampled from the residual of `rejection`. The output distribution
// is not the target's: at a single node with one sampled child it is
//
//     min(q, l p) + (1 - sum min(q, l p)) (p - q)+ / sum (p - q)+
#include <stddef.h>

#include "verifier/rules/rejection.h"

struct lenient {
    double lenience;
};

static const struct option options[] = {
    { "lenience", OPTION_REAL, offsetof(struct lenient, lenience), "1.1",
      "a draft token is accepted with probability min(1, lenience p / q)", 1, 1000, NULL },
    { 0 },
};

static struct acceptance_test test_of(const void *o)
{
    return (struct acceptance_test){ ((const struct lenient *)o)->lenience, 0 };
}

static void lenient_verify(const struct draft *d, struct rows *rows, const void *o, struct rng *rng,
                           struct verification *out)
{
    rejection_walk(d, rows, test_of(o), rng, out);
}

static void lenient_end_probabilities(const struct draft *d, struct rows *rows, const void *o, double *end)
{
    rejection_end_probabilities(d, rows, test_of(o), end);
}

static void lenient_device_parameters(const void *o, double parameter[RULE_PARAMETERS])
{
    rejection_parameters(test_of(o), parameter);
}

const struct rule lenient_rule = {
    .name = "lenient",
    .summary = "LOSSY: rejection with its acceptance ratio multiplied by `lenience`",
    .exact = false,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = lenient_end_probabilities,
    .options = options,
    .options_size = sizeof(struct lenient),
    .device_body = "rejection",
    .device_parameters = lenient_device_parameters,
    .verify = lenient_verify,
};
