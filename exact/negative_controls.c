#include "exact/negative_controls.h"

#include <math.h>

#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/proposal.h"
#include "verifier/rules/rejection.h"

static const double lenience = 1.1, taken_for = 0.75;

static void judge_leniently(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                            struct verification *out)
{
    (void)options;
    rejection_walk(d, rows, (struct standing){ lenience, 0 }, rng, out);
}

// q^(3/4), normalised.
static void inverse_temperature(double *q, int vocab)
{
    for (int i = 0; i < vocab; i++) {
        double root = sqrt(q[i]);
        q[i] = root * sqrt(root);
    }
    dist_normalize(q, vocab);
}

// What child c of node is taken to have been drawn from, in q; answers its own entry. DETERMINISTIC: q is not touched.
static double taken_from(const struct draft *d, int node, int c, bool wrong, double *q, int vocab)
{
    if (d->proposal[c] == DETERMINISTIC)
        return wrong ? taken_for : 1;
    proposal_row(d, node, c, q, vocab);
    if (wrong)
        inverse_temperature(q, vocab);
    return q[d->token[c]];
}

// rejection.c's walk once more, plainly, with a place for two mistakes.
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
            double m = taken_from(d, node, c, wrong, q, vocab);
            if (rng->accept(rng, p[d->token[c]], m, (struct address){ FOR_ACCEPT, rng->root, c }))
                accepted = c;
            else if (d->proposal[c] == DETERMINISTIC)
                dist_strike(p, vocab, d->token[c]);
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

static void judge_and_resample(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                               struct verification *out)
{
    (void)options;
    walk(d, rows, false, true, rng, out);
}

static void judge_by_wrong_q(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                             struct verification *out)
{
    (void)options;
    walk(d, rows, true, false, rng, out);
}

static const struct rule lenient = { .name = "lenience 1.1",
                                     .summary = "a guess stands with probability min(1, 1.1 p / q)",
                                     .verify = judge_leniently };
static const struct rule resampling = { .name = "resampling from p",
                                        .summary = "what follows a guess that fell is drawn from p itself",
                                        .verify = judge_and_resample };
static const struct rule wrong_q = { .name = "a wrong q",
                                     .summary = "q as it would be at temperature 4/3; chosen guesses for draws of 3/4",
                                     .verify = judge_by_wrong_q };

const struct rule *const negative_control[NEGATIVE_CONTROLS] = {
    [PLANT_LENIENT] = &lenient, [PLANT_RESAMPLE] = &resampling, [PLANT_WRONG_Q] = &wrong_q
};
