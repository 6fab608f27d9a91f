// refuse.c - an example of the smallest rule: no draft token is accepted, and it leaves out what may be left out.
//
// Why it is exact: the token is sampled from p.
#include "engine/plugin.h"
#include "sampling/dist.h"
#include "sampling/rng.h"

static void refuse_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                          struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)options;
    double *p = out->work; // (vocab)
    verification_clear(out, d->n);
    dist_from_row(p, rows->row(rows, 0), rows->vocab);
    verification_add(out, 0, rng->pick(rng, p, rows->vocab, (struct address){ FOR_BONUS, rng->root, 0 }));
}

static const struct rule refuse_rule = {
    .name = "refuse",
    .summary = "an example: accepts no draft token",
    .exact = true,
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT | TAKES_TREES,
    .verify = refuse_verify,
};

SPECLAB_PLUGIN(err)
{
    return speclab_register_rule(&refuse_rule, err);
}
