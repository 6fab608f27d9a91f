// mutants.c - the rejection rule written once more, plainly, with a place for every flaw.
#include "tests/mutants.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "exact/law.h"

#define MUTANT_NAME(name, says) says,
const char *const flaw_names[FLAWS] = { MUTANTS(MUTANT_NAME) };

struct work {               // of one node
    double row[LAW_VOCAB];  // the target's, as it came
    double p[LAW_VOCAB];    // what is left of it
    double q[LAW_VOCAB];    // what the child was drawn from
    double left[LAW_VOCAB]; // what was left of p at the parent when this node stood
    bool sibling_fell;      // before this node stood
};

static int likeliest(const double *w, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (w[i] > w[best])
            best = i;
    return best;
}

// Takes the earlier siblings' tokens out of the row of child c.
static void mask(const struct draft *d, int c, double *q, int vocab, bool chosen_too)
{
    int parent = d->parent[c];
    for (int s = draft_next_child(d, parent, parent); s < c; s = draft_next_child(d, parent, s))
        if (chosen_too || d->drawn[s] != CHOSEN)
            q[d->token[s]] = 0;
    dist_normalize(q, vocab);
}

static bool fell_before(const struct draft *d, int c)
{
    int parent = d->parent[c];
    for (int s = draft_next_child(d, parent, parent); s < c; s = draft_next_child(d, parent, s))
        if (d->token[s] == d->token[c])
            return true;
    return false;
}

static enum drawn seen_as(const struct draft *d, int c, enum flaw flaw)
{
    return d->drawn[c] == CHOSEN && flaw == CHOSEN_JUDGED_BY_Q ? DRAWN : (enum drawn)d->drawn[c];
}

static void make_q(const struct draft *d, int c, struct work *w, int vocab, enum flaw flaw)
{
    enum drawn how = seen_as(d, c, flaw);
    if (flaw == CARRIED_Q || how == CHOSEN)
        return;
    dist_from_row(w->q, d->q->row(d->q, d->parent[c]), vocab);
    if ((how == DRAWN_DISTINCT && flaw != UNMASKED_Q) || (how == DRAWN && flaw == MASKED_Q))
        mask(d, c, w->q, vocab, flaw != CHOSEN_NOT_MASKED);
}

static bool stands(const struct draft *d, int c, struct work *w, struct rng *rng, enum flaw flaw)
{
    int x = d->token[c];
    struct address at = { FOR_ACCEPT, rng->root, c };
    double num = flaw == STALE_P ? w->row[x] : w->p[x];
    double den = seen_as(d, c, flaw) == CHOSEN || flaw == ACCEPTS_BY_P ? 1 : w->q[x];
    switch (flaw) {
    case LENIENT:
        return rng->coin(rng, 1.1 * num, den, at);
    case ACCEPTS_EVERYTHING:
        return true;
    case ACCEPTS_IF_LIKELIER:
        return num >= den;
    case ACCEPTS_BY_Q_OVER_P:
        return rng->coin(rng, den, num, at);
    default:
        return rng->coin(rng, num, den, at);
    }
}

static void residual(struct work *w, int vocab, enum flaw flaw)
{
    double r[LAW_VOCAB];
    for (int i = 0; i < vocab; i++) {
        double more = w->p[i] - w->q[i];
        r[i] = flaw == RESIDUAL_IS_ABSOLUTE ? fabs(more) : fmax(flaw == RESIDUAL_IS_REVERSED ? -more : more, 0);
        if (flaw == RESIDUAL_IS_SOFTMAX)
            r[i] = exp(r[i]);
    }
    if (dist_sum(r, vocab) <= 0)
        return;
    if (flaw == RESIDUAL_IS_LIKELIEST)
        for (int i = 0, best = likeliest(r, vocab); i < vocab; i++)
            r[i] = i == best;
    if (flaw != RESIDUAL_NOT_NORMALIZED)
        dist_normalize(r, vocab);
    memcpy(w->p, r, (size_t)vocab * sizeof(*r));
}

static void falls(const struct draft *d, int c, struct work *w, int vocab, enum flaw flaw)
{
    int x = d->token[c];
    enum drawn how = seen_as(d, c, flaw);
    if (how == CHOSEN && flaw == CHOSEN_NOT_STRUCK)
        return;
    if (how != CHOSEN && flaw == RESIDUAL_IS_P)
        return;
    if (how == CHOSEN || flaw == RESIDUAL_IS_STRIKE)
        dist_strike(w->p, vocab, x);
    else
        residual(w, vocab, flaw);
    if (flaw == CARRIED_Q && how == DRAWN_DISTINCT)
        dist_strike(w->q, vocab, x);
}

static int child_that_stands(const struct draft *d, int node, struct work *w, int vocab, struct rng *rng,
                             enum flaw flaw)
{
    int child[LAW_NODES], n = 0;
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
        child[n++] = c;
    if (n > 0 && flaw == CARRIED_Q)
        dist_from_row(w->q, d->q->row(d->q, node), vocab);
    for (int i = 0; i < n; i++) {
        int c = child[flaw == TRIES_LAST_FIRST ? n - 1 - i : i];
        if (flaw == SKIPS_DUPLICATES && fell_before(d, c))
            continue;
        make_q(d, c, w, vocab, flaw);
        w->sibling_fell = i > 0;
        if (stands(d, c, w, rng, flaw))
            return c;
        falls(d, c, w, vocab, flaw);
    }
    return -1;
}

static int own_token(const struct draft *d, int node, struct work *w, int vocab, struct rng *rng, enum flaw flaw)
{
    bool leaf = draft_next_child(d, node, node) < 0;
    const double *from = w->p;
    if (!leaf && flaw == CORRECTION_FROM_P)
        from = w->row;
    if (leaf && flaw == BONUS_FROM_PARENT && w->sibling_fell)
        from = w->left;
    if (leaf && flaw == BONUS_IS_LIKELIEST)
        return likeliest(w->p, vocab);
    if (leaf && flaw == BONUS_FROM_Q) {
        dist_from_row(w->q, d->q->row(d->q, node), vocab);
        from = w->q;
    }
    return rng->pick(rng, from, vocab, (struct address){ leaf ? FOR_BONUS : FOR_RESIDUAL, rng->root, node });
}

static void mutant_judge(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                         struct judgement *out)
{
    enum flaw flaw = *(const enum flaw *)options;
    struct work w = { .sibling_fell = false };
    int vocab = rows->vocab, node = 0;
    assert(vocab <= LAW_VOCAB);

    judgement_clear(out, d->n);
    for (;;) {
        int shown = flaw == ROW_OF_PARENT && node > 0 ? d->parent[node] : node;
        memcpy(w.left, w.p, sizeof(w.left));
        dist_from_row(w.row, rows->row(rows, shown), vocab);
        memcpy(w.p, w.row, sizeof(w.p));
        int child = child_that_stands(d, node, &w, vocab, rng, flaw);
        if (child < 0)
            break;
        judgement_add(out, node, d->token[child]);
        node = child;
    }
    judgement_add(out, node, own_token(d, node, &w, vocab, rng, flaw));
}

const struct rule mutant_rule = {
    .name = "mutant",
    .summary = "rejection with a flaw",
    .takes = TAKES_CHOSEN | TAKES_DRAWN | TAKES_DISTINCT | TAKES_TREES,
    .judge = mutant_judge,
};
