// medusa.c - Medusa's heads (models/medusa.h) on the target's last hidden state predict the following positions, each independently
// (Cai et al. 2024, arXiv 2401.10774).
//
// Medusa's own trees are of the most probable tokens; sampled chains and trees have the heads' rows as q.
#include <stdlib.h>

#include "core/memory.h"
#include "drafters/depth_heads.h"
#include "models/medusa.h"
#include "models/paths.h"

struct medusa_options {
    char *weights;
    struct tree_options tree;
    int activations, quantize; // enum activations, enum quantize
};

struct medusa_drafter {
    struct depth_heads heads; // first
    struct medusa *medusa;
};

static void medusa_drafter_destroy(struct drafter *d)
{
    struct medusa_drafter *m = (struct medusa_drafter *)d;
    depth_heads_close(&m->heads);
    medusa_close(m->medusa);
    free(m);
}

static void logits(struct depth_heads *h, int depth, struct tensor out, struct tensor states)
{
    medusa_logits(((struct medusa_drafter *)h)->medusa, depth, out, states);
}

static bool open_heads(struct medusa_drafter *m, const struct drafter_env *env, const struct medusa_options *o,
                       const struct tree_shape *shape, struct error *err)
{
    char *path = model_path(o->weights, env->beside, err);
    if (path != NULL)
        m->medusa = medusa_open(path, env->target, env->backend, (enum activations)o->activations,
                                (enum quantize)o->quantize, env->slots, err);
    free(path);
    if (m->medusa == NULL)
        return false;
    const struct depth_heads_setup setup = { .what = "drafter medusa",
                                             .path = o->weights,
                                             .heads = medusa_heads(m->medusa),
                                             .vocab = medusa_vocab(m->medusa),
                                             .target_id = medusa_target_id(m->medusa),
                                             .activations = medusa_activations(m->medusa),
                                             .bytes = medusa_bytes(m->medusa) };
    m->heads.logits = logits;
    m->heads.drafter.identity = medusa_hash(m->medusa);
    return depth_heads_open(&m->heads, &setup, shape, env, err);
}

static struct drafter *medusa_drafter_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct medusa_options *o = options;
    struct tree_shape shape;
    if (!depth_heads_shape(&shape, &o->tree, "drafter medusa", env, err))
        return NULL;
    struct medusa_drafter *m = xcalloc(1, sizeof(*m));
    if (open_heads(m, env, o, &shape, err))
        return &m->heads.drafter;
    medusa_drafter_destroy(&m->heads.drafter);
    return NULL;
}

static unsigned medusa_makes(const void *options)
{
    return tree_options_kinds(&((const struct medusa_options *)options)->tree);
}

// clang-format off
static const struct option medusa_options[] = {
    { "weights", OPTION_PATH, offsetof(struct medusa_options, weights), NULL, "the heads: a folder, a .pt or a .safetensors file", 0, 0, NULL },
    TREE_OPTIONS(struct medusa_options, tree),
    { "activations", OPTION_CHOICE, offsetof(struct medusa_options, activations), "default",
      "type that matmul inputs are rounded to; default: by the type of its weights", 0, 0, ACTIVATIONS_CHOICES },
    { "quantize", OPTION_CHOICE, offsetof(struct medusa_options, quantize), "none",
      "type that its matrices of floats are quantized to as they are loaded", 0, 0, QUANTIZE_CHOICES },
    { 0 },
};
// clang-format on

const struct drafter_type medusa_drafter = {
    .name = "medusa",
    .summary = "heads on the target's last hidden state, one per position: greedy or sampled chains and trees",
    .options = medusa_options,
    .options_size = sizeof(struct medusa_options),
    .create = medusa_drafter_create,
    .propose = depth_heads_propose,
    .advance = depth_heads_advance,
    .forget = depth_heads_forget,
    .destroy = medusa_drafter_destroy,
    .makes = medusa_makes,
};
