// host_drafts.c - builds drafts on the host: each level waits for its rows of logits.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/device_step/device_step.h"
#include "drafters/trees/draft_batch.h"
#include "drafters/trees/drafts.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/sampling.h"

struct slot_draft {
    struct rows q; // must be first; q of the slot's last draft
    struct tree_builder builder;
    float **
        after; // (candidates) if tokens are sampled: the row from which each one's children were sampled (target_vocab)
};

struct host_drafts {
    struct drafts drafts;    // must be first
    struct slot_draft *slot; // (slots)
    struct tensor logits;    // (slots * frontier, vocab) logits of the current level on the backend
    struct tensor own;       // the memory of logits; data NULL: it is borrowed
    int32_t *top_k;          // (slots * frontier, k)
    float *top_log_p;
    float *host;   // (vocab) a row in the drafter's ids, before it is mapped to the target's
    int32_t *path; // (length + candidates + 1)
};

static const struct draft_batch *batch_of(const struct host_drafts *h)
{
    return h->drafts.batch;
}

// ---- creation

static const float *q_row(struct rows *self, int node)
{
    // Shapes that sample are not pruned, so candidates and nodes have the same numbers.
    const struct slot_draft *s = (struct slot_draft *)self;
    assert(s->after[node] != NULL);
    return s->after[node];
}

static void create_slot(const struct draft_batch *g, struct slot_draft *s)
{
    const size_t candidates = (size_t)g->shape.candidates;
    const size_t width = (size_t)(g->vocab > g->target_vocab ? g->vocab : g->target_vocab);
    s->q = (struct rows){ g->target_vocab, q_row };
    builder_create(&s->builder, &g->shape, g->child_vocab);
    s->after = xcalloc(candidates, sizeof(*s->after));
    for (size_t c = 0; c < candidates && g->shape.o.pick != PICK_GREEDY; c++) // not touched before it is needed
        s->after[c] = xcalloc(width, sizeof(float));
}

float *host_drafts_row(struct drafts *d, int slot, int candidate)
{
    return ((struct host_drafts *)d)->slot[slot].after[candidate];
}

static void host_destroy(struct drafts *d)
{
    struct host_drafts *h = (struct host_drafts *)d;
    const struct draft_batch *g = d->batch;
    for (int s = 0; s < g->env.slots; s++) {
        for (int c = 0; c < g->shape.candidates; c++)
            free(h->slot[s].after[c]);
        free(h->slot[s].after);
        builder_destroy(&h->slot[s].builder);
    }
    g->env.backend->release(g->env.backend, h->own.data);
    free(h->slot);
    free(h->top_k);
    free(h->top_log_p);
    free(h->host);
    free(h->path);
    free(h);
}

// ---- a draft

static struct drafts *host_begin(struct drafts *d, const struct request *r, int n, struct request *active, int *m)
{
    struct host_drafts *h = (struct host_drafts *)d;
    *m = 0;
    for (int i = 0; i < n; i++) {
        struct slot_draft *s = &h->slot[r[i].slot];
        builder_begin(&s->builder, &r[i]);
        if (s->builder.n_frontier > 0)
            active[(*m)++] = r[i];
    }
    return d;
}

static struct tensor host_logits(struct drafts *d, int rows)
{
    struct host_drafts *h = (struct host_drafts *)d;
    h->logits.rows = rows;
    return h->logits;
}

static void download_row(struct host_drafts *h, float *to, int row)
{
    struct backend *b = batch_of(h)->env.backend;
    b->download(b, to, tensor_rows(h->logits, row, 1).data, (size_t)batch_of(h)->vocab * sizeof(float));
}

// Downloads a row of the drafter's logits as a row of the target's: tokens without an id of the drafter are impossible.
static void download_mapped(struct host_drafts *h, float *to, int row)
{
    const struct draft_batch *g = batch_of(h);
    download_row(h, g->target_id != NULL ? h->host : to, row);
    if (g->target_id == NULL)
        return;
    for (int x = 0; x < g->target_vocab; x++)
        to[x] = -INFINITY;
    for (int x = 0; x < g->vocab; x++)
        to[g->target_id[x]] = h->host[x];
}

// Returns whether the backend makes probabilities of all rows at once. Several candidates may share a row.
static bool made_by_backend(const struct draft_batch *g, const struct request *r)
{
    return g->staged && g->target_id == NULL && r->forced == NULL && g->shape.o.pick != PICK_GREEDY;
}

// Returns the probabilities after candidate c, by the stages of the target's rows. They are kept as row c of q.
static const float *row_after(struct host_drafts *h, struct slot_draft *s, int c, int row, const struct request *r)
{
    const struct draft_batch *g = batch_of(h);
    const int depth = s->builder.at[c].depth;
    download_mapped(h, s->after[c], row);
    if (made_by_backend(g, r))
        return s->after[c];
    memcpy(h->path, r->token, (size_t)r->n * sizeof(int32_t));
    for (int at = c, i = r->n + depth - 1; at > 0; at = s->builder.at[at].parent, i--)
        h->path[i] = s->builder.at[at].token;
    struct path before = { r->n + depth, h->path, r->prompt };
    sampling_row(g->env.sampling, s->after[c], g->target_id != NULL ? g->target_vocab : g->vocab, g->used_vocab,
                 &before);
    return s->after[c];
}

static int32_t id_of(const struct draft_batch *g, int x)
{
    return g->target_id != NULL ? g->target_id[x] : x;
}

// Returns the probability of the most probable token in the current row of logits.
static float confidence_of(const struct host_drafts *h)
{
    const struct draft_batch *g = batch_of(h);
    float best = -INFINITY;
    double sum = 0;
    for (int x = 0; x < g->vocab; x++)
        best = id_of(g, x) < g->used_vocab && h->host[x] > best ? h->host[x] : best;
    for (int x = 0; x < g->vocab; x++)
        sum += id_of(g, x) < g->used_vocab ? exp((double)h->host[x] - (double)best) : 0;
    return (float)(1 / sum);
}

// Records how many tokens the drafter ranks above the text's own, and continues from the latter.
static void force(struct host_drafts *h, struct slot_draft *s, int row, const struct request *r)
{
    const struct draft_batch *g = batch_of(h);
    const int c = s->builder.frontier[0], depth = s->builder.at[c].depth;
    const int32_t token = r->forced->token[depth];
    int above = 0, x = 0;
    download_row(h, h->host, row);
    while (x < g->vocab && id_of(g, x) != token)
        x++;
    for (int i = 0; x < g->vocab && i < g->vocab; i++)
        if (id_of(g, i) < g->used_vocab)
            above += h->host[i] > h->host[x] || (h->host[i] == h->host[x] && i < x);
    r->forced->rank[depth] = x < g->vocab ? above : g->target_vocab;
    if (r->forced->confidence != NULL)
        r->forced->confidence[depth] = confidence_of(h);
    builder_add_forced(&s->builder, c, token);
}

static void map_to_target(struct host_drafts *h, int rows)
{
    const struct draft_batch *g = batch_of(h);
    for (int i = 0; g->target_id != NULL && i < rows * g->k; i++)
        h->top_k[i] = g->target_id[h->top_k[i]];
}

static bool host_children(struct drafts *d, const struct request *r, int n, const int *first, int stride,
                          struct error *err)
{
    struct host_drafts *h = (struct host_drafts *)d;
    const struct draft_batch *g = d->batch;
    struct backend *b = g->env.backend;
    const bool greedy = g->shape.o.pick == PICK_GREEDY;
    if (greedy)
        b->best(b, h->logits, g->k, h->top_k, h->top_log_p);
    if (made_by_backend(g, r))
        b->step->probabilities(b, h->logits, g->used_vocab, &g->stages, NULL);
    if (!b->sync(b, err))
        return false;
    if (greedy)
        map_to_target(h, (int)h->logits.rows);
    for (int i = 0; i < n; i++) {
        struct slot_draft *s = &h->slot[r[i].slot];
        for (int f = 0; f < s->builder.n_frontier; f++) {
            const int c = s->builder.frontier[f], row = first[i] + f * stride;
            if (g->declined != NULL && g->declined[row])
                continue;
            if (s->builder.forced)
                force(h, s, row, &r[i]);
            else if (greedy)
                builder_add_top_k(&s->builder, c, h->top_k + (size_t)row * (size_t)g->k,
                                  h->top_log_p + (size_t)row * (size_t)g->k, g->k, g->used_vocab);
            else
                builder_sample_children(&s->builder, c, row_after(h, s, c, row, &r[i]), &r[i]);
        }
    }
    return true;
}

static int host_next_level(struct drafts *d, const struct request *r, int n)
{
    struct host_drafts *h = (struct host_drafts *)d;
    int wanted = 0;
    for (int i = 0; i < n; i++) {
        struct tree_builder *builder = &h->slot[r[i].slot].builder;
        if (builder->n_frontier > 0 && builder_next_level(builder, &r[i]))
            wanted += builder->n_frontier;
    }
    return wanted;
}

static struct pass host_rows(struct drafts *d, const struct request *r, int n, const struct kv_cache *cache, int *first,
                             int32_t *token, int32_t *slot, int32_t *parent)
{
    struct host_drafts *h = (struct host_drafts *)d;
    int rows = 0;
    for (int i = 0; i < n; i++) {
        struct slot_draft *s = &h->slot[r[i].slot];
        const int pending = kv_pending(cache, r[i].slot);
        first[i] = rows;
        for (int f = 0; f < s->builder.n_frontier; f++, rows++) {
            struct candidate *c = &s->builder.at[s->builder.frontier[f]];
            token[rows] = c->token;
            slot[rows] = r[i].slot;
            parent[rows] = s->builder.at[c->parent].row;
            c->row = pending + f;
        }
    }
    return (struct pass){ .n = rows, .token = token, .slot = slot, .parent = parent };
}

int host_drafts_paths(struct drafts *d, const struct request *r, int n, int *first, struct draft_path *to,
                      int32_t *token)
{
    const struct host_drafts *h = (const struct host_drafts *)d;
    int rows = 0;
    for (int i = 0; i < n; i++) {
        const struct tree_builder *b = &h->slot[r[i].slot].builder;
        first[i] = rows;
        for (int f = 0; f < b->n_frontier; f++, rows++) {
            const int depth = b->at[b->frontier[f]].depth;
            for (int at = b->frontier[f], k = depth; k >= 0; at = b->at[at].parent, k--)
                token[k] = b->at[at].token;
            to[rows] = (struct draft_path){ r[i].slot, depth + 1, token };
            token += depth + 1;
        }
    }
    return rows;
}

static void host_end(struct drafts *d, const struct request *r, int n)
{
    struct host_drafts *h = (struct host_drafts *)d;
    for (int i = 0; i < n; i++) {
        struct slot_draft *s = &h->slot[r[i].slot];
        r[i].draft->q = &s->q;
        builder_finish(&s->builder, r[i].draft);
    }
}

static int host_row(const struct drafts *d, int slot, int node)
{
    const struct slot_draft *s = &((const struct host_drafts *)d)->slot[slot];
    int c = 1;
    while (s->builder.at[c].node != node)
        c++;
    return s->builder.at[c].row;
}

static const struct drafts table = {
    .begin = host_begin,
    .logits = host_logits,
    .children = host_children,
    .next_level = host_next_level,
    .rows = host_rows,
    .end = host_end,
    .row = host_row,
    .destroy = host_destroy,
};

struct drafts *host_drafts_create(const struct draft_batch *g, struct tensor logits)
{
    const size_t slots = (size_t)g->env.slots, frontier = (size_t)g->shape.frontier * slots;
    struct tensor own = { 0 };
    if (logits.data == NULL) {
        logits = own = rows_on(g->env.backend, (int64_t)frontier, g->vocab);
        if (own.data == NULL)
            return NULL;
    }
    struct host_drafts *h = xcalloc(1, sizeof(*h));
    h->drafts = table;
    h->drafts.batch = g;
    h->logits = logits;
    h->own = own;
    h->drafts.bytes = own.data != NULL ? tensor_bytes(own) : 0;
    if (g->shape.o.pick != PICK_GREEDY)
        h->drafts.host_bytes = slots * (size_t)g->shape.candidates * (size_t)g->target_vocab * sizeof(float);
    h->slot = xcalloc(slots, sizeof(*h->slot));
    for (size_t s = 0; s < slots; s++)
        create_slot(g, &h->slot[s]);
    h->top_k = xcalloc(frontier * (size_t)g->k, sizeof(int32_t));
    h->top_log_p = xcalloc(frontier * (size_t)g->k, sizeof(float));
    h->host = xcalloc((size_t)g->vocab, sizeof(float));
    h->path = xcalloc((size_t)g->env.length + (size_t)g->shape.candidates + 1, sizeof(int32_t));
    return &h->drafts;
}
