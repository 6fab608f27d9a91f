// device_drafts.c - builds drafts in the device's memory (kernels/device_step/drafting.h). The host queues everything
// and reads nothing; it counts each level's rows at their maximum. The host's implementation builds the drafts of
// requests that the device cannot build: forced drafts, those that end by probability, and those with random sources
// other than Philox.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/device_step/device_step.h"
#include "kernels/device_step/drafting.h"
#include "drafters/trees/draft_batch.h"
#include "drafters/trees/drafts.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/rng.h"

struct device_slot {
    struct rows q; // must be first; q of the slot's last draft, downloaded row by row
    struct device_drafts *drafts;
    int number; // number of the slot
};

struct device_drafts {
    struct drafts drafts; // must be first
    struct drafts *host;
    struct drafting *drafting;
    struct tensor logits, own_logits;   // logits of a level, if they are not where q will be; own: to be released
    struct tensor q;                    // (slots * (1 + evaluated), vocab of the target) if tokens are sampled
    struct part_sum *q_sums;            // (rows of q, ROW_PARTS)
    bool in_place;                      // logits become q in place
    struct device_slot *slot;           // (slots)
    struct device_draft *draft;         // (slots)
    int32_t *tag;                       // (slots, nodes) the pending row of each node of verified drafts
    bool *downloaded;                   // (slots, nodes) rows of q that the host has
    struct drafting_request *request;   // (slots) the current drafts
    int requests;                       // number of current drafts
    struct device_rows *rows;           // (slots) rows of a pass
    int32_t *first;                     // current level: depth, first pending row, first row of q, number of rows
    int depth, pending, q_rows, n_rows; // current level: depth, first pending row, first row of q, number of
                                        // rows
};

static struct device_drafts *self_of(const struct drafts *d)
{
    return (struct device_drafts *)d;
}

static struct backend *backend_of(const struct drafts *d)
{
    return d->batch->env.backend;
}

// ---- creation

static bool can_build(const struct draft_batch *g)
{
    const struct backend *b = g->env.backend;
    const struct tree_shape *s = &g->shape;
    return b->step != NULL && b == g->env.target_backend && s->candidates <= DRAFTING_CANDIDATES &&
           s->frontier <= DRAFTING_FRONTIER && (s->o.pick == PICK_GREEDY || g->staged);
}

static struct drafting *create_drafting(const struct draft_batch *g)
{
    const struct tree_shape *s = &g->shape;
    struct families f = families_of(s);
    const struct drafting_shape shape = { .pick = (enum pick)s->o.pick,
                                          .distinct = s->o.distinct,
                                          .families = f,
                                          .nodes = s->o.nodes,
                                          .top = s->o.top,
                                          .vocab = g->child_vocab,
                                          .used_vocab = g->used_vocab,
                                          .k = g->k,
                                          .row_vocab = g->vocab,
                                          .target_id = g->target_id,
                                          .slots = g->env.slots,
                                          .candidates = s->candidates,
                                          .frontier = s->frontier,
                                          .evaluated = s->evaluated,
                                          .draft_nodes = s->nodes };
    struct drafting *to = g->env.backend->step->drafts_create(g->env.backend, &shape);
    families_free(&f);
    return to;
}

static const float *q_row(struct rows *self, int node)
{
    const struct device_slot *s = (struct device_slot *)self;
    struct device_drafts *t = s->drafts;
    const struct draft_batch *g = t->drafts.batch;
    struct backend *b = g->env.backend;
    const size_t at = (size_t)s->number * (size_t)g->shape.nodes + (size_t)node;
    float *to = host_drafts_row(t->host, s->number, node);
    int32_t row = 0; // any row is valid if the device fails
    assert(to != NULL);
    if (t->downloaded[at])
        return to;
    t->downloaded[at] = true;
    b->download(b, &row, t->drafting->q_row + at, sizeof(row));
    assert(row >= 0 && row < t->q_rows);
    b->download(b, to, tensor_rows(t->q, row, 1).data, (size_t)g->target_vocab * sizeof(*to));
    return to;
}

static void device_destroy(struct drafts *d)
{
    struct device_drafts *t = self_of(d);
    struct backend *b = backend_of(d);
    if (t->host != NULL)
        t->host->destroy(t->host);
    if (t->drafting != NULL)
        b->step->drafts_destroy(b, t->drafting);
    b->release(b, t->q.data);
    b->release(b, t->q_sums);
    b->release(b, t->own_logits.data);
    free(t->slot);
    free(t->draft);
    free(t->tag);
    free(t->downloaded);
    free(t->request);
    free(t->rows);
    free(t->first);
    free(t);
}

// Allocates on the device. Returns false if memory is exhausted.
static bool allocate(struct device_drafts *t)
{
    const struct draft_batch *g = t->drafts.batch;
    struct backend *b = g->env.backend;
    const int64_t frontier = (int64_t)g->shape.frontier * g->env.slots;
    t->drafting = create_drafting(g);
    if (t->drafting == NULL)
        return false;
    t->drafts.bytes = t->drafting->bytes;
    if (g->shape.o.pick != PICK_GREEDY) {
        t->q = rows_on(b, g->env.slots * (1 + g->shape.evaluated), g->target_vocab);
        t->in_place = g->target_id == NULL && g->vocab == g->target_vocab;
        const size_t sums = (size_t)t->q.rows * ROW_PARTS * sizeof(*t->q_sums);
        t->q_sums = b->alloc(b, sums);
        if (t->q.data == NULL || t->q_sums == NULL)
            return false;
        t->drafts.bytes += tensor_bytes(t->q) + sums;
    }
    if (t->in_place) {
        assert(frontier <= t->q.rows);
        t->logits = tensor_rows(t->q, 0, frontier);
        return true;
    }
    t->logits = t->own_logits = rows_on(b, frontier, g->vocab);
    t->drafts.bytes += tensor_bytes(t->own_logits);
    return t->logits.data != NULL;
}

// ---- a draft

static struct drafts *device_begin(struct drafts *d, const struct request *r, int n, struct request *active, int *m)
{
    struct device_drafts *t = self_of(d);
    struct backend *b = backend_of(d);
    for (int i = 0; i < n; i++)
        if (r[i].forced != NULL || r[i].least > 0 || philox_of(r[i].rng) == NULL)
            return t->host->begin(t->host, r, n, active, m);
    *m = 0;
    for (int i = 0; i < n; i++) {
        const int depth = tree_shape_depth(&d->batch->shape, &r[i]);
        if (depth == 0)
            continue;
        const struct philox *rng = philox_of(r[i].rng);
        active[*m] = r[i];
        t->request[(*m)++] = (struct drafting_request){ .slot = r[i].slot,
                                                        .token = r[i].draft->token[0],
                                                        .max_depth = depth,
                                                        .capacity = r[i].draft->capacity,
                                                        .root = r[i].n - 1,
                                                        .seed = rng->seed,
                                                        .sequence = rng->sequence };
    }
    t->requests = *m;
    t->depth = t->pending = t->q_rows = 0;
    if (*m > 0)
        b->step->drafts_begin(b, t->drafting, t->request, *m);
    return d;
}

static struct tensor device_logits(struct drafts *d, int rows)
{
    struct device_drafts *t = self_of(d);
    t->n_rows = rows;
    return t->in_place ? tensor_rows(t->q, t->q_rows, rows) : tensor_rows(t->logits, 0, rows);
}

// Returns the maximum rows per request at a depth of the current drafts.
static int level_rows(const struct device_drafts *t, int depth)
{
    return t->drafts.batch->shape.level_rows[depth];
}

static int rows_wanted(const struct device_drafts *t, int depth)
{
    int rows = 0;
    for (int i = 0; i < t->requests; i++)
        rows += t->request[i].max_depth > depth ? level_rows(t, depth) : 0;
    return rows;
}

static bool device_children(struct drafts *d, const struct request *r, int n, const int *first, int stride,
                            struct error *err)
{
    struct device_drafts *t = self_of(d);
    struct backend *b = backend_of(d);
    struct drafting_level l = { .depth = t->depth,
                                .width = level_rows(t, t->depth),
                                .logits = device_logits(d, t->n_rows),
                                .first = t->first,
                                .stride = stride,
                                .stages = &d->batch->stages,
                                .used_vocab = d->batch->used_vocab,
                                .pending = t->pending,
                                .capacity = level_rows(t, t->depth + 1),
                                .last = rows_wanted(t, t->depth + 1) == 0 };
    (void)r, (void)n, (void)err;
    for (int i = 0; i < t->requests; i++)
        t->first[i] = first[i];
    if (t->q.data != NULL) {
        l.q = tensor_rows(t->q, t->q_rows, t->n_rows);
        l.q_row = t->q_rows;
        l.q_sums = t->q_sums + (size_t)t->q_rows * ROW_PARTS;
        t->q_rows += t->n_rows;
    }
    b->step->drafts_level(b, t->drafting, &l);
    return true;
}

static int device_next_level(struct drafts *d, const struct request *r, int n)
{
    struct device_drafts *t = self_of(d);
    (void)r, (void)n;
    return rows_wanted(t, ++t->depth);
}

static struct pass device_rows(struct drafts *d, const struct request *r, int n, const struct kv_cache *cache,
                               int *first, int32_t *token, int32_t *slot, int32_t *parent)
{
    struct device_drafts *t = self_of(d);
    const struct tree_shape *shape = &d->batch->shape;
    const int capacity = level_rows(t, t->depth);
    int rows = 0, requests = 0;
    (void)n;
    for (int i = 0; i < t->requests; i++) {
        first[i] = rows;
        if (t->request[i].max_depth <= t->depth)
            continue;
        assert(kv_pending(cache, r[i].slot) == t->pending);
        t->rows[requests++] =
            (struct device_rows){ .first = rows,
                                  .n = capacity,
                                  .token = t->drafting->token + (size_t)r[i].slot * (size_t)shape->frontier,
                                  .parent = t->drafting->parent + (size_t)r[i].slot * (size_t)shape->evaluated };
        for (int f = 0; f < capacity; f++, rows++) {
            token[rows] = 0;
            slot[rows] = r[i].slot;
            parent[rows] = -1;
        }
    }
    t->pending += capacity;
    return (struct pass){
        .n = rows, .token = token, .slot = slot, .parent = parent, .device_rows = t->rows, .n_device_rows = requests
    };
}

static int max_nodes(const struct device_drafts *t, const struct drafting_request *r)
{
    const struct tree_shape *s = &t->drafts.batch->shape;
    return 1 + nodes_kept(s->o.nodes, r->capacity, s->level_candidates[r->max_depth] - 1);
}

static void device_end(struct drafts *d, const struct request *r, int n)
{
    struct device_drafts *t = self_of(d);
    const struct drafting *drafting = t->drafting;
    const struct tree_shape *shape = &d->batch->shape;
    (void)n;
    for (int i = 0; i < t->requests; i++) {
        const size_t at = (size_t)r[i].slot * (size_t)shape->nodes;
        t->draft[r[i].slot] =
            (struct device_draft){ .max_nodes = max_nodes(t, &t->request[i]),
                                   .max_depth = t->request[i].max_depth,
                                   .branches = (tree_options_kinds(&shape->o) & (TAKES_TREES | TAKES_CHAINS)) != 0,
                                   .n = drafting->n + r[i].slot,
                                   .token = drafting->draft_token + at,
                                   .parent = drafting->draft_parent + at,
                                   .proposal = drafting->proposal + at,
                                   .q = t->q,
                                   .q_sums = t->q_sums,
                                   .q_row = drafting->q_row + at,
                                   .tag = drafting->tag + at,
                                   .tag_on_host = t->tag + at };
        r[i].draft->on_device = &t->draft[r[i].slot];
        r[i].draft->q = &t->slot[r[i].slot].q;
        memset(t->downloaded + at, 0, (size_t)shape->nodes);
    }
}

static int device_row(const struct drafts *d, int slot, int node)
{
    return self_of(d)->draft[slot].tag_on_host[node];
}

static const struct drafts table = {
    .on_device = true,
    .begin = device_begin,
    .logits = device_logits,
    .children = device_children,
    .next_level = device_next_level,
    .rows = device_rows,
    .end = device_end,
    .row = device_row,
    .destroy = device_destroy,
};

struct drafts *device_drafts_create(const struct draft_batch *g)
{
    if (!can_build(g))
        return NULL;
    const size_t slots = (size_t)g->env.slots, nodes = slots * (size_t)g->shape.nodes;
    struct device_drafts *t = xcalloc(1, sizeof(*t));
    t->drafts = table;
    t->drafts.batch = g;
    if (!allocate(t)) { // the host builds the drafts instead
        device_destroy(&t->drafts);
        return NULL;
    }
    t->host = host_drafts_create(g, t->logits);
    t->drafts.host_bytes = t->host->host_bytes;
    t->slot = xcalloc(slots, sizeof(*t->slot));
    for (int s = 0; s < g->env.slots; s++)
        t->slot[s] = (struct device_slot){ { g->target_vocab, q_row }, t, s };
    t->draft = xcalloc(slots, sizeof(*t->draft));
    t->tag = xcalloc(nodes, sizeof(*t->tag));
    t->downloaded = xcalloc(nodes, sizeof(*t->downloaded));
    t->request = xcalloc(slots, sizeof(*t->request));
    t->rows = xcalloc(slots, sizeof(*t->rows));
    t->first = xcalloc(slots, sizeof(*t->first));
    return &t->drafts;
}
