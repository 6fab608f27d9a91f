// head_forms.c - the published forms of heads, made from one another by edits.
#include "tests/formats/head_forms.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "tests/support/check.h"
#include "tests/formats/head_edit.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

struct form_bench form_bench_open(int layers)
{
    struct form_bench b;
    struct error err;
    const struct small_model t = { SMALL_SIZES(VOCAB, WIDTH, 96, layers, 4, 2, 16), .seed = 21 };
    char *path = xformat("%s/target_%d", test_directory(), layers);
    small_write_hf(path, &t);
    b.backend = backend_cpu(1, &err);
    assert_non_null(b.backend);
    b.target = model_open(path, b.backend, ACTIVATIONS_F32, ROWS, &err);
    assert_ok(b.target != NULL, err);
    free(path);
    return b;
}

void form_bench_close(struct form_bench *b)
{
    model_close(b->target);
    b->backend->destroy(b->backend);
}

struct eagle *form_open_eagle(const struct form_bench *b, const char *path, enum head_kind kind,
                              enum tri norm_before_residual, struct error *err)
{
    const struct eagle_setup s = {
        .kind = kind, .activations = ACTIVATIONS_F32, .norm_before_residual = norm_before_residual, .rows = ROWS
    };
    return eagle_open(path, b->target, b->backend, &s, err);
}

// A Medusa head with vLLM's tensor names.
#define BLOCKS "-*.0.linear.weight; -*.0.linear.bias; +blocks.*.layers.0.weight 64 64 0; model_type=\"medusa\"; "

static const struct form {
    const char *name;
    enum head_kind kind;
    bool shared, speculators;
    int width, vocab; // what it says of its target; 0: the bench's
    const char *changes;
} forms[] = {
    { .name = "medusa", .kind = HEAD_MEDUSA },
    { .name = "medusa_shared", .kind = HEAD_MEDUSA, .shared = true },
    { .name = "medusa_layers",
      .kind = HEAD_MEDUSA,
      .changes = "-*.1.weight; +*.1.linear.weight 64 64 0; +*.1.linear.bias 0 64 0; +*.2.weight 96 64 0" },
    { .name = "medusa_vllm",
      .kind = HEAD_MEDUSA,
      .shared = true,
      .changes = BLOCKS "+lm_heads.*.weight 32 64 0; @token_map 32 37 96; truncated_vocab_size=32" },
    { .name = "medusa_one",
      .kind = HEAD_MEDUSA,
      .shared = true,
      .changes = BLOCKS "+lm_heads.0.weight 96 64 0; original_lm_head=true" },
    { .name = "eagle", .kind = HEAD_EAGLE },
    { .name = "eagle_bias",
      .kind = HEAD_EAGLE,
      .changes = "+layers.0.self_attn.q_proj.bias 0 64 0; +layers.0.self_attn.k_proj.bias 0 32 0; "
                 "+layers.0.self_attn.v_proj.bias 0 32 0; qkv_bias=true; rope_theta=1e6; rms_norm_eps=1e-6" },
    { .name = "eagle_own",
      .kind = HEAD_EAGLE,
      .changes =
          "-fc.bias; +embed_tokens.weight 96 64 0; bias=false; rope_scaling={\"type\":\"linear\",\"factor\":2}" },
    { .name = "eagle_layers",
      .kind = HEAD_EAGLE,
      .changes = "+layers.1.self_attn.q_proj.weight 64 64 0; +layers.1.self_attn.k_proj.weight 32 64 0; "
                 "+layers.1.self_attn.v_proj.weight 32 64 0; +layers.1.self_attn.o_proj.weight 64 64 0; "
                 "+layers.1.mlp.gate_proj.weight 96 64 0; +layers.1.mlp.up_proj.weight 96 64 0; "
                 "+layers.1.mlp.down_proj.weight 64 96 0; +layers.1.input_layernorm.weight 0 64 1; "
                 "+layers.1.post_attention_layernorm.weight 0 64 1; num_hidden_layers=2" },
    { .name = "eagle_speculators", .kind = HEAD_EAGLE, .speculators = true },
    { .name = "eagle3", .kind = HEAD_EAGLE3 },
    { .name = "eagle3_narrow",
      .kind = HEAD_EAGLE3,
      .width = 48,
      .changes = "+fc.weight 48 192 0; +embed_tokens.weight 96 48 0; target_hidden_size=64" },
    { .name = "eagle3_speculators", .kind = HEAD_EAGLE3, .speculators = true },
    { .name = "eagle3_norm_output",
      .kind = HEAD_EAGLE3,
      .speculators = true,
      .changes = "norm_before_residual=false; norm_output=true" },
    { .name = "eagle3_fc_norm",
      .kind = HEAD_EAGLE3,
      .speculators = true,
      .changes = "norm_before_residual=false; fc_norm=true; +fc_norm.0.weight 0 64 1; +fc_norm.1.weight 0 64 1; "
                 "+fc_norm.2.weight 0 64 1" },
    { .name = "eagle3_norm_before_fc",
      .kind = HEAD_EAGLE3,
      .speculators = true,
      .changes = "norm_before_residual=false; norm_before_fc=true; +input_norm.weight 0 192 1" },
    // heads of other targets
    { .name = "medusa_32", .kind = HEAD_MEDUSA, .width = 32 },
    { .name = "medusa_of_90", .kind = HEAD_MEDUSA, .vocab = 90 },
    { .name = "eagle_32", .kind = HEAD_EAGLE, .width = 32 },
    { .name = "eagle_of_90", .kind = HEAD_EAGLE, .vocab = 90 },
    { .name = "eagle3_32", .kind = HEAD_EAGLE3, .width = 32 },
    { .name = "eagle3_of_90", .kind = HEAD_EAGLE3, .vocab = 90 },
};

enum head_kind form_write(const char *directory, const char *name, const char *changes)
{
    static void (*const write[])(const char *, const struct head_shape *) = {
        [HEAD_MEDUSA] = heads_write_medusa, [HEAD_EAGLE] = heads_write_eagle, [HEAD_EAGLE3] = heads_write_eagle3
    };
    size_t i = 0;
    while (i < sizeof(forms) / sizeof(*forms) && strcmp(forms[i].name, name) != 0)
        i++;
    if (i == sizeof(forms) / sizeof(*forms))
        fail_msg("there is no form %s", name);
    const struct form *f = &forms[i];
    const int width = f->width != 0 ? f->width : WIDTH;
    const struct head_shape s = { .width = width,
                                  .vocab = f->vocab != 0 ? f->vocab : VOCAB,
                                  .layers = LAYERS,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = width / 4,
                                  .hidden = 96,
                                  .draft_vocab = f->width != 0 ? 0 : DRAFT,
                                  .medusa_heads = 4,
                                  .shared = f->shared,
                                  .speculators = f->speculators,
                                  .seed = SEED };
    write[f->kind](directory, &s);
    if (f->changes != NULL)
        head_change(directory, f->changes);
    if (changes != NULL)
        head_change(directory, changes);
    return f->kind;
}

int64_t form_medusa_target_id(int i)
{
    return i * 37 % VOCAB; // not ascending, as an order by frequency is not
}
