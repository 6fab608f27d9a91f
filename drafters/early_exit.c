// early_exit.c - the target's first layers, its norm and its LM head: LayerSkip (Elhoushi et al. 2024, arXiv 2404.16710, section 4.3).
//
// The paper's models were trained for it. A model that was not says little after its first layers: `layer_skip` leaves out others.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/layer_drafts.h"

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
    if (layer_drafts_open(g, env, &o->tree, layer, o->exit_layer, "drafter early_exit", err))
        return &g->drafter;
    layer_drafts_destroy(&g->drafter);
    return NULL;
}

static bool early_exit_check(const void *options, struct error *err)
{
    return tree_options_check(&((const struct early_exit_options *)options)->tree, "drafter early_exit", err);
}

static unsigned early_exit_makes(const void *options)
{
    return tree_options_kinds(&((const struct early_exit_options *)options)->tree);
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
    .check = early_exit_check,
    .create = early_exit_create,
    .propose = layer_drafts_propose,
    .attach = layer_drafts_attach,
    .destroy = layer_drafts_destroy,
    .makes = early_exit_makes,
};
