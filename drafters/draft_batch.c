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
    const struct growth_slot *s = (struct growth_slot *)self;
    assert(s->after[node] != NULL);
    if (s->growth->is_there)
        growth_there_row(s->growth, s->number, node, s->after[node]);
    return s->after[node];
}

static void create_slot(struct growth *g, int number)
{
    struct growth_slot *s = &g->slot[number];
    const size_t candidates = (size_t)g->shape.candidates;
    const int most = g->target_id != NULL || g->vocab > g->target_vocab ? g->target_vocab : g->vocab;
    const size_t width = (size_t)(g->vocab > g->target_vocab ? g->vocab : g->target_vocab);
    s->q = (struct rows){ g->target_vocab, q_row, NULL };
    s->growth = g;
    s->number = number;
    grower_create(&s->grower, &g->shape, most);
    s->row = xcalloc(candidates, sizeof(*s->row));
    s->after = xcalloc(candidates, sizeof(*s->after));
    for (size_t c = 0; c < candidates && g->shape.o.pick != PICK_LIKELIEST; c++) // not touched before it is needed
        s->after[c] = xcalloc(width, sizeof(float));
}

static int32_t id_of(const struct growth *g, int x)
{
    return g->target_id != NULL ? g->target_id[x] : x;
}

// How many of the likeliest may have to be passed over: ids that are no tokens. Nobody has more of them that are likely.
static int padding(const struct growth *g)
{
    enum { LIKELY = 16 };
    int n = 0;
    for (int x = g->vocab - 1; x >= 0 && n < LIKELY; x--)
        n += id_of(g, x) >= g->live;
    return n;
}

bool growth_create(struct growth *g, const struct grow_shape *shape, const struct drafter_env *env, int vocab,
                   const int32_t *target_id, int live, struct error *err)
{
    *g = (struct growth){ .shape = *shape, .env = *env, .vocab = vocab, .target_id = target_id, .live = live };
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
    if (shape->o.pick != PICK_LIKELIEST)
        g->host_bytes = (size_t)env->slots * (size_t)shape->candidates * (size_t)g->target_vocab * sizeof(float);
    growth_there_create(g);
    g->logits = growth_there_room(g, (int)frontier);
    if (g->logits.data == NULL) {
        g->own_logits = rows_on(env->backend, (int64_t)frontier, vocab);
        if (g->own_logits.data == NULL && g->there != NULL) { // then they grow on the host
            growth_there_destroy(g);
            g->own_logits = rows_on(env->backend, (int64_t)frontier, vocab);
        }
        g->logits = g->own_logits;
    }
    g->bytes += tensor_bytes(g->own_logits) + growth_there_bytes(g);
    return g->logits.data != NULL || fail(err, "%s: no room for the logits of a draft", env->backend->name);
}

void growth_destroy(struct growth *g)
{
    if (g->env.backend == NULL)
        return;
    for (int s = 0; g->slot != NULL && s < g->env.slots; s++) {
        for (int c = 0; c < g->shape.candidates; c++)
            free(g->slot[s].after[c]);
        free(g->slot[s].after);
        free(g->slot[s].row);
        grower_destroy(&g->slot[s].grower);
    }
    growth_there_destroy(g);
    g->env.backend->release(g->env.backend, g->own_logits.data);
    free(g->tree);
    free(g->slot);
    free(g->best);
    free(g->best_log_p);
    free(g->host);
    free(g->path);
}

int growth_begin(struct growth *g, const struct request *r, int n, struct request *live)
{
    int m = 0;
    g->is_there = growth_there_takes(g, r, n);
    for (int i = 0; i < n && g->is_there; i++)
        if (grow_deepest(&g->shape, &r[i]) > 0)
            live[m++] = r[i];
    if (g->is_there) {
        growth_there_begin(g, live, m);
        return m;
    }
    for (int i = 0; i < n; i++) {
        struct growth_slot *s = &g->slot[r[i].slot];
        grow_begin(&s->grower, &r[i]);
        for (int c = 0; c < s->grower.room; c++)
            s->row[c] = -1;
        if (s->grower.n_frontier > 0)
            live[m++] = r[i];
    }
    return m;
}

// A row of the drafter's logits as one of the target's: what the drafter has no id for is impossible.
static void download(struct growth *g, float *to, int row)
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
static bool made_there(const struct growth *g, const struct request *r)
{
    return g->staged && g->target_id == NULL && r->forced == NULL && g->shape.o.pick != PICK_LIKELIEST;
}

// The probabilities after candidate c, by the same stages that the target's rows go through: kept as row c of q.
static const float *row_after(struct growth *g, struct growth_slot *s, int c, int row, const struct request *r)
{
    int depth = s->grower.at[c].depth;
    if (made_there(g, r)) {
        download(g, s->after[c], row);
        return s->after[c];
    }
    memcpy(g->path, r->token, (size_t)r->n * sizeof(int32_t));
    for (int at = c, i = r->n + depth - 1; at > 0; at = s->grower.at[at].parent, i--)
        g->path[i] = s->grower.at[at].token;
    struct path before = { r->n + depth, g->path };
    download(g, s->after[c], row);
    sampling_row(g->env.sampling, s->after[c], g->target_id != NULL ? g->target_vocab : g->vocab, g->live, &before);
    return s->after[c];
}

// How many tokens the drafter finds likelier than the text's own, and goes on from that.
static void force(struct growth *g, struct growth_slot *s, int row, const struct request *r)
{
    const int c = s->grower.frontier[0], depth = s->grower.at[c].depth;
    const int32_t token = r->forced->token[depth];
    int above = 0, x = 0;
    g->env.backend->download(g->env.backend, g->host, tensor_rows(g->logits, row, 1).data,
                             (size_t)g->vocab * sizeof(float));
    while (x < g->vocab && id_of(g, x) != token)
        x++;
    for (int i = 0; x < g->vocab && i < g->vocab; i++)
        if (id_of(g, i) < g->live)
            above += g->host[i] > g->host[x] || (g->host[i] == g->host[x] && i < x);
    r->forced->rank[depth] = x < g->vocab ? above : g->target_vocab;
    grow_forced(&s->grower, c, token);
}

static void to_target(const struct growth *g, int rows)
{
    for (int i = 0; g->target_id != NULL && i < rows * g->k; i++)
        g->best[i] = g->target_id[g->best[i]];
}

struct tensor growth_logits(struct growth *g, int rows)
{
    g->logits.rows = rows;
    return g->is_there ? growth_there_logits(g, rows) : g->logits;
}

bool growth_children(struct growth *g, const struct request *r, int n, const int *first, int stride, struct error *err)
{
    struct backend *b = g->env.backend;
    if (g->is_there) {
        growth_there_children(g, first, stride);
        return true;
    }
    const bool likeliest = g->shape.o.pick == PICK_LIKELIEST;
    if (likeliest)
        b->best(b, g->logits, g->k, g->best, g->best_log_p);
    if (made_there(g, r))
        b->probabilities(b, g->logits, g->live, &g->stages);
    if (!b->sync(b, err))
        return false;
    if (likeliest)
        to_target(g, (int)g->logits.rows);
    for (int i = 0; i < n; i++) {
        struct growth_slot *s = &g->slot[r[i].slot];
        for (int f = 0; f < s->grower.n_frontier; f++) {
            const int c = s->grower.frontier[f], row = first[i] + f * stride;
            if (s->grower.forced)
                force(g, s, row, &r[i]);
            else if (likeliest)
                grow_likeliest(&s->grower, c, g->best + (size_t)row * (size_t)g->k,
                               g->best_log_p + (size_t)row * (size_t)g->k, g->k, g->live);
            else
                grow_children(&s->grower, c, row_after(g, s, c, row, &r[i]), &r[i]);
        }
    }
    return true;
}

int growth_level(struct growth *g, const struct request *r, int n)
{
    int wanted = 0;
    if (g->is_there)
        return growth_there_level(g);
    for (int i = 0; i < n; i++) {
        struct grower *grower = &g->slot[r[i].slot].grower;
        if (grower->n_frontier > 0 && grow_level(grower, &r[i]))
            wanted += grower->n_frontier;
    }
    return wanted;
}

struct pass growth_rows(struct growth *g, const struct request *r, int n, const struct kv_cache *cache, int *first,
                        int32_t *token, int32_t *slot, int32_t *parent)
{
    int rows = 0;
    if (g->is_there)
        return growth_there_rows(g, r, cache, first, token, slot, parent);
    for (int i = 0; i < n; i++) {
        struct growth_slot *s = &g->slot[r[i].slot];
        const int pending = kv_pending(cache, r[i].slot);
        first[i] = rows;
        for (int f = 0; f < s->grower.n_frontier; f++, rows++) {
            const struct candidate *c = &s->grower.at[s->grower.frontier[f]];
            token[rows] = c->token;
            slot[rows] = r[i].slot;
            parent[rows] = c->parent == 0 ? -1 : s->row[c->parent];
            s->row[s->grower.frontier[f]] = pending + f;
        }
    }
    return (struct pass){ .n = rows, .token = token, .slot = slot, .parent = parent };
}

const struct rows_there *growth_parents(const struct growth *g, int *n)
{
    *n = g->there->n_level;
    return g->there->parents;
}

int growth_pending(const struct growth *g, int slot, int *n)
{
    const struct growth_slot *s = &g->slot[slot];
    if (g->is_there)
        return growth_there_pending(g, slot, n);
    *n = s->grower.n_frontier;
    return *n > 0 ? s->row[s->grower.frontier[0]] : 0;
}

void growth_end(struct growth *g, const struct request *r, int n)
{
    for (int i = 0; i < n; i++)
        r[i].draft->q = &g->slot[r[i].slot].q;
    if (g->is_there)
        growth_there_end(g, r);
    for (int i = 0; i < n && !g->is_there; i++)
        grow_end(&g->slot[r[i].slot].grower, r[i].draft);
}

int growth_row(const struct growth *g, int slot, int node)
{
    const struct growth_slot *s = &g->slot[slot];
    if (g->is_there)
        return g->there->draft[slot].tag_here[node];
    int c = 1;
    while (s->grower.at[c].node != node)
        c++;
    return s->row[c];
}
