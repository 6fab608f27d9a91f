// lenient.c - LOSSY: rejection that is easier on the drafter (Leviathan et al. 2023, appendix on lenience).
//
// A guess x drawn from q stands with probability min(1, l p[x] / q[x]), l > 1, one that was chosen with min(1, l p[x]);
// what follows one that fell is drawn as in rejection. The text's law is no longer the target's: at a single node with
// one drawn child it is min(q, l p) + (1 - sum min(q, l p)) (p - q)+ / sum (p - q)+.
#include <stddef.h>

#include "verifier/rules/rejection.h"

struct lenient {
    double lenience;
};

static const struct option options[] = {
    { "lenience", OPTION_REAL, offsetof(struct lenient, lenience), "1.1",
      "a guess stands with probability min(1, lenience p / q)", 1, 1000, NULL },
    { 0 },
};

static double lenience_of(const void *o)
{
    return ((const struct lenient *)o)->lenience;
}

static void lenient_verify(const struct draft *d, struct rows *rows, const void *o, struct rng *rng,
                           struct verification *out)
{
    rejection_walk(d, rows, (struct standing){ lenience_of(o), 0 }, rng, out);
}

static void lenient_law(const struct draft *d, struct rows *rows, const void *o, double *end)
{
    rejection_ends(d, rows, (struct standing){ lenience_of(o), 0 }, end);
}

const struct rule lenient_rule = {
    .name = "lenient",
    .summary = "LOSSY: rejection that lets a guess stand `lenience` times as often",
    .exact = false,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_DISTINCT,
    .law = lenient_law,
    .options = options,
    .options_size = sizeof(struct lenient),
    .device_rule = DEVICE_REJECTION,
    .lenience = lenience_of,
    .verify = lenient_verify,
};
