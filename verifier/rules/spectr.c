// spectr.c - K-SEQ at every node (Sun et al. 2023, SpecTr, arXiv 2310.15141, section 4): k draft tokens sampled
// independently from one row are tried against the same p, and the residual is formed once, after all were rejected.
//
// For k children of a node, all sampled from q:
//
//     beta(r) = sum min(p / r, q)          rho = the smallest r >= 1 with 1 - (1 - beta(r))^k <= r beta(r)
//     child c is accepted with probability min(1, p[x] / (rho q[x])), tried in order
//     if all are rejected, the next token is sampled from  p - min(p / rho, q) (1 - (1 - beta)^k) / beta
//
// Exact: a child that is tried is accepted and equals x with probability min(p / rho, q)(x), whatever happened before,
// since all are i.i.d. and tried against the same p. So x is emitted through one of them with probability
// min(p / rho, q)(x) (1 + (1 - beta) + ... + (1 - beta)^(k-1)), which is what the last line subtracts from p; rho makes
// the difference non-negative. Every rho between the smallest and k is valid, so a few digits suffice. A node accepts
// with probability 1 - (1 - beta)^k, at least 1 - 1/e of what any rule could (the paper's theorem 1).
//
// The paper has one level; continuing at the accepted child, with its own row, is as in rejection. The acceptance of a
// child is independent of the samples below it.
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

struct node { // parameters of the acceptance test of a node's children
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

// Returns 1 - (1 - beta)^k, the probability that one of k is accepted.
static double any_accepted(double beta, int k)
{
    double none = 1;
    for (int i = 0; i < k; i++)
        none *= 1 - beta;
    return 1 - none;
}

// Solves for rho by bisection: r beta(r) is non-decreasing and any_accepted(beta(r)) non-increasing in r, and at r = k
// the first is not below the second.
static struct node solve_rho(const double *p, const double *q, int vocab, int k)
{
    enum { HALVINGS = 32 };
    struct node n = { 1, overlap(p, q, vocab, 1), k };
    if (any_accepted(n.beta, k) <= n.beta)
        return n;
    double low = 1, high = k;
    for (int i = 0; i < HALVINGS; i++) {
        double r = low + (high - low) / 2, beta = overlap(p, q, vocab, r);
        *(any_accepted(beta, k) <= r * beta ? &high : &low) = r;
    }
    return (struct node){ high, overlap(p, q, vocab, high), k };
}

static struct node load_node(const struct draft *d, struct rows *rows, int node, double *p, double *q)
{
    int k = 0;
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
        k++;
    dist_from_row(p, rows->row(rows, node), rows->vocab);
    dist_from_row(q, d->q->row(d->q, node), rows->vocab);
    return solve_rho(p, q, rows->vocab, k);
}

// Replaces p by the residual after all children were rejected. Returns false and leaves p unchanged if the residual has
// no mass, which only rounding can cause.
static bool residual_of_all(const struct node *n, double *p, const double *q, int vocab)
{
    if (n->beta <= 0)
        return true;
    const double factor = any_accepted(n->beta, n->k) / n->beta;
    double left = 0;
    for (int i = 0; i < vocab; i++)
        left += fmax(p[i] - fmin(p[i] / n->rho, q[i]) * factor, 0);
    if (left <= 0)
        return false;
    for (int i = 0; i < vocab; i++)
        p[i] = fmax(p[i] - fmin(p[i] / n->rho, q[i]) * factor, 0);
    return dist_normalize(p, vocab);
}

static double acceptance_probability(const struct node *n, const double *p, const double *q, int x)
{
    return n->rho * q[x] > 0 ? fmin(1, p[x] / (n->rho * q[x])) : 0;
}

static void spectr_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                          struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)options;
    const int vocab = rows->vocab;
    double *p = out->work, *q = p + vocab; // (vocab) each
    int node = 0;

    verification_clear(out, d->n);
    for (int accepted = 0; accepted >= 0; node = accepted >= 0 ? accepted : node) {
        accepted = -1;
        if (draft_next_child(d, node, node) < 0)
            break;
        const struct node n = load_node(d, rows, node, p, q);
        for (int c = draft_next_child(d, node, node); c >= 0 && accepted < 0; c = draft_next_child(d, node, c)) {
            out->trial_p[c] = p[d->token[c]];
            out->trial_q[c] = n.rho * q[d->token[c]];
            if (rng->accept(rng, out->trial_p[c], out->trial_q[c], (struct address){ FOR_ACCEPT, rng->root, c }))
                accepted = c;
        }
        if (accepted < 0) {
            out->empty += !residual_of_all(&n, p, q, vocab);
            verification_path(out, d, node,
                              rng->pick(rng, p, vocab, (struct address){ FOR_RESIDUAL, rng->root, node }));
            return;
        }
    }
    struct address at = { FOR_BONUS, rng->root, node };
    verification_path(out, d, node, rng_pick_row(rng, rows->row(rows, node), vocab, at, p));
}

static void spectr_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows,
                                     const void *options, double *end)
{
    (void)rule;
    (void)options;
    double *p = xcalloc(2 * (size_t)rows->vocab, sizeof(*p)), *q = p + rows->vocab;
    end[0] = 1;
    for (int node = 1; node < d->n; node++)
        end[node] = 0;
    for (int node = 0; node < d->n; node++) {
        int c = draft_next_child(d, node, node);
        if (c < 0 || end[node] == 0)
            continue;
        const struct node n = load_node(d, rows, node, p, q);
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            end[c] = end[node] * acceptance_probability(&n, p, q, d->token[c]);
            end[node] -= end[c];
        }
    }
    free(p);
}

const struct rule spectr_rule = {
    .name = "spectr",
    .summary = "K-SEQ: siblings sampled independently from one row are tested against the same p",
    .exact = true,
    .bonus_alone = true,
    .takes = TAKES_SAMPLED | TAKES_TREES,
    .end_probabilities = spectr_end_probabilities,
    .verify = spectr_verify,
};
