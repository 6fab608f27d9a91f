#include "drafters/device_drafts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_drafting.h"
#include "core/memory.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampling/rng.h"

// ---- shapes

struct families {
    int16_t *first, *rank, *child;
    int n, members;
};

static void add_member(struct families *f, int rank, int child)
{
    f->rank[f->members] = (int16_t)rank;
    f->child[f->members++] = (int16_t)child;
}

// A level is a family; of a fixed tree each node is one.
static struct families families_of(const struct tree_shape *s)
{
    const int levels = tree_shape_levels(s), tree = s->tree.n;
    struct families f = { .n = tree > 0 ? tree : levels + 1 };
    const size_t most = (size_t)(tree > 0 ? tree : levels * s->widest);
    f.first = xcalloc((size_t)f.n + 1, sizeof(*f.first));
    f.rank = xcalloc(most, sizeof(*f.rank));
    f.child = xcalloc(most, sizeof(*f.child));
    for (int family = 0; family < f.n; family++) {
        for (int rank = 0; tree == 0 && family < levels && rank < tree_shape_width(s, family); rank++)
            add_member(&f, rank, family + 1);
        for (int node = 1; node < tree; node++)
            if (s->tree.node[node].parent == family)
                add_member(&f, s->tree.node[node].rank, node);
        f.first[family + 1] = (int16_t)f.members;
    }
    return f;
}

// What a request's levels come to at most: rows that are wanted at each depth, and nodes down to it.
static void measure(const struct tree_shape *s, int *capacity, int *nodes)
{
    const int levels = tree_shape_levels(s);
    int level = 1;
    capacity[0] = nodes[0] = 1;
    for (int d = 1; d <= levels; d++) {
        capacity[d] = 0;
        nodes[d] = nodes[d - 1];
        if (s->tree.n > 0) {
            for (int node = 1; node < s->tree.n; node++)
                if (s->tree.node[node].depth == d) {
                    nodes[d]++;
                    capacity[d] += tree_children(&s->tree, node) > 0;
                }
            continue;
        }
        level *= tree_shape_width(s, d - 1);
        nodes[d] += level;
        if (s->o.nodes > 0 && level > s->o.top)
            level = s->o.top;
        capacity[d] = d < levels ? level : 0;
    }
}

static bool can(const struct draft_batch *g)
{
    const struct backend *b = g->env.backend;
    const struct tree_shape *s = &g->shape;
    return b->drafts_create != NULL && b == g->env.target_backend && s->candidates <= DRAFTING_CANDIDATES &&
           s->frontier <= DRAFTING_FRONTIER && (s->o.pick == PICK_GREEDY || g->staged);
}

// ---- life

static struct drafting *create_built(struct draft_batch *g)
{
    const struct tree_shape *s = &g->shape;
    struct families f = families_of(s);
    const struct drafting_shape shape = { .pick = (enum pick)s->o.pick,
                                          .distinct = s->o.distinct,
                                          .families = f.n,
                                          .first = f.first,
                                          .rank = f.rank,
                                          .child = f.child,
                                          .nodes = s->o.nodes,
                                          .top = s->o.top,
                                          .vocab = g->slot[0].tree_builder.vocab,
                                          .used_vocab = g->used_vocab,
                                          .k = g->k,
                                          .row_vocab = g->vocab,
                                          .target_id = g->target_id,
                                          .slots = g->env.slots,
                                          .candidates = s->candidates,
                                          .frontier = s->frontier,
                                          .asked = s->asked,
                                          .draft_nodes = s->nodes };
    struct drafting *to = g->env.backend->drafts_create(g->env.backend, &shape);
    free(f.first);
    free(f.rank);
    free(f.child);
    return to;
}

void device_drafts_create(struct draft_batch *g)
{
    if (!can(g))
        return;
    const size_t slots = (size_t)g->env.slots, levels = (size_t)tree_shape_levels(&g->shape) + 1;
    struct device_drafts *t = g->there = xcalloc(1, sizeof(*t));
    t->request = xcalloc(slots, sizeof(*t->request));
    t->draft = xcalloc(slots, sizeof(*t->draft));
    t->tag = xcalloc(slots * (size_t)g->shape.nodes, sizeof(*t->tag));
    t->brought = xcalloc(slots * (size_t)g->shape.nodes, sizeof(*t->brought));
    t->rows = xcalloc(slots, sizeof(*t->rows));
    t->parents = xcalloc(slots, sizeof(*t->parents));
    t->first = xcalloc(slots, sizeof(*t->first));
    t->capacity = xcalloc(levels, sizeof(*t->capacity));
    t->nodes = xcalloc(levels, sizeof(*t->nodes));
    measure(&g->shape, t->capacity, t->nodes);
    t->drafting = create_built(g);
    bool ok = t->drafting != NULL;
    if (ok && g->shape.o.pick != PICK_GREEDY) {
        t->q = rows_on(g->env.backend, g->env.slots * (1 + g->shape.asked), g->target_vocab);
        t->in_place = g->target_id == NULL && g->vocab == g->target_vocab;
        ok = t->q.data != NULL;
    }
    if (!ok) // then they grow on the host
        device_drafts_destroy(g);
}

void device_drafts_destroy(struct draft_batch *g)
{
    struct device_drafts *t = g->there;
    if (t == NULL)
        return;
    if (t->drafting != NULL)
        g->env.backend->drafts_destroy(g->env.backend, t->drafting);
    g->env.backend->release(g->env.backend, t->q.data);
    free(t->request);
    free(t->draft);
    free(t->tag);
    free(t->brought);
    free(t->rows);
    free(t->parents);
    free(t->first);
    free(t->capacity);
    free(t->nodes);
    free(t);
    g->there = NULL;
}

size_t device_drafts_bytes(const struct draft_batch *g)
{
    const struct device_drafts *t = g->there;
    return t != NULL ? t->drafting->bytes + (t->q.data != NULL ? tensor_bytes(t->q) : 0) : 0;
}

struct tensor device_drafts_workspace(const struct draft_batch *g, int rows)
{
    const struct device_drafts *t = g->there;
    if (t == NULL || !t->in_place)
        return (struct tensor){ 0 };
    assert(rows <= t->q.rows);
    return tensor_rows(t->q, 0, rows);
}

// ---- a draft

bool device_drafts_can(const struct draft_batch *g, const struct request *r, int n)
{
    bool takes = g->there != NULL;
    for (int i = 0; i < n; i++)
        takes = takes && r[i].forced == NULL && philox_of(r[i].rng) != NULL;
    return takes;
}

void device_drafts_begin(struct draft_batch *g, const struct request *r, int n)
{
    struct device_drafts *t = g->there;
    for (int i = 0; i < n; i++) {
        const struct philox *chance = philox_of(r[i].rng);
        t->request[i] = (struct drafting_request){ .slot = r[i].slot,
                                                   .token = r[i].draft->token[0],
                                                   .max_depth = tree_shape_depth(&g->shape, &r[i]),
                                                   .capacity = r[i].draft->capacity,
                                                   .root = r[i].n - 1,
                                                   .seed = chance->seed,
                                                   .sequence = chance->sequence };
    }
    t->requests = n;
    t->depth = t->pending = t->q_rows = 0;
    if (n > 0)
        g->env.backend->drafts_begin(g->env.backend, t->drafting, t->request, n);
}

struct tensor device_drafts_logits(struct draft_batch *g, int rows)
{
    struct device_drafts *t = g->there;
    t->n_rows = rows;
    return t->in_place ? tensor_rows(t->q, t->q_rows, rows) : tensor_rows(g->logits, 0, rows);
}

static int capacity_below(const struct draft_batch *g)
{
    const struct device_drafts *t = g->there;
    return t->depth < tree_shape_levels(&g->shape) ? t->capacity[t->depth + 1] : 0;
}

void device_drafts_children(struct draft_batch *g, const int *first, int stride)
{
    struct device_drafts *t = g->there;
    struct drafting_level l = { .depth = t->depth,
                                .width = t->capacity[t->depth],
                                .first = t->first,
                                .stride = stride,
                                .stages = &g->stages,
                                .used_vocab = g->used_vocab,
                                .pending = t->pending,
                                .capacity = capacity_below(g) };
    for (int i = 0; i < t->requests; i++)
        t->first[i] = first[i];
    l.logits = t->in_place ? tensor_rows(t->q, t->q_rows, t->n_rows) : tensor_rows(g->logits, 0, t->n_rows);
    if (t->q.data != NULL) {
        l.q = tensor_rows(t->q, t->q_rows, t->n_rows);
        l.q_row = t->q_rows;
        t->q_rows += t->n_rows;
    }
    g->env.backend->drafts_level(g->env.backend, t->drafting, &l);
}

int device_drafts_level(struct draft_batch *g)
{
    struct device_drafts *t = g->there;
    const int capacity = capacity_below(g);
    int wanted = 0;
    t->depth++;
    for (int i = 0; i < t->requests; i++)
        wanted += t->request[i].max_depth > t->depth ? capacity : 0;
    return wanted;
}

struct pass device_drafts_rows(struct draft_batch *g, const struct request *r, const struct kv_cache *cache, int *first,
                               int32_t *token, int32_t *slot, int32_t *parent)
{
    struct device_drafts *t = g->there;
    const int capacity = t->capacity[t->depth];
    int rows = 0, n = 0;
    for (int i = 0; i < t->requests; i++) {
        first[i] = rows;
        if (t->request[i].max_depth <= t->depth)
            continue;
        assert(kv_pending(cache, r[i].slot) == t->pending);
        const int32_t *of_slot = t->drafting->parent + (size_t)r[i].slot * (size_t)g->shape.asked;
        t->rows[n] = t->parents[n] = (struct device_rows){ .first = rows, .n = capacity };
        t->rows[n].token = t->drafting->token + (size_t)r[i].slot * (size_t)g->shape.frontier;
        t->rows[n].parent = of_slot;
        t->parents[n++].token = of_slot + t->pending;
        for (int f = 0; f < capacity; f++, rows++) {
            token[rows] = 0;
            slot[rows] = r[i].slot;
            parent[rows] = -1;
        }
    }
    t->pending += capacity;
    t->n_level = n;
    return (
        struct pass){ .n = rows, .token = token, .slot = slot, .parent = parent, .there = t->rows, .n_device_rows = n };
}

int device_drafts_pending(const struct draft_batch *g, int slot, int *n)
{
    const struct device_drafts *t = g->there;
    *n = 0;
    for (int i = 0; i < t->requests; i++)
        if (t->request[i].slot == slot && t->request[i].max_depth > t->depth)
            *n = t->capacity[t->depth];
    return t->pending - *n;
}

// How many nodes a draft can have.
static int most_nodes(const struct draft_batch *g, const struct drafting_request *r)
{
    const int most = g->there->nodes[r->max_depth], kept = 1 + g->shape.o.nodes;
    if (g->shape.o.nodes == 0)
        return most;
    const int fits = kept < r->capacity ? kept : r->capacity;
    return most < fits ? most : fits;
}

void device_drafts_end(struct draft_batch *g, const struct request *r)
{
    struct device_drafts *t = g->there;
    const struct drafting *drafting = t->drafting;
    g->env.backend->drafts_end(g->env.backend, t->drafting);
    for (int i = 0; i < t->requests; i++) {
        const size_t at = (size_t)r[i].slot * (size_t)g->shape.nodes;
        t->draft[r[i].slot] =
            (struct device_draft){ .most = most_nodes(g, &t->request[i]),
                                   .max_depth = t->request[i].max_depth,
                                   .branches = (tree_options_kinds(&g->shape.o) & (TAKES_TREES | TAKES_CHAINS)) != 0,
                                   .n = drafting->n + r[i].slot,
                                   .token = drafting->draft_token + at,
                                   .parent = drafting->draft_parent + at,
                                   .proposal = drafting->proposal + at,
                                   .q = t->q,
                                   .q_row = drafting->q_row + at,
                                   .tag = drafting->tag + at,
                                   .tag_here = t->tag + at };
        r[i].draft->there = &t->draft[r[i].slot];
        memset(t->brought + at, 0, (size_t)g->shape.nodes);
    }
}

void device_drafts_row(const struct draft_batch *g, int slot, int node, float *to)
{
    struct device_drafts *t = g->there;
    struct backend *b = g->env.backend;
    const size_t at = (size_t)slot * (size_t)g->shape.nodes + (size_t)node;
    int32_t row = 0; // of a device that fails, any
    if (t->brought[at])
        return;
    t->brought[at] = true;
    b->download(b, &row, t->drafting->q_row + at, sizeof(row));
    assert(row >= 0 && row < t->q_rows);
    b->download(b, to, tensor_rows(t->q, row, 1).data, (size_t)g->target_vocab * sizeof(*to));
}
