// layer_drafts.c - drafts by some of the target's layers.
//
// early_exit uses the target's first layers, its norm and its LM head: LayerSkip (Elhoushi et al. 2024, arXiv
// 2404.16710, section 4.3). The paper's models were trained for it; other models predict little from their first
// layers.
//
// layer_skip uses the target without some of its layers: Draft & Verify (Zhang et al. 2023, arXiv 2309.08168), SWIFT
// (Xia et al. 2024, arXiv 2410.06916). Those papers skip attention and MLP separately; here a layer is skipped as a
// whole. `speclab tune` searches for the layers to keep.
//
// The layers read the target's cache. For each layer it has the rows of the whole text except the root, as the target's
// passes wrote them. Root and draft tokens are pending rows, which are dropped when the draft is done: the target's
// pass computes all their layers. So drafting needs no separate memory and no pass over the prompt. The rows of a layer
// depend on all layers before it, skipped or not. They differ from those that the chosen layers alone would have
// written, and predict better.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/trees/draft_batch.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/layer_list.h"

struct layer_drafts {
    struct drafter drafter; // first
    struct model *model;    // the target
    struct kv_cache *cache; // the target's cache; NULL until attach
    struct draft_batch draft_batch;
    int *layer, layers;             // (layers) ascending; owned
    char *shown;                    // the layers as a list in text
    int32_t *token, *slot, *parent; // (rows) arguments of a pass
    int *first;                     // (slots) first row of each request
};

// layer (n): taken over. what: the word in messages, "drafter early_exit". destroy may be called after a failure.
static bool open_layers(struct layer_drafts *g, const struct drafter_env *env, const struct tree_options *o, int *layer,
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

static void attach(struct drafter *d, struct kv_cache *target_cache)
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

static bool run_roots(void *self, const struct request *r, int n, struct error *err)
{
    struct layer_drafts *g = self;
    for (int i = 0; i < n; i++) {
        g->token[i] = r[i].token[r[i].n - 1];
        g->slot[i] = r[i].slot;
        g->parent[i] = -1;
    }
    return run(g, &(const struct pass){ .n = n, .token = g->token, .slot = g->slot, .parent = g->parent }, err);
}

// The root of each slot is its pending row 0.
static bool run_frontiers(void *self, const struct request *r, int n, struct error *err)
{
    struct layer_drafts *g = self;
    const struct pass pass = draft_batch_rows(&g->draft_batch, r, n, g->cache, g->first, g->token, g->slot, g->parent);
    for (int i = 0; i < pass.n; i++)
        g->parent[i] = g->parent[i] < 0 ? 0 : g->parent[i];
    return run(g, &pass, err);
}

static bool propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    static const struct draft_logits by = { run_roots, run_frontiers, 1 };
    struct layer_drafts *g = (struct layer_drafts *)d;
    const bool ok = draft_batch_build(&g->draft_batch, r, n, g->first, &by, g, err);
    for (int i = 0; i < n; i++)
        kv_truncate(g->cache, r[i].slot, kv_length(g->cache, r[i].slot));
    return ok;
}

static void destroy(struct drafter *d)
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

// ---- early_exit

struct early_exit_options {
    int exit_layer;
    struct tree_options tree;
};

static struct drafter *early_exit_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct early_exit_options *o = options;
    const int layers = model_shape(env->target)->layers;
    if (o->exit_layer >= layers) {
        fail(err, "drafter early_exit: exit_layer: expected fewer than the target's %d layers, found %d", layers,
             o->exit_layer);
        return NULL;
    }
    struct layer_drafts *g = xcalloc(1, sizeof(*g));
    int *layer = xcalloc((size_t)o->exit_layer, sizeof(*layer));
    for (int i = 0; i < o->exit_layer; i++)
        layer[i] = i;
    if (open_layers(g, env, &o->tree, layer, o->exit_layer, "drafter early_exit", err))
        return &g->drafter;
    destroy(&g->drafter);
    return NULL;
}

// clang-format off
static const struct option early_exit_options[] = {
    { "exit_layer", OPTION_INT, offsetof(struct early_exit_options, exit_layer), NULL, "how many of the target's layers draft", 1, 1024, NULL },
    TREE_OPTIONS(struct early_exit_options, tree),
    { 0 },
};
// clang-format on

const struct drafter_type early_exit_drafter = {
    .name = "early_exit",
    .summary = "the target's first layers and its LM head, on its own cache: LayerSkip",
    .options = early_exit_options,
    .options_size = sizeof(struct early_exit_options),
    .tree = offsetof(struct early_exit_options, tree),
    .create = early_exit_create,
    .propose = propose,
    .attach = attach,
    .destroy = destroy,
};

// ---- layer_skip

struct layer_skip_options {
    char *keep;
    struct tree_options tree;
};

// Converts "[0, 2-3]", a list of the settings, to "0,2-3".
static char *plain_list(const char *given)
{
    char *to = xcalloc(strlen(given) + 1, 1);
    for (size_t n = 0; *given != '\0'; given++)
        if (strchr("[] ", *given) == NULL)
            to[n++] = *given;
    return to;
}

static struct drafter *layer_skip_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct layer_skip_options *o = options;
    struct error why;
    char *list = plain_list(o->keep);
    int n;
    int *layer = layer_list_parse(list, model_shape(env->target)->layers, &n, &why);
    free(list);
    if (layer == NULL) {
        fail(err, "drafter layer_skip: keep: %s", why.text);
        return NULL;
    }
    struct layer_drafts *g = xcalloc(1, sizeof(*g));
    if (open_layers(g, env, &o->tree, layer, n, "drafter layer_skip", err)) {
        g->drafter.resolved[g->draft_batch.tree != NULL] = (struct resolved){ "keep", g->shown };
        return &g->drafter;
    }
    destroy(&g->drafter);
    return NULL;
}

// clang-format off
static const struct option layer_skip_options[] = {
    { "keep", OPTION_TEXT, offsetof(struct layer_skip_options, keep), NULL, "the layers that draft, as in 0-11,13,15,17,19-29", 0, 0, NULL },
    TREE_OPTIONS(struct layer_skip_options, tree),
    { 0 },
};
// clang-format on

const struct drafter_type layer_skip_drafter = {
    .name = "layer_skip",
    .summary = "the target without some of its layers, on its own cache: Draft & Verify, SWIFT",
    .options = layer_skip_options,
    .options_size = sizeof(struct layer_skip_options),
    .tree = offsetof(struct layer_skip_options, tree),
    .create = layer_skip_create,
    .propose = propose,
    .attach = attach,
    .destroy = destroy,
};
