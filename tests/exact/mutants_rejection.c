// mutants_rejection.c - a plain second implementation of rejection, with a switch for every flaw.
#include "tests/exact/mutants.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/exact/law.h"

struct work {               // of one node
    double row[LAW_VOCAB];  // the target's row
    double p[LAW_VOCAB];    // what remains of it
    double q[LAW_VOCAB];    // what the child was sampled from
    double left[LAW_VOCAB]; // what remained of p at the parent when this node was accepted
    bool sibling_rejected;  // before this node was accepted
    double accepted;        // acceptance probability of the child tried last
};

int argmax(const double *w, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (w[i] > w[best])
            best = i;
    return best;
}

// Removes the earlier siblings' tokens from the row of child c.
static void mask(const struct draft *d, int c, double *q, int vocab, bool deterministic_too)
{
    int parent = d->parent[c];
    for (int s = draft_next_child(d, parent, parent); s < c; s = draft_next_child(d, parent, s))
        if (deterministic_too || d->proposal[s] != DETERMINISTIC)
            q[d->token[s]] = 0;
    dist_normalize(q, vocab);
}

static bool rejected_before(const struct draft *d, int c)
{
    int parent = d->parent[c];
    for (int s = draft_next_child(d, parent, parent); s < c; s = draft_next_child(d, parent, s))
        if (d->token[s] == d->token[c])
            return true;
    return false;
}

static enum proposal seen_as(const struct draft *d, int c, enum flaw flaw)
{
    return d->proposal[c] == DETERMINISTIC && flaw == DETERMINISTIC_ACCEPTED_BY_Q ? SAMPLED
                                                                                  : (enum proposal)d->proposal[c];
}

static void make_q(const struct draft *d, int c, struct work *w, int vocab, enum flaw flaw)
{
    enum proposal how = seen_as(d, c, flaw);
    if (flaw == CARRIED_Q || how == DETERMINISTIC)
        return;
    dist_from_row(w->q, d->q->row(d->q, d->parent[c]), vocab);
    if ((how == SAMPLED_WITHOUT_REPLACEMENT && flaw != UNMASKED_Q) || (how == SAMPLED && flaw == MASKED_Q))
        mask(d, c, w->q, vocab, flaw != DETERMINISTIC_NOT_MASKED);
}

static double sharpened(const double *p, int vocab, int x)
{
    double sum = 0;
    for (int i = 0; i < vocab; i++)
        sum += p[i] * sqrt(p[i]);
    return sum > 0 ? p[x] * sqrt(p[x]) / sum : 0;
}

static bool is_accepted(const struct draft *d, int c, struct work *w, int vocab, struct rng *rng, enum flaw flaw)
{
    int x = d->token[c];
    struct address at = { FOR_ACCEPT, rng->root, c };
    double num = flaw == STALE_P ? w->row[x] : w->p[x];
    double den = seen_as(d, c, flaw) == DETERMINISTIC || flaw == ACCEPTS_BY_P ? 1 : w->q[x];
    w->accepted = fmin(1, num / den);
    switch (flaw) {
    case ACCEPTS_SHARPENED:
        return rng->accept(rng, sharpened(w->p, vocab, x), den, at);
    case LENIENT:
        return rng->accept(rng, 1.25 * num, den, at);
    case LENIENT_BY_2_PERCENT:
        return rng->accept(rng, 1.02 * num, den, at);
    case LENIENT_BY_1_PERMILLE:
        return rng->accept(rng, 1.001 * num, den, at);
    case ACCEPTS_EVERYTHING:
        return true;
    case ACCEPTS_IF_MORE_PROBABLE:
        return num >= den;
    case ACCEPTS_BY_Q_OVER_P:
        return rng->accept(rng, den, num, at);
    default:
        return rng->accept(rng, num, den, at);
    }
}

// Replaces p or q of the residual of child c by the row of another node, for flaws that do so.
static void wrong_rows(const struct draft *d, int c, struct rows *rows, enum flaw flaw, double *p, double *q)
{
    int node = d->parent[c], before = d->parent[node];
    if (flaw == RESIDUAL_OF_PREVIOUS_ROW && before >= 0) {
        dist_from_row(p, rows->row(rows, before), rows->vocab);
        dist_from_row(q, d->q->row(d->q, before), rows->vocab);
    }
    if (flaw == RESIDUAL_WITH_NEXT_Q && draft_next_child(d, c, c) >= 0)
        dist_from_row(q, d->q->row(d->q, c), rows->vocab);
}

static void residual(const struct draft *d, int c, struct rows *rows, struct work *w, enum flaw flaw)
{
    int vocab = rows->vocab;
    double r[LAW_VOCAB];
    wrong_rows(d, c, rows, flaw, w->p, w->q);
    for (int i = 0; i < vocab; i++) {
        double more = w->p[i] - w->q[i];
        r[i] = flaw == RESIDUAL_IS_ABSOLUTE ? fabs(more) : fmax(flaw == RESIDUAL_IS_REVERSED ? -more : more, 0);
        if (flaw == RESIDUAL_IS_SOFTMAX)
            r[i] = exp(r[i]);
    }
    if (dist_sum(r, vocab) <= 0)
        return;
    if (flaw == RESIDUAL_IS_GREEDY)
        for (int i = 0, best = argmax(r, vocab); i < vocab; i++)
            r[i] = i == best;
    if (flaw != RESIDUAL_NOT_NORMALIZED)
        dist_normalize(r, vocab);
    memcpy(w->p, r, (size_t)vocab * sizeof(*r));
}

static void reject(const struct draft *d, int c, struct rows *rows, struct work *w, enum flaw flaw)
{
    int vocab = rows->vocab;
    int x = d->token[c];
    enum proposal how = seen_as(d, c, flaw);
    if (how == DETERMINISTIC && flaw == DETERMINISTIC_NOT_STRUCK)
        return;
    if (how != DETERMINISTIC && flaw == RESIDUAL_IS_P)
        return;
    if (how == DETERMINISTIC || flaw == RESIDUAL_IS_STRIKE)
        dist_remove(w->p, vocab, x);
    else
        residual(d, c, rows, w, flaw);
    if (flaw == CARRIED_Q && how == SAMPLED_WITHOUT_REPLACEMENT)
        dist_remove(w->q, vocab, x);
}

static int accepted_child(const struct draft *d, int node, struct rows *rows, struct work *w, struct rng *rng,
                          enum flaw flaw)
{
    int child[LAW_NODES], n = 0, vocab = rows->vocab;
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
        child[n++] = c;
    if (n > 0 && flaw == CARRIED_Q)
        dist_from_row(w->q, d->q->row(d->q, node), vocab);
    for (int i = 0; i < n; i++) {
        int c = child[flaw == TRIES_LAST_FIRST ? n - 1 - i : i];
        if (flaw == SKIPS_DUPLICATES && rejected_before(d, c))
            continue;
        make_q(d, c, w, vocab, flaw);
        w->sibling_rejected = i > 0;
        if (is_accepted(d, c, w, vocab, rng, flaw))
            return c;
        reject(d, c, rows, w, flaw);
    }
    return -1;
}

static int own_token(const struct draft *d, int node, struct rows *rows, struct work *w, struct rng *rng,
                     enum flaw flaw)
{
    int vocab = rows->vocab;
    bool leaf = draft_next_child(d, node, node) < 0;
    struct address at = { leaf ? FOR_BONUS : FOR_RESIDUAL, rng->root, node };
    const double *from = w->p;
    if (!leaf && flaw == CORRECTION_FROM_P)
        from = w->row;
    if (!leaf && flaw == RESIDUAL_BY_THE_ACCEPT_TEST)
        pick_reused(w->p, vocab, w->accepted);
    if (!leaf && flaw == RESIDUAL_AT_THE_DRAFTS_ADDRESS) // where node 1 of the draft was sampled
        at = (struct address){ FOR_DRAFT, rng->root, 1 };
    if (leaf && flaw == BONUS_FROM_PARENT && w->sibling_rejected)
        from = w->left;
    if (leaf && node > 0 && flaw == BONUS_FROM_PREVIOUS_ROW)
        dist_from_row(w->p, rows->row(rows, d->parent[node]), vocab);
    if (leaf && flaw == BONUS_IS_GREEDY)
        return argmax(w->p, vocab);
    if (leaf && flaw == BONUS_FROM_Q)
        dist_from_row(w->p, d->q->row(d->q, node), vocab);
    return rng->pick(rng, from, vocab, at);
}

static void rejection_mutant_verify(const struct rule *rule, const struct draft *d, struct rows *rows,
                                    const void *options, struct rng *rng, struct verification *out)
{
    (void)rule;
    enum flaw flaw = *(const enum flaw *)options;
    struct work w = { .sibling_rejected = false };
    int vocab = rows->vocab, node = 0;
    assert(vocab <= LAW_VOCAB);

    verification_clear(out, d->n);
    for (;;) {
        int shown = flaw == ROW_OF_PARENT && node > 0 ? d->parent[node] : node;
        memcpy(w.left, w.p, sizeof(w.left));
        dist_from_row(w.row, rows->row(rows, shown), vocab);
        memcpy(w.p, w.row, sizeof(w.p));
        int child = accepted_child(d, node, rows, &w, rng, flaw);
        if (child < 0)
            break;
        verification_add(out, node, d->token[child]);
        node = child;
    }
    if (flaw == NO_BONUS && node > 0 && draft_next_child(d, node, node) < 0)
        return; // the output ends with the leaf's own token
    verification_add(out, node, own_token(d, node, rows, &w, rng, flaw));
}

const struct rule rejection_mutant = {
    .name = "rejection, reimplemented",
    .summary = "rejection with a flaw",
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT | TAKES_TREES,
    .verify = rejection_mutant_verify,
};
