#include "tests/exact/misreports.h"

#include "sampling/rng.h"

struct misreporter {
    struct drafter_flaw flaw; // first
    enum misreport kind;
};

static enum misreport kind_of(const struct instance *in)
{
    return ((const struct misreporter *)in->flaw)->kind;
}

static int argmax(const double *w, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (w[i] > w[best])
            best = i;
    return best;
}

static float to_bfloat16(float x)
{
    union {
        float x;
        uint32_t bits;
    } u = { .x = x };
    u.bits = (u.bits + 0x7fff + (u.bits >> 16 & 1)) & 0xffff0000;
    return u.x;
}

// Replaces the reported row w (vocab) by the one that a misreporting drafter samples from.
static void misreport_row(enum misreport misreport, double *w, int vocab)
{
    int best = argmax(w, vocab), second = best == 0 ? 1 : 0;
    for (int x = 0; x < vocab; x++)
        second = x != best && w[x] > w[second] ? x : second;
    for (int x = 0; x < vocab; x++) {
        if (misreport == SHARPENED_AS_SAMPLED)
            w[x] *= w[x];
        if (misreport == TOP_TWO_AS_SAMPLED && x != best && x != second)
            w[x] = 0;
        if (misreport == ROUNDED_AS_SAMPLED)
            w[x] = to_bfloat16((float)w[x]);
        if (misreport == PADDING_IN_ROW && x == vocab - 1)
            w[x] = 0;
    }
}

// Merges a new sample x below parent into a leaf that was sampled before, which keeps the more probable token. Returns
// false if there is no such sibling.
static bool merge_into_sibling(const struct instance *in, struct table_draft *g, int parent, int x)
{
    struct draft *d = &g->draft;
    const float *q = in->q + g->prefix[parent] * in->vocab;
    int s = draft_next_child(d, parent, parent);
    if (s < 0 || d->proposal[s] != SAMPLED || draft_next_child(d, s, s) >= 0)
        return false;
    if (q[x] > q[d->token[s]]) {
        d->token[s] = x;
        g->prefix[s] = g->prefix[parent] * in->vocab + 1 + x;
    }
    return true;
}

static int sampled_token(const struct instance *in, int k, struct table_draft *g, int parent, double *w,
                         struct rng *rng)
{
    const enum misreport kind = kind_of(in);
    bool distinct =
        in->proposal[k] == SAMPLED_WITHOUT_REPLACEMENT || kind == DISTINCT_AS_SAMPLED || kind == RANKED_AS_SAMPLED;
    double left = 0;
    for (int x = 0; x < in->vocab; x++)
        if (distinct && draft_child(&g->draft, parent, x) >= 0)
            w[x] = 0;
    misreport_row(kind, w, in->vocab);
    for (int x = 0; x < in->vocab; x++)
        left += w[x];
    if (left <= 0)
        return -1; // the siblings' tokens have all of the mass
    if (kind == GREEDY_AS_SAMPLED || kind == RANKED_AS_SAMPLED)
        return argmax(w, in->vocab);
    int x = rng->pick(rng, w, in->vocab, (struct address){ FOR_DRAFT, rng->root, k });
    if (kind == PRUNED_AS_SAMPLED && w[x] < 0.7 * left / in->vocab)
        return -1;
    if (kind == BEST_OF_TWO_AS_SAMPLED && in->proposal[k] == SAMPLED && merge_into_sibling(in, g, parent, x))
        return -1;
    return kind == UNMAPPED_AS_SAMPLED ? (x + 1) % in->vocab : x;
}

static bool is_unlikely(const struct instance *in, const struct table_draft *g, int node)
{
    const float *q = in->q + g->prefix[g->draft.parent[node]] * in->vocab;
    return q[g->draft.token[node]] * (float)in->vocab < 0.7F;
}

// Whether the drafter adds no children below node, for a reason that is allowed.
static bool stops_at(const struct instance *in, const struct table_draft *g, int node)
{
    const struct draft *d = &g->draft;
    if (node == 0)
        return false;
    if (kind_of(in) == STOPS_AFTER_UNLIKELY)
        return is_unlikely(in, g, node);
    if (kind_of(in) != LEAVES_BESIDE_UNLIKELY)
        return false;
    for (int s = draft_next_child(d, d->parent[node], d->parent[node]); s >= 0;
         s = draft_next_child(d, d->parent[node], s))
        if (s != node && is_unlikely(in, g, s))
            return true;
    return false;
}

// Every deterministic leaf whose later siblings are all SAMPLED gets the token after that of the next one.
static void end(const struct instance *in, struct table_draft *g)
{
    struct draft *d = &g->draft;
    if (kind_of(in) != DETERMINISTIC_AFTER_LATER)
        return;
    for (int c = 1; c < d->n; c++) {
        int later = draft_next_child(d, d->parent[c], c);
        bool independent = d->proposal[c] == DETERMINISTIC && draft_next_child(d, c, c) < 0;
        for (int s = later; s >= 0; s = draft_next_child(d, d->parent[c], s))
            independent = independent && d->proposal[s] == SAMPLED;
        if (later < 0 || !independent)
            continue;
        d->token[c] = (d->token[later] + 1) % in->vocab;
        g->prefix[c] = g->prefix[d->parent[c]] * in->vocab + 1 + d->token[c];
    }
}

const struct drafter_flaw *misreport_of(enum misreport m)
{
    static struct misreporter all[LEAVES_BESIDE_UNLIKELY + 1];
    all[m] = (struct misreporter){ { sampled_token, stops_at, end }, m };
    return m == TRUTHFUL ? NULL : &all[m].flaw;
}
