// medusa.c - heads on the target's last hidden state predict the following positions, each independently. They are
// files of Medusa's form (models/heads/medusa.h); heads without an output matrix use the target's LM head.
//
// medusa (Cai et al. 2024, arXiv 2401.10774): Medusa's published trees consist of the most probable tokens; sampled
// chains and trees have the heads' rows as q.
//
// blockwise, blockwise parallel decoding (Stern, Shazeer, Uszkoreit 2018, arXiv 1811.03115): heads propose the most
// probable token of each of the next positions, and the target's next pass both verifies them and yields the state for
// the next block (section 4, the combined model). A block of `block_size` tokens, the paper's k, is one token of the
// target and block_size - 1 draft tokens, so it needs as many heads. The rule `blockwise` has the paper's relaxed
// criteria. At temperature 0 the lossless rules accept by its exact match.
#include <stdlib.h>

#include "core/memory.h"
#include "core/quantize.h"
#include "drafters/depth_heads.h"
#include "models/heads/medusa.h"
#include "models/paths.h"

struct heads_options {
    char *weights;
    int activations, quantize; // enum activations, enum quantize
    struct tree_options tree;  // option of medusa
    int block_size;            // option of blockwise
};

struct heads_drafter {
    struct depth_heads heads; // must be first
    struct medusa *medusa;
};

static void destroy(struct drafter *d)
{
    struct heads_drafter *m = (struct heads_drafter *)d;
    depth_heads_close(&m->heads);
    medusa_close(m->medusa);
    free(m);
}

static void logits(struct depth_heads *h, int depth, struct tensor out, struct tensor states)
{
    medusa_logits(((struct heads_drafter *)h)->medusa, depth, out, states);
}

static bool open_heads(struct heads_drafter *m, const struct drafter_env *env, const struct heads_options *o,
                       const struct tree_shape *shape, const char *what, struct error *err)
{
    char *path = model_path(o->weights, env->beside, err);
    if (path != NULL)
        m->medusa = medusa_open(path, env->target, env->backend, (enum activations)o->activations,
                                (enum quantize)o->quantize, env->slots, err);
    free(path);
    if (m->medusa == NULL)
        return false;
    const struct head_facts *f = medusa_facts(m->medusa);
    const struct depth_heads_setup setup = { .what = what,
                                             .path = o->weights,
                                             .heads = f->heads,
                                             .vocab = f->vocab,
                                             .target_id = f->target_id,
                                             .activations = f->activations,
                                             .bytes = f->memory };
    m->heads.logits = logits;
    m->heads.drafter.identity = f->hash;
    return depth_heads_open(&m->heads, &setup, shape, env, err);
}

static struct drafter *create(const struct drafter_env *env, const struct heads_options *o, const char *what,
                              struct error *err)
{
    struct tree_shape shape;
    if (!depth_heads_shape(&shape, &o->tree, what, env, err))
        return NULL;
    struct heads_drafter *m = xcalloc(1, sizeof(*m));
    if (open_heads(m, env, o, &shape, what, err))
        return &m->heads.drafter;
    destroy(&m->heads.drafter);
    return NULL;
}

static struct drafter *medusa_create(const struct drafter_env *env, const void *options, struct error *err)
{
    return create(env, options, "drafter medusa", err);
}

static struct drafter *blockwise_create(const struct drafter_env *env, const void *options, struct error *err)
{
    struct heads_options o = *(const struct heads_options *)options;
    o.tree = (struct tree_options){ .tokens = o.block_size - 1, .pick = PICK_GREEDY };
    return create(env, &o, "drafter blockwise", err);
}

// clang-format off
#define HEADS_OPTIONS \
    { "weights", OPTION_PATH, offsetof(struct heads_options, weights), NULL, "the heads: a folder or a .safetensors file", 0, 0, NULL }, \
    { "activations", OPTION_CHOICE, offsetof(struct heads_options, activations), "default", \
      "type that matmul inputs are rounded to; default: by the type of its weights", 0, 0, ACTIVATIONS_CHOICES }, \
    { "quantize", OPTION_CHOICE, offsetof(struct heads_options, quantize), "none", \
      "type that its matrices of floats are quantized to as they are loaded", 0, 0, QUANTIZE_CHOICES }

static const struct option medusa_options[] = {
    HEADS_OPTIONS,
    TREE_OPTIONS(struct heads_options, tree),
    { 0 },
};

static const struct option blockwise_options[] = {
    HEADS_OPTIONS,
    { "block_size", OPTION_INT, offsetof(struct heads_options, block_size), "4", "maximum number of tokens of a step: a draft has one less", 2, 17, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type medusa_drafter = {
    .name = "medusa",
    .summary = "heads on the target's last hidden state, one per position: greedy or sampled chains and trees",
    .options = medusa_options,
    .options_size = sizeof(struct heads_options),
    .tree = offsetof(struct heads_options, tree),
    .create = medusa_create,
    .propose = depth_heads_propose,
    .advance = depth_heads_advance,
    .forget = depth_heads_forget,
    .destroy = destroy,
};

const struct drafter_type blockwise_drafter = {
    .name = "blockwise",
    .summary = "heads on the target's last hidden state, one per position: blocks of the most probable tokens",
    .options = blockwise_options,
    .options_size = sizeof(struct heads_options),
    .create = blockwise_create,
    .propose = depth_heads_propose,
    .advance = depth_heads_advance,
    .forget = depth_heads_forget,
    .destroy = destroy,
};
