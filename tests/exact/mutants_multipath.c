// mutants_multipath.c - a second implementation of multipath, with a switch for every flaw.
#include <assert.h>
#include <math.h>
#include <string.h>
#include "verifier/exact/law.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/exact/mutants.h"

struct text { // the rows of a node of the draft
    double p[LAW_VOCAB], q[LAW_VOCAB];
};

static void load_rows(const struct draft *d, struct rows *rows, int node, struct text *t)
{
    dist_from_row(t->p, rows->row(rows, node), rows->vocab);
    dist_from_row(t->q, d->q->row(d->q, node), rows->vocab);
}

// The sort key of the tokens of a text; ties by lower id.
static double key(const struct text *t, int x, enum flaw flaw)
{
    if (flaw == ORDER_BY_ID)
        return x;
    double ratio = t->p[x] / t->q[x];
    return flaw == ORDER_NOT_STRICT ? ratio >= 1 : ratio;
}

static double ratio_of_path(const struct draft *d, struct rows *rows, int node)
{
    double ratio = 1;
    struct text t;
    for (;; node = draft_next_child(d, node, node)) {
        load_rows(d, rows, d->parent[node], &t);
        ratio *= t.p[d->token[node]] / t.q[d->token[node]];
        if (draft_next_child(d, node, node) < 0)
            return ratio;
    }
}

// Whether the chain that begins with node b is larger than the one that begins with a.
static bool is_larger(const struct draft *d, struct rows *rows, int a, int b, enum flaw flaw)
{
    struct text t;
    if (flaw == LARGEST_AS_A_WHOLE)
        return ratio_of_path(d, rows, b) > ratio_of_path(d, rows, a);
    while (a >= 0 && d->token[a] == d->token[b]) {
        a = draft_next_child(d, a, a);
        b = draft_next_child(d, b, b);
    }
    if (a < 0)
        return false;
    load_rows(d, rows, d->parent[a], &t);
    int x = d->token[a], y = d->token[b];
    enum flaw by = flaw == ORDERS_DIFFER ? ORDER_BY_ID : flaw;
    double of_x = key(&t, x, by), of_y = key(&t, y, by);
    return of_y > of_x || (of_y == of_x && flaw != ORDER_NOT_STRICT && y > x);
}

static int selected_chain(const struct draft *d, struct rows *rows, enum flaw flaw)
{
    int best = draft_next_child(d, 0, 0);
    for (int c = best; c >= 0 && flaw != FIRST_IS_SELECTED; c = draft_next_child(d, 0, c)) {
        bool larger =
            flaw == SMALLEST_IS_SELECTED ? is_larger(d, rows, c, best, flaw) : is_larger(d, rows, best, c, flaw);
        best = larger ? c : best;
    }
    return best;
}

struct band { // L and U of a text (verifier/rules/multipath.c)
    double low, high;
};

static double gap(struct band b, int k) // (high^k - low^k) / (high - low)
{
    double sum = 0;
    for (int i = 0; i < k; i++)
        sum += pow(b.high, k - 1 - i) * pow(b.low, i);
    return sum;
}

static struct band band_of(const struct text *t, struct band b, int vocab, int x, enum flaw flaw)
{
    double below = 0, width = b.high - b.low;
    for (int y = 0; y < vocab; y++) {
        double of_y = key(t, y, flaw), of_x = key(t, x, flaw);
        if (of_y < of_x || (of_y == of_x && flaw != ORDER_NOT_STRICT && y < x))
            below += t->q[y];
    }
    return (struct band){ b.low + width * below, b.low + width * (below + t->q[x]) };
}

static void multipath_mutant_verify(const struct rule *rule, const struct draft *d, struct rows *rows,
                                    const void *options, struct rng *rng, struct verification *out)
{
    (void)rule;
    enum flaw flaw = *(const enum flaw *)options;
    struct chain c = { .vocab = rows->vocab };
    struct band band = { 0, 1 };
    struct text t;
    int k = flaw == ONE_PATH_TOO_MANY;
    assert(rows->vocab <= LAW_VOCAB);
    for (int node = draft_next_child(d, 0, 0); node >= 0; node = draft_next_child(d, 0, node))
        k++;
    for (int node = selected_chain(d, rows, flaw); node >= 0; node = draft_next_child(d, node, node), c.n++) {
        load_rows(d, rows, d->parent[node], &t);
        memcpy(c.p[c.n], t.p, sizeof(t.p));
        memcpy(c.raw[c.n], t.q, sizeof(t.q));
        for (int x = 0; x < c.vocab; x++)
            c.q[c.n][x] = t.q[x] * gap(band_of(&t, band, c.vocab, x, flaw), k) / gap(band, k);
        if (flaw == NOT_SKEWED)
            memcpy(c.q[c.n], t.q, sizeof(t.q));
        if (flaw != BAND_NOT_CARRIED)
            band = band_of(&t, band, c.vocab, d->token[node], flaw);
        c.node[c.n + 1] = node;
        c.token[c.n + 1] = d->token[node];
    }
    dist_from_row(c.p[c.n], rows->row(rows, c.node[c.n]), c.vocab);
    verification_clear(out, d->n);
    chain_verify(&c, d, flaw, rng, out);
}

const struct rule multipath_mutant = {
    .name = "multipath, reimplemented",
    .summary = "block verification of the largest chain, with a flaw",
    .takes = TAKES_SAMPLED | TAKES_CHAINS,
    .verify = multipath_mutant_verify,
};
