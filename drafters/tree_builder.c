#include "drafters/tree_builder.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "sampling/rng.h"

int tree_shape_levels(const struct tree_shape *s)
{
    return s->tree.n > 0 ? tree_max_depth(&s->tree) : s->o.widths.n > 0 ? s->o.widths.n : s->o.tokens;
}

int tree_shape_width(const struct tree_shape *s, int depth)
{
    return s->o.nodes > 0 ? s->o.top : s->o.widths.n > 0 ? s->o.widths.v[depth] : 1;
}

static bool check(const struct tree_shape *s, const char *what, struct error *err)
{
    const struct tree_options *o = &s->o;
    if ((o->nodes > 0) + (o->widths.n > 0) + (s->tree.n > 0) > 1)
        return fail(err, "%s: widths, nodes and tree are different trees; give one of them", what);
    if (o->nodes > 0 && o->pick != PICK_GREEDY)
        return fail(
            err,
            "%s: a best-first tree (nodes: %d) keeps the most probable candidates and needs pick: greedy: pruning "
            "sampled tokens would bias the output",
            what, o->nodes);
    if (o->pick == PICK_COUPLED && (o->widths.n > 0 || s->tree.n > 0))
        return fail(err, "%s: pick: coupled has one token per position; it excludes widths and trees", what);
    if (s->tree.n > 0 && o->pick == PICK_SAMPLED && tree_has_gaps(&s->tree))
        return fail(err,
                    "%s: this tree skips some of the top-k tokens and needs pick: greedy: sampled tokens have no such "
                    "order",
                    what);
    if (s->nodes > MAX_NODES)
        return fail(err, "%s: a draft of %d nodes; expected at most %d", what, s->nodes, MAX_NODES);
    return true;
}

static void measure_levels(struct tree_shape *s)
{
    int64_t n = 1, level = 1;
    s->frontier = 1;
    for (int d = 0; d < tree_shape_levels(s) && n <= MAX_NODES; d++) {
        if (d > 0) {
            s->frontier = level > s->frontier ? (int)level : s->frontier;
            s->evaluated += (int)level;
        }
        level *= tree_shape_width(s, d);
        n += level;
        s->max_children = tree_shape_width(s, d) > s->max_children ? tree_shape_width(s, d) : s->max_children;
    }
    s->nodes = s->candidates = n > MAX_NODES ? MAX_NODES + 1 : (int)n;
}

static void measure_tree(struct tree_shape *s)
{
    int evaluated[TREE_DEPTH + 1] = { 0 };
    s->nodes = s->candidates = s->tree.n;
    for (int node = 0; node < s->tree.n; node++) {
        s->max_children = s->tree.node[node].rank + 1 > s->max_children ? s->tree.node[node].rank + 1 : s->max_children;
        evaluated[s->tree.node[node].depth] += tree_children(&s->tree, node) > 0;
    }
    for (int d = 0; d <= TREE_DEPTH; d++) {
        s->frontier = evaluated[d] > s->frontier ? evaluated[d] : s->frontier;
        s->evaluated += d > 0 ? evaluated[d] : 0;
    }
}

static void measure(struct tree_shape *s)
{
    const struct tree_options *o = &s->o;
    if (s->tree.n > 0)
        measure_tree(s);
    else if (o->nodes == 0)
        measure_levels(s);
    else {
        s->nodes = 1 + o->nodes;
        s->frontier = s->max_children = o->top;
        s->evaluated = (o->tokens - 1) * o->top;
        s->candidates = 1 + o->top + s->evaluated * o->top;
    }
}

bool tree_shape(struct tree_shape *to, const struct tree_options *o, const char *what, const char *beside,
                struct error *err)
{
    *to = (struct tree_shape){ .o = *o };
    if (o->tree != NULL && !tree_read(o->tree, beside, &to->tree, err)) {
        struct error why = *err;
        return fail(err, "%s: %s", what, why.text);
    }
    measure(to);
    return check(to, what, err);
}

unsigned tree_options_kinds(const struct tree_options *o)
{
    bool chains = o->widths.n > 0 && o->widths.v[0] > 1, tree = o->nodes > 0 || o->tree != NULL;
    for (int d = 1; d < o->widths.n; d++)
        tree = tree || o->widths.v[d] > 1;
    unsigned shape = tree ? TAKES_TREES : chains ? TAKES_CHAINS : 0;
    if (o->pick != PICK_SAMPLED)
        return shape | TAKES_DETERMINISTIC | (o->pick == PICK_COUPLED ? SHARES_RANDOMNESS : 0);
    return shape | (shape != 0 && o->distinct ? TAKES_WITHOUT_REPLACEMENT : TAKES_SAMPLED);
}

void builder_create(struct tree_builder *g, const struct tree_shape *shape, int vocab)
{
    size_t capacity = (size_t)shape->candidates;
    *g = (struct tree_builder){ .shape = shape, .vocab = vocab, .capacity = (int)capacity };
    g->at = xcalloc(capacity, sizeof(*g->at));
    g->frontier = xcalloc(capacity, sizeof(*g->frontier));
    g->order = xcalloc(capacity, sizeof(*g->order));
    g->weight = xcalloc((size_t)vocab, sizeof(*g->weight));
}

void builder_destroy(struct tree_builder *g)
{
    free(g->at);
    free(g->frontier);
    free(g->order);
    free(g->weight);
    *g = (struct tree_builder){ 0 };
}

int tree_shape_depth(const struct tree_shape *s, const struct request *r)
{
    const int max = tree_shape_levels(s) < r->depth ? tree_shape_levels(s) : r->depth;
    if (r->forced != NULL)
        return max < r->forced->n ? max : r->forced->n;
    if (s->o.nodes > 0)
        return max;
    int64_t n = 1, level = 1;
    for (int d = 0, node = 1; d < max; d++) {
        if (s->tree.n == 0)
            n += level *= tree_shape_width(s, d);
        for (; node < s->tree.n && s->tree.node[node].depth == d + 1; node++)
            n++;
        if (n > r->draft->capacity)
            return d;
    }
    return max;
}

void builder_begin(struct tree_builder *g, const struct request *r)
{
    g->n = 1;
    g->forced = r->forced != NULL;
    g->at[0] = (struct candidate){ .parent = -1, .token = r->draft->token[0], .node = 0 };
    g->frontier[0] = 0;
    g->n_frontier = tree_shape_depth(g->shape, r) > 0 ? 1 : 0;
}

int builder_top_k(const struct tree_builder *g, int c)
{
    const struct tree_shape *s = g->shape;
    const int depth = g->at[c].depth;
    int k = 0;
    if (depth >= tree_shape_levels(s))
        return 0;
    if (g->forced)
        return 1;
    if (s->tree.n == 0)
        k = tree_shape_width(s, depth);
    for (int node = 1; node < s->tree.n; node++)
        if (s->tree.node[node].parent == g->at[c].fixed)
            k = s->tree.node[node].rank + 1;
    return k < g->vocab ? k : g->vocab;
}

static void add(struct tree_builder *g, int parent, int32_t token, enum proposal how, int fixed, double score)
{
    assert(g->n < g->capacity);
    g->at[g->n++] = (struct candidate){ parent, g->at[parent].depth + 1, token, (uint8_t)how, fixed, score, -1 };
}

// The fixed tree's node of this rank below candidate c, 0 without a fixed tree; -1: it has no such node.
static int fixed_below(const struct tree_builder *g, int c, int rank)
{
    const struct tree *t = &g->shape->tree;
    for (int node = 1; node < t->n; node++)
        if (t->node[node].parent == g->at[c].fixed && t->node[node].rank == rank)
            return node;
    return t->n > 0 ? -1 : 0;
}

static bool any(const double *w, int n)
{
    for (int i = 0; i < n; i++)
        if (w[i] > 0)
            return true;
    return false;
}

void builder_sample_children(struct tree_builder *g, int c, const float *row, const struct request *r)
{
    const int wanted = builder_top_k(g, c), root = r->n - 1;
    // An only child is sampled from the row as it is, with or without `distinct`.
    const struct tree_options *o = &g->shape->o;
    const bool distinct = o->distinct && wanted > 1;
    assert(o->pick != PICK_GREEDY);
    for (int i = 0; distinct && i < g->vocab; i++)
        g->weight[i] = (double)row[i];
    for (int k = 0; k < wanted && (!distinct || any(g->weight, g->vocab)); k++) {
        // A coupled draw has the address of its position in the text, as the target's has under `match`.
        struct address at = o->pick == PICK_COUPLED ? (struct address){ FOR_TOKEN, root + g->at[c].depth + 1, 0 }
                                                    : (struct address){ FOR_DRAFT, root, g->n };
        int x = distinct ? r->rng->pick(r->rng, g->weight, g->vocab, at)
                         : rng_pick_row(r->rng, row, g->vocab, at, g->weight);
        add(g, c, x,
            o->pick != PICK_SAMPLED ? DETERMINISTIC
            : distinct              ? SAMPLED_WITHOUT_REPLACEMENT
                                    : SAMPLED,
            fixed_below(g, c, k), 0);
        if (distinct)
            g->weight[x] = 0;
    }
}

void builder_add_top_k(struct tree_builder *g, int c, const int32_t *token, const float *log_p, int k, int used_vocab)
{
    assert(g->shape->o.pick == PICK_GREEDY);
    const int wanted = builder_top_k(g, c);
    for (int i = 0, rank = 0; i < k && rank < wanted; i++) {
        if (token[i] >= used_vocab)
            continue;
        const int fixed = fixed_below(g, c, rank++);
        if (fixed >= 0)
            add(g, c, token[i], DETERMINISTIC, fixed, g->at[c].score + (double)(log_p[i] < 0 ? log_p[i] : 0));
    }
}

void builder_add_forced(struct tree_builder *g, int c, int32_t token)
{
    assert(g->forced);
    add(g, c, token, DETERMINISTIC, 0, 0);
}

// Moves the m best of candidates order[0..n) by score to the front; of equal ones the earlier is better, so that no child outranks its
// parent.
static void best_first(const struct tree_builder *g, int *order, int n, int m)
{
    for (int i = 0; i < m && i < n; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++) {
            const struct candidate *a = &g->at[order[j]], *b = &g->at[order[best]];
            if (a->score > b->score || (a->score == b->score && order[j] < order[best]))
                best = j;
        }
        int chosen = order[best];
        memmove(order + i + 1, order + i, (size_t)(best - i) * sizeof(*order));
        order[i] = chosen;
    }
}

bool builder_next_level(struct tree_builder *g, const struct request *r)
{
    const struct tree_options *o = &g->shape->o;
    int depth = g->at[g->frontier[0]].depth + 1, n = 0, first = g->n;
    while (first > 1 && g->at[first - 1].depth == depth)
        first--;
    if (depth < tree_shape_depth(g->shape, r))
        for (int c = first; c < g->n; c++)
            if (builder_top_k(g, c) > 0)
                g->frontier[n++] = c;
    if (o->nodes > 0 && n > o->top) {
        best_first(g, g->frontier, n, o->top);
        n = o->top;
    }
    g->n_frontier = n;
    return n > 0;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

void builder_finish(struct tree_builder *g, struct draft *d)
{
    const struct tree_options *o = &g->shape->o;
    int n = g->n - 1;
    for (int i = 0; i < n; i++)
        g->order[i] = i + 1;
    if (o->nodes > 0) {
        int keep = o->nodes < d->capacity - 1 ? o->nodes : d->capacity - 1;
        keep = keep < n ? keep : n;
        best_first(g, g->order, n, keep);
        qsort(g->order, (size_t)keep, sizeof(*g->order), ascending);
        n = keep;
    }
    for (int i = 0; i < n; i++) {
        struct candidate *c = &g->at[g->order[i]];
        c->node = draft_add(d, g->at[c->parent].node, c->token, (enum proposal)c->proposal);
        assert(c->node > 0);
    }
}
