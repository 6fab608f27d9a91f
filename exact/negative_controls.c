#include "exact/negative_controls.h"

#include <math.h>

#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/proposal.h"
#include "verifier/rules/rejection.h"

static const double lenience = 1.1, deterministic_q = 0.75;

static void verify_leniently(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                             struct verification *out)
{
    (void)options;
    rejection_walk(d, rows, &(struct acceptance_test){ lenience, 0 }, rng, out);
}

// q^(3/4), normalised: q at temperature 4/3.
static void flatten(double *q, int vocab)
{
    for (int i = 0; i < vocab; i++) {
        double root = sqrt(q[i]);
        q[i] = root * sqrt(root);
    }
    dist_normalize(q, vocab);
}

// Writes the row that child c of node is assumed to be sampled from to q and returns its entry of c's token.
// DETERMINISTIC: q is not written.
static double assumed_q(const struct draft *d, int node, int c, bool wrong, double *q, int vocab)
{
    if (d->proposal[c] == DETERMINISTIC)
        return wrong ? deterministic_q : 1;
    proposal_row(d, node, c, q, vocab);
    if (wrong)
        flatten(q, vocab);
    return q[d->token[c]];
}

// A plain version of the walk of rejection.c, with two optional mistakes.
static void walk(const struct draft *d, struct rows *rows, bool wrong, bool resample, struct rng *rng,
                 struct verification *out)
{
    const int vocab = rows->vocab;
    double *p = out->work, *q = p + vocab;
    int node = 0;
    verification_clear(out, d->n);
    for (int accepted = 0; accepted >= 0;) {
        dist_from_row(p, rows->row(rows, node), vocab);
        accepted = -1;
        for (int c = draft_next_child(d, node, node); c >= 0 && accepted < 0; c = draft_next_child(d, node, c)) {
            double m = assumed_q(d, node, c, wrong, q, vocab);
            if (rng->accept(rng, p[d->token[c]], m, (struct address){ FOR_ACCEPT, rng->root, c }))
                accepted = c;
            else if (d->proposal[c] == DETERMINISTIC)
                dist_remove(p, vocab, d->token[c]);
            else
                dist_residual(p, q, vocab);
        }
        if (accepted >= 0) {
            verification_add(out, node, d->token[accepted]);
            node = accepted;
        }
    }
    if (resample)
        dist_from_row(p, rows->row(rows, node), vocab);
    verification_add(out, node, rng->pick(rng, p, vocab, (struct address){ FOR_RESIDUAL, rng->root, node }));
}

static void verify_and_resample(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                                struct verification *out)
{
    (void)options;
    walk(d, rows, false, true, rng, out);
}

static void verify_by_wrong_q(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                              struct verification *out)
{
    (void)options;
    walk(d, rows, true, false, rng, out);
}

static const struct rule lenient = { .name = "lenience 1.1",
                                     .summary = "accepts with probability min(1, 1.1 p / q)",
                                     .verify = verify_leniently };
static const struct rule resampling = { .name = "resampling from p",
                                        .summary = "after a rejection samples from p itself",
                                        .verify = verify_and_resample };
static const struct rule wrong_q = { .name = "a wrong q",
                                     .summary = "q at temperature 4/3; q = 3/4 for deterministic tokens",
                                     .verify = verify_by_wrong_q };

const struct rule *const negative_control[NEGATIVE_CONTROLS] = {
    [CONTROL_LENIENT] = &lenient, [CONTROL_RESAMPLE] = &resampling, [CONTROL_WRONG_Q] = &wrong_q
};
