// spectr.c - K-SEQ at every node (Sun et al. 2023, SpecTr, arXiv 2310.15141, section 4): k guesses drawn independently
// from one row are tried against the same p, and only then is something taken out of it.
//
// For k children of a node, all drawn from q:
//
//     beta(r) = sum min(p / r, q)          rho = the smallest r >= 1 with 1 - (1 - beta(r))^k <= r beta(r)
//     child c stands with probability min(1, p[x] / (rho q[x])), one after the other
//     if none stands, the next token is drawn from  p - min(p / rho, q) (1 - (1 - beta)^k) / beta
//
// Exact: a child that is tried stands and is x with probability min(p / rho, q)(x), whatever happened before, as all
// are drawn alike and tried against the same p. So x comes out through one of them with probability min(p / rho, q)(x)
// (1 + (1 - beta) + ... + (1 - beta)^(k-1)), which is what is taken from p at the end; rho is such that nothing below 0
// is left. Every rho between the smallest and k does it, so finding it to some digits is enough. It accepts with
// probability 1 - (1 - beta)^k, at least 1 - 1/e of what any rule could (the paper's theorem 1).
//
// The paper has one level; going on at the child that stood, with its own row, is as in rejection. A child that stood
// says nothing about the draws below it.
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

struct node { // what a node's children are tried by
    double rho, beta;
    int k;
};

static double overlap(const double *p, const double *q, int vocab, double r)
{
    double sum = 0;
    for (int i = 0; i < vocab; i++)
        sum += fmin(p[i] / r, q[i]);
    return fmin(sum, 1);
}

// 1 - (1 - beta)^k, the chance that one of k stands.
static double one_of(double beta, int k)
{
    double none = 1;
    for (int i = 0; i < k; i++)
        none *= 1 - beta;
    return 1 - none;
}

// r beta(r) never falls and one_of(beta(r)) never rises with r, and at r = k the first is not below the other.
static struct node tried_by(const double *p, const double *q, int vocab, int k)
{
    enum { HALVINGS = 32 };
    struct node n = { 1, overlap(p, q, vocab, 1), k };
    if (one_of(n.beta, k) <= n.beta)
        return n;
    double low = 1, high = k;
    for (int i = 0; i < HALVINGS; i++) {
        double r = low + (high - low) / 2, beta = overlap(p, q, vocab, r);
        *(one_of(beta, k) <= r * beta ? &high : &low) = r;
    }
    return (struct node){ high, overlap(p, q, vocab, high), k };
}

static struct node look_at(const struct draft *d, struct rows *rows, int node, double *p, double *q)
{
    int k = 0;
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
        k++;
    dist_from_row(p, rows->row(rows, node), rows->vocab);
    dist_from_row(q, d->q->row(d->q, node), rows->vocab);
    return tried_by(p, q, rows->vocab, k);
}

// What is left of p when none stood. false: nothing is (rounding alone can bring that about), and p stays as it was.
static bool none_accepted(const struct node *n, double *p, const double *q, int vocab)
{
    if (n->beta <= 0)
        return true;
    const double by = one_of(n->beta, n->k) / n->beta;
    double left = 0;
    for (int i = 0; i < vocab; i++)
        left += fmax(p[i] - fmin(p[i] / n->rho, q[i]) * by, 0);
    if (left <= 0)
        return false;
    for (int i = 0; i < vocab; i++)
        p[i] = fmax(p[i] - fmin(p[i] / n->rho, q[i]) * by, 0);
    return dist_normalize(p, vocab);
}

static double chance(const struct node *n, const double *p, const double *q, int x)
{
    return n->rho * q[x] > 0 ? fmin(1, p[x] / (n->rho * q[x])) : 0;
}

static void spectr_verify(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                          struct verification *out)
{
    (void)options;
    const int vocab = rows->vocab;
    double *p = out->work, *q = p + vocab; // (vocab) each
    int node = 0;

    verification_clear(out, d->n);
    for (int stands = 0; stands >= 0; node = stands >= 0 ? stands : node) {
        stands = -1;
        if (draft_next_child(d, node, node) < 0)
            break;
        const struct node n = look_at(d, rows, node, p, q);
        for (int c = draft_next_child(d, node, node); c >= 0 && stands < 0; c = draft_next_child(d, node, c)) {
            out->trial_p[c] = p[d->token[c]];
            out->trial_q[c] = n.rho * q[d->token[c]];
            if (rng->accept(rng, out->trial_p[c], out->trial_q[c], (struct address){ FOR_ACCEPT, rng->root, c }))
                stands = c;
        }
        if (stands < 0) {
            out->empty += !none_accepted(&n, p, q, vocab);
            verification_path(out, d, node,
                              rng->pick(rng, p, vocab, (struct address){ FOR_RESIDUAL, rng->root, node }));
            return;
        }
    }
    struct address at = { FOR_BONUS, rng->root, node };
    verification_path(out, d, node, rng_pick_row(rng, rows->row(rows, node), vocab, at, p));
}

static void spectr_law(const struct draft *d, struct rows *rows, const void *options, double *end)
{
    (void)options;
    double *p = xcalloc(2 * (size_t)rows->vocab, sizeof(*p)), *q = p + rows->vocab;
    end[0] = 1;
    for (int node = 1; node < d->n; node++)
        end[node] = 0;
    for (int node = 0; node < d->n; node++) {
        int c = draft_next_child(d, node, node);
        if (c < 0 || end[node] == 0)
            continue;
        const struct node n = look_at(d, rows, node, p, q);
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            end[c] = end[node] * chance(&n, p, q, d->token[c]);
            end[node] -= end[c];
        }
    }
    free(p);
}

const struct rule spectr_rule = {
    .name = "spectr",
    .summary = "K-SEQ: independent draws from one row are all tried against the same p",
    .exact = true,
    .takes = TAKES_SAMPLED | TAKES_TREES,
    .law = spectr_law,
    .verify = spectr_verify,
};
