// blockwise.c - blockwise parallel decoding (Stern, Shazeer, Uszkoreit 2018, arXiv 1811.03115): heads on the target's last hidden state
// propose the most probable token of each of the next positions, and the target's next pass both verifies them and yields the state for
// the next block (section 4, the combined model).
//
// A block of `block_size` tokens, the paper's k, is one token of the target and block_size - 1 draft tokens, so it needs as many heads.
// They are files of Medusa's form; heads without an output of their own use the target's LM head, as the paper's do. The rule
// `blockwise` has the paper's relaxed criteria; at temperature 0 the lossless rules accept by its exact match.
#include "drafters/depth_heads.h"
#include "drafters/medusa_heads.h"

struct blockwise_options {
    struct medusa_heads_options heads;
    int block_size;
};

static struct tree_options chain(const struct blockwise_options *o)
{
    return (struct tree_options){ .tokens = o->block_size - 1, .pick = PICK_GREEDY };
}

static struct drafter *blockwise_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct blockwise_options *o = options;
    const struct tree_options tree = chain(o);
    return medusa_heads_create(env, &o->heads, &tree, "drafter blockwise", err);
}

static unsigned blockwise_makes(const void *options)
{
    const struct tree_options tree = chain(options);
    return tree_options_kinds(&tree);
}

// clang-format off
static const struct option blockwise_options[] = {
    MEDUSA_HEADS_OPTIONS(struct blockwise_options, heads),
    { "block_size", OPTION_INT, offsetof(struct blockwise_options, block_size), "4", "maximum number of tokens of a step: a draft has one less", 2, 17, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type blockwise_drafter = {
    .name = "blockwise",
    .summary = "heads on the target's last hidden state, one per position: blocks of the most probable tokens",
    .options = blockwise_options,
    .options_size = sizeof(struct blockwise_options),
    .create = blockwise_create,
    .propose = depth_heads_propose,
    .advance = depth_heads_advance,
    .forget = depth_heads_forget,
    .destroy = medusa_heads_destroy,
    .makes = blockwise_makes,
};
