// mutants_spectr.c - a second implementation of K-SEQ, with a switch for every flaw.
#include <assert.h>
#include <math.h>
#include "verifier/exact/law.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/exact/mutants.h"

static double overlap(const double *p, const double *q, int vocab, double rho)
{
    double beta = 0;
    for (int x = 0; x < vocab; x++)
        beta += fmin(p[x] / rho, q[x]);
    return fmin(beta, 1);
}

static bool is_enough(const double *p, const double *q, int vocab, int k, double rho)
{
    double beta = overlap(p, q, vocab, rho);
    return 1 - pow(1 - beta, k) <= rho * beta;
}

// The smallest sufficient rho, to ten digits, from above.
static double smallest_rho(const double *p, const double *q, int vocab, int k)
{
    double low = 1, high = k;
    if (is_enough(p, q, vocab, k, 1))
        return 1;
    while (high - low > 1e-10) {
        double middle = (low + high) / 2;
        *(is_enough(p, q, vocab, k, middle) ? &high : &low) = middle;
    }
    return high;
}

static double rho_of(const double *p, const double *q, int vocab, int k, enum flaw flaw)
{
    double smallest = smallest_rho(p, q, vocab, k);
    switch (flaw) {
    case RHO_IS_ONE:
        return 1;
    case RHO_IS_TOO_SMALL:
        return 0.9 * smallest;
    case RHO_IS_K:
        return k;
    case RHO_IS_BETWEEN:
        return (smallest + k) / 2;
    default:
        return smallest;
    }
}

// Replaces p by its residual after k rejections.
static void take_out(double *p, const double *q, int vocab, int k, double rho, enum flaw flaw)
{
    double r[LAW_VOCAB], sum = 0;
    double beta = overlap(p, q, vocab, flaw == BETA_OF_ONE ? 1 : rho);
    double tries = flaw == ONE_TRY_TOO_FEW ? k - 1 : k;
    double factor = flaw == TAKEN_OUT_ONCE ? 1 : beta > 0 ? (1 - pow(1 - beta, tries)) / beta : 0;
    if (flaw == NOTHING_TAKEN_OUT)
        return;
    for (int x = 0; x < vocab; x++)
        sum += r[x] = fmax(p[x] - fmin(p[x] / rho, q[x]) * factor, 0);
    for (int x = 0; x < vocab && sum > 0; x++)
        p[x] = r[x] / sum;
}

static void spectr_mutant_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                                 struct rng *rng, struct verification *out)
{
    (void)rule;
    enum flaw flaw = *(const enum flaw *)options;
    double p[LAW_VOCAB], q[LAW_VOCAB];
    int node = 0, accepted = 0, vocab = rows->vocab;
    assert(vocab <= LAW_VOCAB);
    verification_clear(out, d->n);
    while (accepted >= 0) {
        int k = 0;
        node = accepted;
        accepted = -1;
        for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
            k++;
        dist_from_row(p, rows->row(rows, node), vocab);
        if (k == 0)
            break;
        dist_from_row(q, d->q->row(d->q, node), vocab);
        double rho = rho_of(p, q, vocab, k, flaw), by = flaw == RHO_NOT_IN_TRIAL ? 1 : rho;
        for (int c = draft_next_child(d, node, node); c >= 0 && accepted < 0; c = draft_next_child(d, node, c))
            if (rng->accept(rng, p[d->token[c]], by * q[d->token[c]], (struct address){ FOR_ACCEPT, rng->root, c }))
                accepted = c;
        if (accepted < 0)
            take_out(p, q, vocab, k, rho, flaw);
    }
    verification_path(out, d, node, rng->pick(rng, p, vocab, (struct address){ FOR_RESIDUAL, rng->root, node }));
}

const struct rule spectr_mutant = {
    .name = "spectr, reimplemented",
    .summary = "K-SEQ with a flaw",
    .takes = TAKES_SAMPLED | TAKES_TREES,
    .verify = spectr_mutant_verify,
};
