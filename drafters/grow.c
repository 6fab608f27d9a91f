#include "drafters/grow.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "sampling/rng.h"

static int levels(const struct grow_options *o)
{
    return o->widths.n > 0 ? o->widths.n : o->tokens;
}

static int width(const struct grow_options *o, int depth)
{
    return o->widths.n > 0 ? o->widths.v[depth] : 1;
}

bool grow_check(const struct grow_options *o, const char *what, struct error *err)
{
    if (o->nodes > 0 && o->widths.n > 0)
        return fail(err, "%s: widths and nodes are two different trees; give one of them", what);
    if (o->nodes > 0 && o->pick != PICK_LIKELIEST)
        return fail(
            err,
            "%s: a best-first tree (nodes: %d) keeps the likeliest candidates: it needs pick: likeliest, as pruning "
            "what was drawn would bias the text",
            what, o->nodes);
    if (o->pick == PICK_COUPLED && o->widths.n > 0)
        return fail(err, "%s: pick: coupled has one token for each place; widths do not go with it", what);
    if (grow_nodes(o) > MAX_NODES)
        return fail(err, "%s: a draft of %d nodes; at most %d fit", what, grow_nodes(o), MAX_NODES);
    return true;
}

int grow_nodes(const struct grow_options *o)
{
    int64_t n = 1, level = 1;
    if (o->nodes > 0)
        return 1 + o->nodes;
    for (int d = 0; d < levels(o) && n <= MAX_NODES; d++) {
        level *= width(o, d);
        n += level;
    }
    return n > MAX_NODES ? MAX_NODES + 1 : (int)n;
}

int grow_frontier(const struct grow_options *o)
{
    int widest = 1;
    if (o->nodes > 0)
        return o->top;
    for (int d = 0, level = 1; d + 1 < levels(o); d++) {
        level *= width(o, d);
        widest = level > widest ? level : widest;
    }
    return widest;
}

int grow_candidates(const struct grow_options *o)
{
    return o->nodes > 0 ? 1 + o->top + (o->tokens - 1) * o->top * o->top : grow_nodes(o);
}

int grow_asked(const struct grow_options *o)
{
    int asked = 0;
    if (o->nodes > 0)
        return (o->tokens - 1) * o->top;
    for (int d = 0, level = 1; d + 1 < levels(o); d++) {
        level *= width(o, d);
        asked += level;
    }
    return asked;
}

unsigned grow_makes(const struct grow_options *o)
{
    bool chains = o->widths.n > 0 && o->widths.v[0] > 1, tree = o->nodes > 0;
    for (int d = 1; d < o->widths.n; d++)
        tree = tree || o->widths.v[d] > 1;
    unsigned shape = tree ? TAKES_TREES : chains ? TAKES_CHAINS : 0;
    if (o->pick != PICK_DRAWN)
        return shape | TAKES_CHOSEN | (o->pick == PICK_COUPLED ? SHARES_CHANCE : 0);
    return shape | (shape != 0 && o->distinct ? TAKES_DISTINCT : TAKES_DRAWN);
}

void grower_create(struct grower *g, const struct grow_options *o, int vocab)
{
    size_t room = (size_t)grow_candidates(o);
    *g = (struct grower){ .o = *o, .vocab = vocab, .room = (int)room };
    g->at = xcalloc(room, sizeof(*g->at));
    g->frontier = xcalloc(room, sizeof(*g->frontier));
    g->order = xcalloc(room, sizeof(*g->order));
    g->weight = xcalloc((size_t)vocab, sizeof(*g->weight));
}

void grower_destroy(struct grower *g)
{
    free(g->at);
    free(g->frontier);
    free(g->order);
    free(g->weight);
    *g = (struct grower){ 0 };
}

// How deep this draft goes: the shape's levels, as far as guesses can be used, and for shapes that are not
// pruned, as far as the draft has room for whole levels.
static int deepest(const struct grower *g, const struct request *r)
{
    int most = levels(&g->o) < r->depth ? levels(&g->o) : r->depth;
    if (g->o.nodes > 0)
        return most;
    int64_t n = 1, level = 1;
    for (int d = 0; d < most; d++) {
        level *= width(&g->o, d);
        n += level;
        if (n > r->draft->room)
            return d;
    }
    return most;
}

void grow_begin(struct grower *g, const struct request *r)
{
    g->n = 1;
    g->at[0] = (struct candidate){ .parent = -1, .token = r->draft->token[0], .node = 0 };
    g->frontier[0] = 0;
    g->n_frontier = deepest(g, r) > 0 ? 1 : 0;
}

int grow_wanted(const struct grower *g, int c)
{
    int depth = g->at[c].depth;
    if (depth >= levels(&g->o))
        return 0;
    int k = g->o.nodes > 0 ? g->o.top : width(&g->o, depth);
    return k < g->vocab ? k : g->vocab;
}

static void add(struct grower *g, int parent, int32_t token, enum drawn how, double score)
{
    assert(g->n < g->room);
    g->at[g->n++] = (struct candidate){ parent, g->at[parent].depth + 1, token, (uint8_t)how, score, -1 };
}

static bool any(const double *w, int n)
{
    for (int i = 0; i < n; i++)
        if (w[i] > 0)
            return true;
    return false;
}

void grow_children(struct grower *g, int c, const float *row, const struct request *r)
{
    const int wanted = grow_wanted(g, c), root = r->n - 1;
    // An only child is drawn from the row as it is, whatever is said of siblings.
    const bool distinct = g->o.distinct && wanted > 1;
    assert(g->o.pick != PICK_LIKELIEST);
    for (int i = 0; distinct && i < g->vocab; i++)
        g->weight[i] = (double)row[i];
    for (int k = 0; k < wanted && (!distinct || any(g->weight, g->vocab)); k++) {
        // A token's own place decides a coupled draw, as it decides the target's under `match`.
        struct address at = g->o.pick == PICK_COUPLED ? (struct address){ FOR_TOKEN, root + g->at[c].depth + 1, 0 }
                                                      : (struct address){ FOR_DRAFT, root, g->n };
        int x = distinct ? r->rng->pick(r->rng, g->weight, g->vocab, at)
                         : rng_pick_row(r->rng, row, g->vocab, at, g->weight);
        add(g, c, x, g->o.pick != PICK_DRAWN ? CHOSEN : distinct ? DRAWN_DISTINCT : DRAWN, 0);
        if (distinct)
            g->weight[x] = 0;
    }
}

void grow_likeliest(struct grower *g, int c, const int32_t *token, const float *log_p, int k, int live)
{
    assert(g->o.pick == PICK_LIKELIEST);
    for (int i = 0, left = grow_wanted(g, c); i < k && left > 0; i++)
        if (token[i] < live) {
            add(g, c, token[i], CHOSEN, g->at[c].score + (double)(log_p[i] < 0 ? log_p[i] : 0));
            left--;
        }
}

// The m best of candidates order[0..n) by score, the earlier one among equals (so that no child outranks its parent),
// moved to the front.
static void best_first(const struct grower *g, int *order, int n, int m)
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

bool grow_level(struct grower *g, const struct request *r)
{
    int depth = g->at[g->frontier[0]].depth + 1, n = 0, first = g->n;
    while (first > 1 && g->at[first - 1].depth == depth)
        first--;
    if (depth < deepest(g, r))
        for (int c = first; c < g->n; c++)
            g->frontier[n++] = c;
    if (g->o.nodes > 0 && n > g->o.top) {
        best_first(g, g->frontier, n, g->o.top);
        n = g->o.top;
    }
    g->n_frontier = n;
    return n > 0;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

void grow_end(struct grower *g, struct draft *d)
{
    int n = g->n - 1;
    for (int i = 0; i < n; i++)
        g->order[i] = i + 1;
    if (g->o.nodes > 0) {
        int keep = g->o.nodes < d->room - 1 ? g->o.nodes : d->room - 1;
        keep = keep < n ? keep : n;
        best_first(g, g->order, n, keep);
        qsort(g->order, (size_t)keep, sizeof(*g->order), ascending);
        n = keep;
    }
    for (int i = 0; i < n; i++) {
        struct candidate *c = &g->at[g->order[i]];
        c->node = draft_add(d, g->at[c->parent].node, c->token, (enum drawn)c->drawn);
        assert(c->node > 0);
    }
}
