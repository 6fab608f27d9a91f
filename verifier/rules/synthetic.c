// synthetic.c - LOSSY, and for timing alone: how often guesses stand is said beforehand, whatever they are.
//
// Each guess that is looked at stands with probability `rate`, what follows one that fell is drawn as in rejection, and all
// of rejection's work is done. So a loop can be timed at a given number of tokens a step where there is no pair of models
// that would accept as many: with weights of chance, or a head of its shape. The text means nothing. Of siblings the i-th
// stands with probability rate (1 - rate)^i, from 0: what a tree is worth follows from its shape alone.
#include <stddef.h>

#include "verifier/rules/rejection.h"

struct replayed {
    double rate;
};

static const struct option options[] = {
    { "rate", OPTION_REAL, offsetof(struct replayed, rate), "0.7", "a guess stands with this probability", 0, 1, NULL },
    { 0 },
};

static double rate_of(const void *o)
{
    return ((const struct replayed *)o)->rate;
}

// The target's row counts for nothing.
static double no_lenience(const void *o)
{
    (void)o;
    return 0;
}

static void synthetic_verify(const struct draft *d, struct rows *rows, const void *o, struct rng *rng,
                             struct verification *out)
{
    rejection_walk(d, rows, (struct standing){ 0, rate_of(o) }, rng, out);
}

static void synthetic_law(const struct draft *d, struct rows *rows, const void *o, double *end)
{
    rejection_ends(d, rows, (struct standing){ 0, rate_of(o) }, end);
}

const struct rule synthetic_rule = {
    .name = "synthetic",
    .summary = "LOSSY, for timing: every guess stands with probability `rate`, at all of rejection's work",
    .exact = false,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_DISTINCT,
    .law = synthetic_law,
    .options = options,
    .options_size = sizeof(struct replayed),
    .device_rule = DEVICE_REJECTION,
    .lenience = no_lenience,
    .rate = rate_of,
    .verify = synthetic_verify,
};
