// layer_skip.c - the target without some of its layers: Draft & Verify (Zhang et al. 2023, arXiv 2309.08168), SWIFT (Xia et al. 2024, arXiv
// 2410.06916). `speclab tune` searches the layers to keep.
//
// Those papers skip attention and MLP one by one; here a layer is skipped as a whole.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/layer_drafts.h"
#include "models/layer_list.h"

struct layer_skip_options {
    char *keep;
    struct tree_options tree;
};

// "[0, 2-3]", a list of the settings, as "0,2-3".
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
    if (layer_drafts_open(g, env, &o->tree, layer, n, "drafter layer_skip", err)) {
        g->drafter.resolved[g->draft_batch.tree != NULL] = (struct resolved){ "keep", g->shown };
        return &g->drafter;
    }
    layer_drafts_destroy(&g->drafter);
    return NULL;
}

static bool layer_skip_check(const void *options, struct error *err)
{
    return tree_options_check(&((const struct layer_skip_options *)options)->tree, "drafter layer_skip", err);
}

static unsigned layer_skip_makes(const void *options)
{
    return tree_options_kinds(&((const struct layer_skip_options *)options)->tree);
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
    .check = layer_skip_check,
    .create = layer_skip_create,
    .propose = layer_drafts_propose,
    .attach = layer_drafts_attach,
    .destroy = layer_drafts_destroy,
    .makes = layer_skip_makes,
};
