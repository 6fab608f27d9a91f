// multipath.c - block verification of the largest of several independent chains (Thomas and Pal 2026, arXiv 2602.16961;
// the form below is our derivation of "select a path, then verify it by the skewed draft it has become").
//
// The draft is k chains that begin at the root, each sampled independently from q. At every text s the tokens have a
// strict order that does not depend on the draft: ascending p(x | s) / q(x | s), ties by lower id first. (The ratios
// are floats: any order is valid, and one of 32 bits is sorted in three passes.) This orders chains lexicographically;
// the largest is selected. Selected chains are not distributed as q. Let [s] be all chains that begin with s, and of
// the mass of q on chains
//
//     L(s) = the mass below [s],   U(s) = that plus the mass of [s];    for the empty text 0 and 1
//
// The largest of k lies in [s] with probability U(s)^k - L(s)^k, so given that it begins with s its next token is x
// with probability
//
//     q'(x | s) = (U(sx)^k - L(sx)^k) / (U(s)^k - L(s)^k) = q(x | s) G(U(sx), L(sx)) / G(U(s), L(s))
//     G(U, L) = U^(k-1) + U^(k-2) L + ... + L^(k-1)
//
// where the second form has no differences of nearly equal numbers (the first is off by 0.4 % at depth 13 and undefined
// at 17). The selected chain is thus a chain sampled from the rows q', and `block` with q' in place of q is exact for
// it. Tokens with a high p / q win the selection, so q' is closer to p than q is.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

// ---- selection of a chain

// Returns the sort key of token x after a text with rows p and q: the bits of the float p / q, which ascend with it,
// then the id. Sampled tokens have q > 0.
static uint64_t sort_key(const double *p, const double *q, int x)
{
    const float ratio = (float)(p[x] / q[x]);
    uint32_t bits;
    memcpy(&bits, &ratio, sizeof(bits));
    return (uint64_t)bits << 32 | (uint32_t)x;
}

static int only_child(const struct draft *d, int node)
{
    return draft_next_child(d, node, node);
}

// Returns the first node of the largest chain. Chains that agree so far are compared in parallel, at[], until they
// diverge. p, q: (vocab) scratch.
static int largest_chain(const struct draft *d, struct rows *rows, double *p, double *q)
{
    int first[MAX_NODES], at[MAX_NODES], n = 0, parent = 0;
    for (int c = draft_next_child(d, 0, 0); c >= 0; c = draft_next_child(d, 0, c))
        first[n] = at[n] = c, n++;
    while (n > 1 && at[0] >= 0) {
        int best = 0, kept = 0;
        dist_from_row(p, rows->row(rows, parent), rows->vocab);
        dist_from_row(q, d->q->row(d->q, parent), rows->vocab);
        for (int i = 1; i < n; i++)
            if (sort_key(p, q, d->token[at[i]]) > sort_key(p, q, d->token[at[best]]))
                best = i;
        const int token = d->token[at[best]];
        for (int i = 0; i < n; i++)
            if (d->token[at[i]] == token)
                first[kept] = first[i], at[kept] = at[i], kept++;
        n = kept;
        parent = at[0];
        for (int i = 0; i < n; i++)
            at[i] = only_child(d, at[i]);
    }
    return first[0];
}

// ---- the distribution of the selected chain

struct band { // L and U of a text
    double low, high;
};

static double gap(struct band b, int k) // (high^k - low^k) / (high - low)
{
    double sum = 0, high = 1;
    for (int i = 0; i < k; i++, high *= b.high)
        sum = sum * b.low + high;
    return sum;
}

struct order {
    uint64_t *key, *scratch; // (vocab) sort keys of tokens with q > 0, ascending; the other buffer of the sort
    int n;
};

static int token_of(uint64_t key)
{
    return (int)(uint32_t)key;
}

// Sorts stably by the bits of the ratio, 11 at a time, lowest first (radix sort). Ids ascend already.
static void sort(struct order *o)
{
    enum { BITS = 11, FROM = 32, TO = 64 };
    for (int shift = FROM; shift < TO; shift += BITS) {
        int end[1 << BITS] = { 0 }, sum = 0;
        for (int i = 0; i < o->n; i++)
            end[o->key[i] >> shift & ((1 << BITS) - 1)]++;
        for (int k = 0; k < 1 << BITS; k++) {
            sum += end[k];
            end[k] = sum - end[k];
        }
        for (int i = 0; i < o->n; i++)
            o->scratch[end[o->key[i] >> shift & ((1 << BITS) - 1)]++] = o->key[i];
        uint64_t *sorted = o->scratch;
        o->scratch = o->key;
        o->key = sorted;
    }
}

static void sort_tokens(struct order *o, const double *p, const double *q, int vocab)
{
    o->n = 0;
    for (int x = 0; x < vocab; x++)
        if (q[x] > 0)
            o->key[o->n++] = sort_key(p, q, x);
    sort(o);
}

// Replaces q by q' for a text with band b. Returns the band of that text followed by token x.
static struct band skew(const struct order *o, double *q, struct band b, int k, int x)
{
    const double all = gap(b, k), width = b.high - b.low;
    struct band of_x = b;
    double below = 0;
    for (int i = 0; i < o->n; i++) {
        const int y = token_of(o->key[i]);
        const struct band of_y = { b.low + width * below, b.low + width * (below + q[y]) };
        below += q[y];
        if (y == x)
            of_x = of_y;
        q[y] *= gap(of_y, k) / all;
    }
    return of_x;
}

// ---- block verification of the selected chain

struct chain {
    int k, depth, vocab;
    int node[MAX_NODES];     // (depth + 1) nodes from the root
    double share[MAX_NODES]; // (depth + 1) b: the share of the target's mass that may pass through each node
    double *p, *q;           // (depth, vocab) the target's rows, and the rows q'
};

// Selects the largest chain and computes its rows and shares. work: (2 depth + 2, vocab). out may be NULL.
static void select_chain(struct chain *c, const struct draft *d, struct rows *rows, double *work,
                         struct verification *out)
{
    const int vocab = rows->vocab;
    struct band band = { 0, 1 };
    *c = (struct chain){ .vocab = vocab, .depth = draft_max_depth(d), .share = { 1 } };
    for (int i = draft_next_child(d, 0, 0); i >= 0; i = draft_next_child(d, 0, i))
        c->k++;
    c->p = work + 2 * (size_t)vocab;
    c->q = c->p + (size_t)c->depth * (size_t)vocab;
    struct order o = { .key = (uint64_t *)work, .scratch = (uint64_t *)work + vocab };
    int next = c->depth > 0 ? largest_chain(d, rows, c->p, c->q) : -1;
    for (int i = 0; i < c->depth; i++, next = only_child(d, next)) {
        assert(next >= 0); // all chains are equally deep: the rule takes no other drafts
        const int x = d->token[next], parent = c->node[i];
        double *p = c->p + (size_t)i * (size_t)vocab, *q = c->q + (size_t)i * (size_t)vocab;
        dist_from_row(p, rows->row(rows, parent), vocab);
        dist_from_row(q, d->q->row(d->q, parent), vocab);
        sort_tokens(&o, p, q, vocab);
        band = skew(&o, q, band, c->k, x);
        const double through = c->share[i] * p[x];
        c->node[i + 1] = next;
        c->share[i + 1] = through >= q[x] ? 1 : through / q[x];
        if (out != NULL) {
            out->trial_p[next] = through;
            out->trial_q[next] = q[x];
        }
    }
}

// Returns the probability that the path ends at the chain's node i, given that it does not end below it. Replaces row i
// of c->p by the residual.
static double end_probability(struct chain *c, int i, int *empty)
{
    const double b = c->share[i];
    if (i == c->depth)
        return b;
    const double left =
        dist_scaled_residual(c->p + (size_t)i * (size_t)c->vocab, b, c->q + (size_t)i * (size_t)c->vocab, c->vocab);
    if (left > 0)
        return left / (left + (1 - b));
    *empty += b == 1;
    return b == 1 ? 1 : 0;
}

static void multipath_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                             struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)options;
    struct chain c;
    verification_clear(out, d->n);
    select_chain(&c, d, rows, out->work, out);
    int i = c.depth;
    while (
        !rng->accept(rng, end_probability(&c, i, &out->empty), 1, (struct address){ FOR_ACCEPT, rng->root, c.node[i] }))
        i--;
    const int node = c.node[i];
    struct address at = { i == c.depth ? FOR_BONUS : FOR_RESIDUAL, rng->root, node };
    verification_path(out, d, node,
                      i == c.depth ? rng_pick_row(rng, rows->row(rows, node), c.vocab, at, out->work)
                                   : rng->pick(rng, c.p + (size_t)i * (size_t)c.vocab, c.vocab, at));
}

static void multipath_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows,
                                        const void *options, double *end)
{
    (void)rule;
    (void)options;
    struct chain c;
    int ignored = 0;
    double *work = xcalloc((2 * (size_t)draft_max_depth(d) + 2) * (size_t)rows->vocab, sizeof(*work)), reach = 1;
    for (int node = 0; node < d->n; node++)
        end[node] = 0;
    select_chain(&c, d, rows, work, NULL);
    for (int i = c.depth; i >= 0; i--) {
        end[c.node[i]] = reach * end_probability(&c, i, &ignored);
        reach -= end[c.node[i]];
    }
    free(work);
}

const struct rule multipath_rule = {
    .name = "multipath",
    .summary = "selects the largest of several i.i.d. chains, then block verification of it",
    .exact = true,
    .bonus_alone = true,
    .takes = TAKES_SAMPLED | TAKES_CHAINS,
    .end_probabilities = multipath_end_probabilities,
    .verify = multipath_verify,
};
