// medusa.c - Medusa's heads (models/heads/medusa.h) on the target's last hidden state predict the following positions, each independently
// (Cai et al. 2024, arXiv 2401.10774).
//
// Medusa's own trees are of the most probable tokens; sampled chains and trees have the heads' rows as q.
#include "drafters/depth_heads.h"
#include "drafters/medusa_heads.h"

struct medusa_options {
    struct medusa_heads_options heads;
    struct tree_options tree;
};

static struct drafter *medusa_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct medusa_options *o = options;
    return medusa_heads_create(env, &o->heads, &o->tree, "drafter medusa", err);
}

static bool medusa_check(const void *options, struct error *err)
{
    return tree_options_check(&((const struct medusa_options *)options)->tree, "drafter medusa", err);
}

static unsigned medusa_makes(const void *options)
{
    return tree_options_kinds(&((const struct medusa_options *)options)->tree);
}

static const struct option medusa_options[] = {
    MEDUSA_HEADS_OPTIONS(struct medusa_options, heads),
    TREE_OPTIONS(struct medusa_options, tree),
    { 0 },
};

const struct drafter_type medusa_drafter = {
    .name = "medusa",
    .summary = "heads on the target's last hidden state, one per position: greedy or sampled chains and trees",
    .options = medusa_options,
    .options_size = sizeof(struct medusa_options),
    .check = medusa_check,
    .create = medusa_create,
    .propose = depth_heads_propose,
    .advance = depth_heads_advance,
    .forget = depth_heads_forget,
    .destroy = medusa_heads_destroy,
    .makes = medusa_makes,
};
