#include "drafters/draft_batch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/device_drafts.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/sampling.h"

static const float *q_row(struct rows *self, int node)
{
    // Shapes that draw are not pruned, so candidates and nodes are numbered alike.
    const struct draft_batch_slot *s = (struct draft_batch_slot *)self;
    assert(s->after[node] != NULL);
    if (s->draft_batch->on_device_now)
        device_drafts_row(s->draft_batch, s->number, node, s->after[node]);
    return s->after[node];
}

static void create_slot(struct draft_batch *g, int number)
{
    struct draft_batch_slot *s = &g->slot[number];
    const size_t candidates = (size_t)g->shape.candidates;
    const int most = g->target_id != NULL || g->vocab > g->target_vocab ? g->target_vocab : g->vocab;
    const size_t width = (size_t)(g->vocab > g->target_vocab ? g->vocab : g->target_vocab);
    s->q = (struct rows){ g->target_vocab, q_row, NULL };
    s->draft_batch = g;
    s->number = number;
    builder_create(&s->tree_builder, &g->shape, most);
    s->row = xcalloc(candidates, sizeof(*s->row));
    s->after = xcalloc(candidates, sizeof(*s->after));
    for (size_t c = 0; c < candidates && g->shape.o.pick != PICK_GREEDY; c++) // not touched before it is needed
        s->after[c] = xcalloc(width, sizeof(float));
}

static int32_t id_of(const struct draft_batch *g, int x)
{
    return g->target_id != NULL ? g->target_id[x] : x;
}

// How many of the likeliest may have to be passed over: ids that are no tokens. Nobody has more of them that are likely.
static int padding(const struct draft_batch *g)
{
    enum { LIKELY = 16 };
    int n = 0;
    for (int x = g->vocab - 1; x >= 0 && n < LIKELY; x--)
        n += id_of(g, x) >= g->used_vocab;
    return n;
}

bool draft_batch_create(struct draft_batch *g, const struct tree_shape *shape, const struct drafter_env *env, int vocab,
                        const int32_t *target_id, int used_vocab, struct error *err)
{
    *g = (struct draft_batch){
        .shape = *shape, .env = *env, .vocab = vocab, .target_id = target_id, .used_vocab = used_vocab
    };
    g->target_vocab = env->target != NULL ? model_shape(env->target)->vocab : vocab;
    const size_t frontier = (size_t)shape->frontier * (size_t)env->slots;
    g->tree = shape->tree.n > 0 ? tree_write(&shape->tree) : NULL;
    g->k = shape->widest + padding(g);
    g->k = g->k < vocab ? g->k : vocab;
    g->slot = xcalloc((size_t)env->slots, sizeof(*g->slot));
    for (int s = 0; s < env->slots; s++)
        create_slot(g, s);
    g->best = xcalloc(frontier * (size_t)g->k, sizeof(int32_t));
    g->best_log_p = xcalloc(frontier * (size_t)g->k, sizeof(float));
    g->host = xcalloc((size_t)vocab, sizeof(float));
    g->path = xcalloc((size_t)env->length + (size_t)shape->candidates + 1, sizeof(int32_t));
    g->staged =
        env->backend->probabilities != NULL && env->sampling != NULL && sampling_stages(env->sampling, &g->stages);
    if (shape->o.pick != PICK_GREEDY)
        g->host_bytes = (size_t)env->slots * (size_t)shape->candidates * (size_t)g->target_vocab * sizeof(float);
    device_drafts_create(g);
    g->logits = device_drafts_workspace(g, (int)frontier);
    if (g->logits.data == NULL) {
        g->own_logits = rows_on(env->backend, (int64_t)frontier, vocab);
        if (g->own_logits.data == NULL && g->there != NULL) { // then they grow on the host
            device_drafts_destroy(g);
            g->own_logits = rows_on(env->backend, (int64_t)frontier, vocab);
        }
        g->logits = g->own_logits;
    }
    g->bytes += tensor_bytes(g->own_logits) + device_drafts_bytes(g);
    return g->logits.data != NULL || fail(err, "%s: no room for the logits of a draft", env->backend->name);
}

void draft_batch_destroy(struct draft_batch *g)
{
    if (g->env.backend == NULL)
        return;
    for (int s = 0; g->slot != NULL && s < g->env.slots; s++) {
        for (int c = 0; c < g->shape.candidates; c++)
            free(g->slot[s].after[c]);
        free(g->slot[s].after);
        free(g->slot[s].row);
        builder_destroy(&g->slot[s].tree_builder);
    }
    device_drafts_destroy(g);
    g->env.backend->release(g->env.backend, g->own_logits.data);
    free(g->tree);
    free(g->slot);
    free(g->best);
    free(g->best_log_p);
    free(g->host);
    free(g->path);
}

int draft_batch_begin(struct draft_batch *g, const struct request *r, int n, struct request *active)
{
    int m = 0;
    g->on_device_now = device_drafts_can(g, r, n);
    for (int i = 0; i < n && g->on_device_now; i++)
        if (tree_shape_depth(&g->shape, &r[i]) > 0)
            active[m++] = r[i];
    if (g->on_device_now) {
        device_drafts_begin(g, active, m);
        return m;
    }
    for (int i = 0; i < n; i++) {
        struct draft_batch_slot *s = &g->slot[r[i].slot];
        builder_begin(&s->tree_builder, &r[i]);
        for (int c = 0; c < s->tree_builder.capacity; c++)
            s->row[c] = -1;
        if (s->tree_builder.n_frontier > 0)
            active[m++] = r[i];
    }
    return m;
}

// A row of the drafter's logits as one of the target's: what the drafter has no id for is impossible.
static void download(struct draft_batch *g, float *to, int row)
{
    float *own = g->target_id != NULL ? g->host : to;
    g->env.backend->download(g->env.backend, own, tensor_rows(g->logits, row, 1).data,
                             (size_t)g->vocab * sizeof(float));
    if (g->target_id == NULL)
        return;
    for (int x = 0; x < g->target_vocab; x++)
        to[x] = -INFINITY;
    for (int x = 0; x < g->vocab; x++)
        to[g->target_id[x]] = own[x];
}

// The device makes probabilities of all rows at once; several candidates may share one.
static bool made_there(const struct draft_batch *g, const struct request *r)
{
    return g->staged && g->target_id == NULL && r->forced == NULL && g->shape.o.pick != PICK_GREEDY;
}

// The probabilities after candidate c, by the same stages that the target's rows go through: kept as row c of q.
static const float *row_after(struct draft_batch *g, struct draft_batch_slot *s, int c, int row,
                              const struct request *r)
{
    int depth = s->tree_builder.at[c].depth;
    if (made_there(g, r)) {
        download(g, s->after[c], row);
        return s->after[c];
    }
    memcpy(g->path, r->token, (size_t)r->n * sizeof(int32_t));
    for (int at = c, i = r->n + depth - 1; at > 0; at = s->tree_builder.at[at].parent, i--)
        g->path[i] = s->tree_builder.at[at].token;
    struct path before = { r->n + depth, g->path };
    download(g, s->after[c], row);
    sampling_row(g->env.sampling, s->after[c], g->target_id != NULL ? g->target_vocab : g->vocab, g->used_vocab,
                 &before);
    return s->after[c];
}

// How many tokens the drafter finds likelier than the text's own, and goes on from that.
static void force(struct draft_batch *g, struct draft_batch_slot *s, int row, const struct request *r)
{
    const int c = s->tree_builder.frontier[0], depth = s->tree_builder.at[c].depth;
    const int32_t token = r->forced->token[depth];
    int above = 0, x = 0;
    g->env.backend->download(g->env.backend, g->host, tensor_rows(g->logits, row, 1).data,
                             (size_t)g->vocab * sizeof(float));
    while (x < g->vocab && id_of(g, x) != token)
        x++;
    for (int i = 0; x < g->vocab && i < g->vocab; i++)
        if (id_of(g, i) < g->used_vocab)
            above += g->host[i] > g->host[x] || (g->host[i] == g->host[x] && i < x);
    r->forced->rank[depth] = x < g->vocab ? above : g->target_vocab;
    builder_add_forced(&s->tree_builder, c, token);
}

static void to_target(const struct draft_batch *g, int rows)
{
    for (int i = 0; g->target_id != NULL && i < rows * g->k; i++)
        g->best[i] = g->target_id[g->best[i]];
}

struct tensor draft_batch_logits(struct draft_batch *g, int rows)
{
    g->logits.rows = rows;
    return g->on_device_now ? device_drafts_logits(g, rows) : g->logits;
}

bool draft_batch_children(struct draft_batch *g, const struct request *r, int n, const int *first, int stride,
                          struct error *err)
{
    struct backend *b = g->env.backend;
    if (g->on_device_now) {
        device_drafts_children(g, first, stride);
        return true;
    }
    const bool argmax = g->shape.o.pick == PICK_GREEDY;
    if (argmax)
        b->best(b, g->logits, g->k, g->best, g->best_log_p);
    if (made_there(g, r))
        b->probabilities(b, g->logits, g->used_vocab, &g->stages);
    if (!b->sync(b, err))
        return false;
    if (argmax)
        to_target(g, (int)g->logits.rows);
    for (int i = 0; i < n; i++) {
        struct draft_batch_slot *s = &g->slot[r[i].slot];
        for (int f = 0; f < s->tree_builder.n_frontier; f++) {
            const int c = s->tree_builder.frontier[f], row = first[i] + f * stride;
            if (s->tree_builder.forced)
                force(g, s, row, &r[i]);
            else if (argmax)
                builder_add_top_k(&s->tree_builder, c, g->best + (size_t)row * (size_t)g->k,
                                  g->best_log_p + (size_t)row * (size_t)g->k, g->k, g->used_vocab);
            else
                builder_sample_children(&s->tree_builder, c, row_after(g, s, c, row, &r[i]), &r[i]);
        }
    }
    return true;
}

int draft_batch_level(struct draft_batch *g, const struct request *r, int n)
{
    int wanted = 0;
    if (g->on_device_now)
        return device_drafts_level(g);
    for (int i = 0; i < n; i++) {
        struct tree_builder *tree_builder = &g->slot[r[i].slot].tree_builder;
        if (tree_builder->n_frontier > 0 && builder_next_level(tree_builder, &r[i]))
            wanted += tree_builder->n_frontier;
    }
    return wanted;
}

struct pass draft_batch_rows(struct draft_batch *g, const struct request *r, int n, const struct kv_cache *cache,
                             int *first, int32_t *token, int32_t *slot, int32_t *parent)
{
    int rows = 0;
    if (g->on_device_now)
        return device_drafts_rows(g, r, cache, first, token, slot, parent);
    for (int i = 0; i < n; i++) {
        struct draft_batch_slot *s = &g->slot[r[i].slot];
        const int pending = kv_pending(cache, r[i].slot);
        first[i] = rows;
        for (int f = 0; f < s->tree_builder.n_frontier; f++, rows++) {
            const struct candidate *c = &s->tree_builder.at[s->tree_builder.frontier[f]];
            token[rows] = c->token;
            slot[rows] = r[i].slot;
            parent[rows] = c->parent == 0 ? -1 : s->row[c->parent];
            s->row[s->tree_builder.frontier[f]] = pending + f;
        }
    }
    return (struct pass){ .n = rows, .token = token, .slot = slot, .parent = parent };
}

const struct device_rows *draft_batch_parents(const struct draft_batch *g, int *n)
{
    *n = g->there->n_level;
    return g->there->parents;
}

int draft_batch_pending(const struct draft_batch *g, int slot, int *n)
{
    const struct draft_batch_slot *s = &g->slot[slot];
    if (g->on_device_now)
        return device_drafts_pending(g, slot, n);
    *n = s->tree_builder.n_frontier;
    return *n > 0 ? s->row[s->tree_builder.frontier[0]] : 0;
}

void draft_batch_end(struct draft_batch *g, const struct request *r, int n)
{
    for (int i = 0; i < n; i++)
        r[i].draft->q = &g->slot[r[i].slot].q;
    if (g->on_device_now)
        device_drafts_end(g, r);
    for (int i = 0; i < n && !g->on_device_now; i++)
        builder_finish(&g->slot[r[i].slot].tree_builder, r[i].draft);
}

int draft_batch_row(const struct draft_batch *g, int slot, int node)
{
    const struct draft_batch_slot *s = &g->slot[slot];
    if (g->on_device_now)
        return g->there->draft[slot].tag_here[node];
    int c = 1;
    while (s->tree_builder.at[c].node != node)
        c++;
    return s->row[c];
}
