// mutants_traversal.c - a second implementation of traversal, as in the lemma, with a switch for every flaw.
#include <assert.h>
#include <math.h>
#include <string.h>
#include "verifier/exact/law.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/exact/mutants.h"

struct walk {
    const struct draft *draft;
    struct rows *rows;
    struct rng *rng;
    enum flaw flaw;
    int token; // the target's own, once the walk has stopped
};

// After child c was given up: p := (a p - q)+ normalised; returns the new a. p (vocab) is unchanged if no mass is left.
static double given_up(const struct walk *w, int c, double a, double *p)
{
    const int vocab = w->rows->vocab;
    double q[LAW_VOCAB], r[LAW_VOCAB], s = 0, by = w->flaw == SHARE_NOT_IN_RESIDUAL ? 1 : a;
    declared_row(w->draft, c, q, vocab);
    for (int x = 0; x < vocab; x++)
        s += r[x] = fmax(by * p[x] - q[x], 0);
    if (s <= 0)
        return a == 1 ? 1 : 0;
    if (w->flaw != SIBLINGS_AGAINST_FULL_ROW || draft_next_child(w->draft, w->draft->parent[c], c) < 0)
        for (int x = 0; x < vocab; x++)
            p[x] = r[x] / s;
    switch (w->flaw) {
    case SHARE_STAYS:
        return a;
    case SHARE_BY_DRAFT_MASS: { // the remaining mass of q without the token, as in a public port
        double left = 1 - q[w->draft->token[c]];
        return left > 0 ? fmin(s / left, 1) : 0;
    }
    case SHARE_SUMMED_FROM_THE_LEFT:
        return s / (s + 1 - a);
    default:
        return s / (s + (1 - a));
    }
}

static int visit(struct walk *w, int node, double a)
{
    const struct draft *d = w->draft;
    double p[LAW_VOCAB], q[LAW_VOCAB];
    dist_from_row(p, w->rows->row(w->rows, node), w->rows->vocab);
    for (int c = draft_next_child(d, node, node); c >= 0 && a > 0; c = draft_next_child(d, node, c)) {
        int x = d->token[c];
        declared_row(d, c, q, w->rows->vocab);
        double down = a * p[x] / q[x];
        int stopped = visit(w, c, w->flaw == SHARE_UNCAPPED ? down : fmin(1, down));
        if (stopped >= 0)
            return stopped;
        a = given_up(w, c, a, p);
    }
    bool stops = w->rng->accept(w->rng, a, 1, (struct address){ FOR_ACCEPT, w->rng->root, node });
    if (!stops && node > 0)
        return -1; // only a flaw gives up the root
    w->token = w->rng->pick(w->rng, p, w->rows->vocab, (struct address){ FOR_RESIDUAL, w->rng->root, node });
    return node;
}

static void traversal_mutant_verify(const struct rule *rule, const struct draft *d, struct rows *rows,
                                    const void *options, struct rng *rng, struct verification *out)
{
    (void)rule;
    struct walk w = { d, rows, rng, *(const enum flaw *)options, -1 };
    assert(rows->vocab <= LAW_VOCAB);
    verification_clear(out, d->n);
    int last = visit(&w, 0, 1);
    verification_path(out, d, last, w.token);
}

const struct rule traversal_mutant = {
    .name = "traversal, reimplemented",
    .summary = "a tree from its leaves up, with a flaw",
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT | TAKES_TREES,
    .verify = traversal_mutant_verify,
};
