#include "drafters/layer_drafts.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/layer_list.h"

bool layer_drafts_open(struct layer_drafts *g, const struct drafter_env *env, const struct tree_options *o, int *layer,
                       int n, const char *what, struct error *err)
{
    struct tree_shape shape;
    struct drafter_env own = *env;
    own.drafts_on_host = true; // the root is a pending row, which drafts on a device do not know
    g->layer = layer;
    g->layers = n;
    g->model = env->target;
    if (!tree_shape(&shape, o, what, env->beside, err))
        return false;
    const int rows = (shape.frontier > 1 ? shape.frontier : 1) * env->slots;
    if (env->backend != env->target_backend)
        return fail(err, "%s: it computes with the target's layers, and must be on the target's device", what);
    if (rows > model_rows(g->model))
        return fail(err,
                    "%s: a level of %d draft tokens in %d slots needs passes of %d rows; the target was opened for %d",
                    what, shape.frontier, env->slots, rows, model_rows(g->model));
    if (!draft_batch_create(&g->draft_batch, &shape, &own, model_shape(g->model)->vocab, NULL, env->used_vocab, err))
        return false;
    g->token = xcalloc((size_t)rows, sizeof(int32_t));
    g->slot = xcalloc((size_t)rows, sizeof(int32_t));
    g->parent = xcalloc((size_t)rows, sizeof(int32_t));
    g->first = xcalloc((size_t)env->slots, sizeof(int));
    g->shown = layer_list_write(layer, n);
    g->drafter.nodes = shape.nodes;
    g->drafter.cache_rows = 1 + shape.evaluated;
    g->drafter.bytes = g->draft_batch.bytes;
    g->drafter.host_bytes = g->draft_batch.host_bytes;
    if (g->draft_batch.tree != NULL)
        g->drafter.resolved[0] = (struct resolved){ "tree", g->draft_batch.tree };
    return true;
}

void layer_drafts_attach(struct drafter *d, struct kv_cache *target_cache)
{
    ((struct layer_drafts *)d)->cache = target_cache;
}

// Runs a pass whose rows become pending, and computes their logits.
static bool run(struct layer_drafts *g, const struct pass *p, struct error *err)
{
    struct states states;
    if (!model_forward_some(g->model, g->cache, p, g->layer, g->layers, &states, err))
        return false;
    model_logits(g->model, draft_batch_logits(&g->draft_batch, p->n), states.last);
    return true;
}

static bool run_roots(struct layer_drafts *g, const struct request *r, int n, struct error *err)
{
    for (int i = 0; i < n; i++) {
        g->token[i] = r[i].token[r[i].n - 1];
        g->slot[i] = r[i].slot;
        g->parent[i] = -1;
        g->first[i] = i;
    }
    return run(g, &(const struct pass){ .n = n, .token = g->token, .slot = g->slot, .parent = g->parent }, err);
}

// The root of each slot is its pending row 0.
static bool run_frontiers(struct layer_drafts *g, const struct request *r, int n, struct error *err)
{
    const struct pass pass = draft_batch_rows(&g->draft_batch, r, n, g->cache, g->first, g->token, g->slot, g->parent);
    for (int i = 0; i < pass.n; i++)
        g->parent[i] = g->parent[i] < 0 ? 0 : g->parent[i];
    return run(g, &pass, err);
}

static bool build(struct layer_drafts *g, const struct request *r, int n, struct error *err)
{
    bool more = true;
    if (!run_roots(g, r, n, err))
        return false;
    while (more) {
        if (!draft_batch_children(&g->draft_batch, r, n, g->first, 1, err))
            return false;
        more = draft_batch_level(&g->draft_batch, r, n) > 0;
        if (more && !run_frontiers(g, r, n, err))
            return false;
    }
    draft_batch_end(&g->draft_batch, r, n);
    return true;
}

bool layer_drafts_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct layer_drafts *g = (struct layer_drafts *)d;
    struct request active[MAX_SLOTS];
    const int m = draft_batch_begin(&g->draft_batch, r, n, active);
    const bool ok = m == 0 || build(g, active, m, err);
    for (int i = 0; i < m; i++)
        kv_truncate(g->cache, active[i].slot, kv_length(g->cache, active[i].slot));
    return ok;
}

void layer_drafts_destroy(struct drafter *d)
{
    struct layer_drafts *g = (struct layer_drafts *)d;
    draft_batch_destroy(&g->draft_batch);
    free(g->layer);
    free(g->shown);
    free(g->token);
    free(g->slot);
    free(g->parent);
    free(g->first);
    free(g);
}
