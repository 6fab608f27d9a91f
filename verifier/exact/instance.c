// instance.c - makes random test problems, and drafts from them.
#include "verifier/exact/instance.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "sampling/rng.h"

// ---- instances

static int below(uint64_t *state, int n)
{
    return (int)(splitmix(state) % (uint64_t)n);
}

static double uniform(uint64_t *state)
{
    return (double)(splitmix(state) >> 11) * 0x1p-53;
}

static void scale(float *row, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += row[i];
    for (int i = 0; i < n; i++)
        row[i] = (float)(row[i] / sum);
}

static void make_row(float *row, int n, enum family family, uint64_t *state)
{
    int peak = below(state, n);
    for (int i = 0; i < n; i++) {
        double u = uniform(state);
        switch (family) {
        case SPARSE:
            row[i] = u < 0.5 && i != peak ? 0 : (float)u;
            break;
        case ONE_HOT:
            row[i] = i == peak;
            break;
        case PEAKED:
            row[i] = i == peak ? 1 : (float)(0.01 * u);
            break;
        case TIES:
            row[i] = 1 + (u < 0.5);
            break;
        default:
            row[i] = (float)(0.02 + u);
        }
    }
    scale(row, n);
}

static void make_rows(float *p, float *q, int n, enum family family, uint64_t *state)
{
    int split = 1 + below(state, n - 1);
    switch (family) {
    case ONE_HOT: // p, q or both are one-hot
        split = below(state, 3);
        make_row(p, n, split == 0 ? DENSE : ONE_HOT, state);
        make_row(q, n, split == 1 ? DENSE : ONE_HOT, state);
        break;
    case EQUAL:
    case ONE_ULP:
        make_row(p, n, DENSE, state);
        for (int i = 0; i < n; i++)
            q[i] = family == EQUAL ? p[i] : nextafterf(p[i], (float)below(state, 2));
        break;
    case DISJOINT:
        make_row(p, n, DENSE, state);
        make_row(q, n, DENSE, state);
        for (int i = 0; i < n; i++)
            *(i < split ? &p[i] : &q[i]) = 0;
        scale(p, n);
        scale(q, n);
        break;
    default:
        make_row(p, n, family, state);
        make_row(q, n, family, state);
    }
}

// Fills the tables of an instance whose shape is set.
static void fill_tables(struct instance *in, enum proposal_mix mix, enum family family, uint64_t *state)
{
    static const enum proposal proposal_of[] = {
        [ALL_DETERMINISTIC] = DETERMINISTIC, [ALL_SAMPLED] = SAMPLED, [ALL_DISTINCT] = SAMPLED_WITHOUT_REPLACEMENT
    };
    int depth[LAW_NODES] = { 0 }, texts = 1;
    in->depth = 0;
    for (int k = 1; k < in->nodes; k++) {
        depth[k] = depth[in->parent[k]] + 1;
        in->depth = depth[k] > in->depth ? depth[k] : in->depth;
        in->proposal[k] = (uint8_t)(mix == MIXED ? below(state, 3) : (int)proposal_of[mix]);
        in->choice[k] = (uint8_t)below(state, CHOICES);
    }
    in->prefixes = 0;
    for (int length = 0; length <= in->depth; length++, texts *= in->vocab)
        in->prefixes += texts;
    size_t cells = (size_t)in->prefixes * (size_t)in->vocab;
    in->p = xcalloc(cells, sizeof(float));
    in->q = xcalloc(cells, sizeof(float));
    for (int i = 0; i < in->prefixes; i++)
        make_rows(in->p + i * in->vocab, in->q + i * in->vocab, in->vocab,
                  family < FAMILIES ? family : (enum family)below(state, FAMILIES), state);
}

static void shape_by_widths(struct instance *in, const int *widths, int levels)
{
    int first = 0, last = 1; // first and last node of the level above
    in->nodes = 1;
    in->parent[0] = -1;
    for (int l = 0; l < levels; l++) {
        for (int v = first; v < last; v++)
            for (int k = 0; k < widths[l]; k++)
                in->parent[in->nodes++] = v;
        first = last;
        last = in->nodes;
    }
}

static void random_tree(struct instance *in, uint64_t *state)
{
    in->nodes = 3 + below(state, 5); // at most 7
    in->parent[0] = -1;
    for (int k = 1; k < in->nodes; k++)
        in->parent[k] = below(state, k);
}

struct instance instance_create(const int *widths, int levels, int vocab, enum proposal_mix mix, enum family family,
                                uint64_t seed)
{
    struct instance in = { .vocab = vocab };
    if (levels > 0)
        shape_by_widths(&in, widths, levels);
    else
        random_tree(&in, &seed);
    fill_tables(&in, mix, family, &seed);
    return in;
}

void instance_free(struct instance *in)
{
    free(in->p);
    free(in->q);
    *in = (struct instance){ 0 };
}

// ---- drafts

static const float *table_row(struct rows *self, int node)
{
    struct table_rows *t = (struct table_rows *)self;
    t->requested++;
    return t->table + t->prefix[node] * t->rows.vocab;
}

static bool is_deterministic_sibling(const struct draft *d, int parent, int x)
{
    for (int s = draft_next_child(d, parent, parent); s >= 0; s = draft_next_child(d, parent, s))
        if (d->token[s] == x && d->proposal[s] == DETERMINISTIC)
            return true;
    return false;
}

static int argmax(const double *w, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (w[i] > w[best])
            best = i;
    return best;
}

// Returns the token of a new child of parent, node k of the instance; -1: the child is dropped. w (vocab): parent's row
// of q.
static int deterministic_token(const struct instance *in, int k, const struct table_draft *g, int parent, double *w,
                               struct rng *rng)
{
    struct address at = { FOR_DRAFT, rng->root, k }; // the node is k, since the draft's next node may be dropped
    int x;
    switch ((enum choice)in->choice[k]) {
    case GREEDY:
        for (x = 0; x < in->vocab; x++)
            if (is_deterministic_sibling(&g->draft, parent, x))
                w[x] = -1;
        return argmax(w, in->vocab);
    case ARBITRARY:
        return (g->prefix[parent] * 5 + k * 3) % in->vocab;
    case AFTER_EARLIER:
        x = draft_next_child(&g->draft, parent, parent);
        return x < 0 ? 0 : (g->draft.token[x] + k) % in->vocab;
    case RANDOM_BUT_DETERMINISTIC:
        return rng->pick(rng, w, in->vocab, at);
    default:
        x = rng->pick(rng, w, in->vocab, at);
        return w[x] * in->vocab < 0.7 ? -1 : x;
    }
}

static int sampled_token(const struct instance *in, int k, struct table_draft *g, int parent, double *w,
                         struct rng *rng)
{
    if (in->flaw != NULL)
        return in->flaw->sampled(in, k, g, parent, w, rng);
    double left = 0;
    for (int x = 0; x < in->vocab; x++) {
        if (in->proposal[k] == SAMPLED_WITHOUT_REPLACEMENT && draft_child(&g->draft, parent, x) >= 0)
            w[x] = 0;
        left += w[x];
    }
    if (left <= 0)
        return -1; // the siblings' tokens have all of the mass
    return rng->pick(rng, w, in->vocab, (struct address){ FOR_DRAFT, rng->root, k });
}

void instance_draft(const struct instance *in, struct rng *rng, int prefix, struct table_draft *g)
{
    int at[LAW_NODES] = { 0 }; // the draft's node for each node of the instance; -1: none
    g->q = (struct table_rows){ { in->vocab, table_row }, in->q, g->prefix, 0 };
    g->p = (struct table_rows){ { in->vocab, table_row }, in->p, g->prefix, 0 };
    g->draft = (struct draft){
        .n = 1, .capacity = LAW_NODES, .token = g->token, .parent = g->parent, .proposal = g->proposal, .q = &g->q.rows
    };
    g->token[0] = 0;
    g->parent[0] = -1;
    g->proposal[0] = DETERMINISTIC;
    g->prefix[0] = prefix;
    g->from[0] = 0;

    for (int k = 1; k < in->nodes; k++) {
        int parent = at[in->parent[k]];
        at[k] = -1;
        if (parent < 0 || (in->flaw != NULL && in->flaw->stops(in, g, parent)))
            continue;
        double w[LAW_VOCAB];
        for (int x = 0; x < in->vocab; x++)
            w[x] = in->q[g->prefix[parent] * in->vocab + x];
        int x = in->proposal[k] == DETERMINISTIC ? deterministic_token(in, k, g, parent, w, rng)
                                                 : sampled_token(in, k, g, parent, w, rng);
        if (x < 0)
            continue;
        at[k] = draft_add(&g->draft, parent, x, (enum proposal)in->proposal[k]);
        g->prefix[at[k]] = g->prefix[parent] * in->vocab + 1 + x;
        g->from[at[k]] = k;
    }
    if (in->flaw != NULL)
        in->flaw->end(in, g);
}
