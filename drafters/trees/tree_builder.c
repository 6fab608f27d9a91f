#include "drafters/trees/tree_builder.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "sampling/rng.h"

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
    if (o->temperature > 0 && o->pick == PICK_GREEDY)
        return fail(err, "%s: temperature is that of sampled draft tokens; pick: greedy takes the most probable ones",
                    what);
    if (s->nodes > MAX_NODES)
        return fail(err, "%s: expected a draft of at most %d nodes, found more", what, MAX_NODES);
    return true;
}

static int max(int a, int b)
{
    return a > b ? a : b;
}

// Returns the number of children of a candidate at this depth, if the shape has no fixed tree.
static int width_at(const struct tree_shape *s, int depth)
{
    return s->o.nodes > 0 ? s->o.top : s->o.widths.n > 0 ? s->o.widths.v[depth] : 1;
}

// Counts the candidates of each depth, and those of them that get rows.
static void measure_levels(struct tree_shape *s)
{
    enum { MANY = 1 << 20 }; // more than enough, without overflow
    for (int d = 0, n = 1; d <= s->levels; d++) {
        const int rows = frontier_size(s->o.nodes, s->o.top, n), width = d < s->levels ? width_at(s, d) : 0;
        s->level_candidates[d] = n;
        s->level_rows[d] = width > 0 ? rows : 0;
        s->max_children = max(s->max_children, width);
        n = rows * width < MANY ? rows * width : MANY;
    }
}

static void measure_tree(struct tree_shape *s)
{
    for (int node = 0; node < s->tree.n; node++) {
        s->level_candidates[s->tree.node[node].depth]++;
        s->level_rows[s->tree.node[node].depth] += tree_children(&s->tree, node) > 0;
        s->max_children = max(s->max_children, s->tree.node[node].rank + 1);
    }
}

static void measure(struct tree_shape *s)
{
    const struct tree_options *o = &s->o;
    s->levels = s->tree.n > 0 ? tree_max_depth(&s->tree) : o->widths.n > 0 ? o->widths.n : o->tokens;
    assert(s->levels <= MAX_LEVELS);
    if (s->tree.n > 0)
        measure_tree(s);
    else
        measure_levels(s);
    s->frontier = 1;
    for (int d = 1; d <= s->levels; d++) {
        s->level_candidates[d] += s->level_candidates[d - 1];
        s->frontier = max(s->frontier, s->level_rows[d]);
        s->evaluated += s->level_rows[d];
    }
    s->candidates = s->level_candidates[s->levels];
    s->nodes = o->nodes > 0 ? 1 + o->nodes : s->candidates <= MAX_NODES ? s->candidates : MAX_NODES + 1;
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

bool tree_options_check(const struct tree_options *o, const char *what, struct error *err)
{
    struct tree_shape shape = { .o = *o,
                                .tree.n = 1 }; // the root only; a file's tree is read when the drafter is created
    if (o->tree != NULL && ends_with(o->tree, ".json"))
        return check(&shape, what, err);
    return tree_shape(&shape, o, what, NULL, err);
}

unsigned tree_options_kinds(const struct tree_options *o)
{
    bool chains = o->widths.n > 0 && o->widths.v[0] > 1, tree = o->nodes > 0 || o->tree != NULL;
    for (int d = 1; d < o->widths.n; d++)
        tree = tree || o->widths.v[d] > 1;
    unsigned shape = tree ? TAKES_TREES : chains ? TAKES_CHAINS : 0;
    shape |= o->temperature > 0 ? OWN_TEMPERATURE : 0;
    if (o->pick != PICK_SAMPLED)
        return shape | TAKES_DETERMINISTIC | (o->pick == PICK_COUPLED ? SHARES_RANDOMNESS : 0);
    return shape | (shape != 0 && o->distinct ? TAKES_WITHOUT_REPLACEMENT : TAKES_SAMPLED);
}

struct families families_of(const struct tree_shape *s)
{
    const struct tree *t = &s->tree;
    const int n = t->n > 0 ? t->n : s->levels + 1;
    const size_t capacity = (size_t)(t->n > 0 ? t->n : s->levels * s->max_children);
    int16_t *first = xcalloc((size_t)n + 1, sizeof(*first));
    int16_t *rank = xcalloc(capacity, sizeof(*rank)), *child = xcalloc(capacity, sizeof(*child));
    int members = 0;
    for (int family = 0; family < n; family++) {
        for (int r = 0; t->n == 0 && family < s->levels && r < width_at(s, family); r++, members++)
            rank[members] = (int16_t)r, child[members] = (int16_t)(family + 1);
        for (int node = 1; node < t->n; node++)
            if (t->node[node].parent == family)
                rank[members] = t->node[node].rank, child[members++] = (int16_t)node;
        first[family + 1] = (int16_t)members;
    }
    return (struct families){ n, first, rank, child };
}

void families_free(struct families *f)
{
    free((void *)f->first);
    free((void *)f->rank);
    free((void *)f->child);
}

void builder_create(struct tree_builder *g, const struct tree_shape *shape, int vocab)
{
    size_t capacity = (size_t)shape->candidates;
    *g = (struct tree_builder){
        .shape = shape, .families = families_of(shape), .vocab = vocab, .capacity = (int)capacity
    };
    g->at = xcalloc(capacity, sizeof(*g->at));
    g->frontier = xcalloc(capacity, sizeof(*g->frontier));
    g->order = xcalloc(capacity, sizeof(*g->order));
    g->weight = xcalloc((size_t)vocab, sizeof(*g->weight));
}

void builder_destroy(struct tree_builder *g)
{
    families_free(&g->families);
    free(g->at);
    free(g->frontier);
    free(g->order);
    free(g->weight);
    *g = (struct tree_builder){ 0 };
}

int tree_shape_depth(const struct tree_shape *s, const struct request *r)
{
    const int levels = s->levels < r->depth ? s->levels : r->depth;
    int d = 0;
    if (r->forced != NULL)
        return levels < r->forced->n ? levels : r->forced->n;
    while (d < levels && (s->o.nodes > 0 || s->level_candidates[d + 1] <= r->draft->capacity))
        d++;
    return d;
}

void builder_begin(struct tree_builder *g, const struct request *r)
{
    g->n = g->level = 1;
    g->forced = r->forced != NULL;
    g->at[0] = candidate_root(r->draft->token[0]);
    g->frontier[0] = 0;
    g->n_frontier = tree_shape_depth(g->shape, r) > 0 ? 1 : 0;
}

int builder_top_k(const struct tree_builder *g, int c)
{
    if (g->forced)
        return g->at[c].depth < g->shape->levels ? 1 : 0;
    return family_top_k(&g->families, g->at[c].family, g->vocab);
}

static void add(struct tree_builder *g, struct candidate c)
{
    assert(g->n < g->capacity);
    g->at[g->n++] = c;
}

void builder_sample_children(struct tree_builder *g, int c, const float *row, const struct request *r)
{
    const struct tree_options *o = &g->shape->o;
    const int wanted = builder_top_k(g, c), root = r->n - 1, first = g->families.first[g->at[c].family];
    const bool distinct = siblings_differ(o->distinct, wanted);
    int positive = 0;
    assert(o->pick != PICK_GREEDY);
    for (int i = 0; distinct && i < g->vocab; i++)
        g->weight[i] = (double)row[i];
    for (int i = 0; distinct && positive < wanted && i < g->vocab; i++)
        positive += row[i] > 0;
    for (int k = 0, n = children_sampled(o->distinct, wanted, positive); k < n; k++) {
        const int32_t position = coupled_position(root, g->at[c].depth);
        const struct address at = o->pick == PICK_COUPLED ? (struct address){ FOR_TOKEN, position, 0 }
                                                          : (struct address){ FOR_DRAFT, root, g->n };
        const int x = distinct ? r->rng->pick(r->rng, g->weight, g->vocab, at)
                               : rng_pick_row(r->rng, row, g->vocab, at, g->weight);
        add(g, sampled_child(g->at, c, g->families.child[first + k], x, (enum pick)o->pick, o->distinct, wanted));
        if (r->least > 0)
            g->at[g->n - 1].score = g->at[c].score + log((double)row[x]);
        if (distinct)
            g->weight[x] = 0;
    }
}

void builder_add_top_k(struct tree_builder *g, int c, const int32_t *token, const float *log_p, int k, int used_vocab)
{
    const struct families *f = &g->families;
    const int family = g->at[c].family;
    assert(g->shape->o.pick == PICK_GREEDY);
    for (int m = f->first[family], i = 0, rank = 0; m < f->first[family + 1]; m++, i++) {
        i = top_k_index(token, k, used_vocab, i, f->rank[m] - rank);
        if (i == k)
            return;
        rank = f->rank[m] + 1;
        add(g, greedy_child(g->at, c, f->child[m], token[i], log_p[i]));
    }
}

void builder_add_forced(struct tree_builder *g, int c, int32_t token)
{
    assert(g->forced);
    add(g, candidate_child(g->at, c, 0, token, DETERMINISTIC, 0));
}

// Moves the m best of candidates order[0..n) to the front.
static void best_first(const struct tree_builder *g, int *order, int n, int m)
{
    for (int i = 0; i < m && i < n; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++)
            if (outranks(g->at[order[j]].score, order[j], g->at[order[best]].score, order[best]))
                best = j;
        const int chosen = order[best];
        memmove(order + i + 1, order + i, (size_t)(best - i) * sizeof(*order));
        order[i] = chosen;
    }
}

bool builder_next_level(struct tree_builder *g, const struct request *r)
{
    const struct tree_options *o = &g->shape->o;
    const int depth = g->at[g->frontier[0]].depth + 1;
    int n = 0;
    if (depth < tree_shape_depth(g->shape, r))
        for (int c = g->level; c < g->n; c++)
            if (builder_top_k(g, c) > 0 && (r->least <= 0 || g->at[c].score >= log(r->least)))
                g->frontier[n++] = c;
    g->level = g->n;
    g->n_frontier = frontier_size(o->nodes, o->top, n);
    if (g->n_frontier < n)
        best_first(g, g->frontier, n, g->n_frontier);
    return n > 0;
}

void builder_finish(struct tree_builder *g, struct draft *d)
{
    const int n = g->n - 1, keep = nodes_kept(g->shape->o.nodes, d->capacity, n);
    for (int i = 0; i < n; i++)
        g->order[i] = i + 1;
    if (keep < n)
        best_first(g, g->order, n, keep);
    for (int i = 0; i < keep; i++)
        g->at[g->order[i]].node = 0; // it will become a node
    for (int c = 1; c <= n; c++)
        if (g->at[c].node == 0) {
            g->at[c].node = draft_add(d, g->at[g->at[c].parent].node, g->at[c].token, (enum proposal)g->at[c].proposal);
            assert(g->at[c].node > 0);
        }
}
