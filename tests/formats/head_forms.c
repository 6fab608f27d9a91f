// head_forms.c - the published forms of heads, made from one another by edits.
#include "tests/formats/head_forms.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "tests/support/check.h"
#include "tests/formats/head_edit.h"
#include "tests/support/small_model.h"

static struct small_model target_of(int layers)
{
    return (struct small_model){ .vocab = VOCAB,
                                 .width = WIDTH,
                                 .hidden = 96,
                                 .layers = layers,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .seed = 21 };
}

struct head_shape form_shape(void)
{
    return (struct head_shape){ .width = WIDTH,
                                .vocab = VOCAB,
                                .layers = LAYERS,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .hidden = 96,
                                .draft_vocab = DRAFT,
                                .medusa_heads = 4,
                                .seed = SEED };
}

struct form_bench form_bench_open(int layers)
{
    struct form_bench b;
    struct error err;
    const struct small_model t = target_of(layers);
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

void form_medusa(const char *directory)
{
    const struct head_shape s = form_shape();
    heads_write_medusa(directory, &s);
}

void form_medusa_shared(const char *directory)
{
    struct head_shape s = form_shape();
    s.shared = true;
    heads_write_medusa(directory, &s);
}

void form_medusa_layers(const char *directory)
{
    form_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    for (int h = 0; h < 4; h++) {
        head_edit_drop(e, "%d.1.weight", h);
        head_edit_floats(e, WIDTH, WIDTH, 0, "%d.1.linear.weight", h);
        head_edit_floats(e, 0, WIDTH, 0, "%d.1.linear.bias", h);
        head_edit_floats(e, VOCAB, WIDTH, 0, "%d.2.weight", h);
    }
    head_edit_close(e);
}

// A Medusa head with vLLM's tensor names.
static struct head_edit *blocks(const char *directory)
{
    form_medusa_shared(directory);
    struct head_edit *e = head_edit_open(directory);
    for (int h = 0; h < 4; h++) {
        head_edit_drop(e, "%d.0.linear.weight", h);
        head_edit_drop(e, "%d.0.linear.bias", h);
        head_edit_floats(e, WIDTH, WIDTH, 0, "blocks.%d.layers.0.weight", h);
    }
    json_set(head_edit_config(e), "model_type", json_new_text("medusa"));
    return e;
}

int64_t form_medusa_target_id(int i)
{
    return i * 37 % VOCAB; // not ascending, as an order by frequency is not
}

void form_medusa_vllm(const char *directory)
{
    struct head_edit *e = blocks(directory);
    int64_t map[DRAFT];
    for (int i = 0; i < DRAFT; i++)
        map[i] = form_medusa_target_id(i);
    for (int h = 0; h < 4; h++)
        head_edit_floats(e, DRAFT, WIDTH, 0, "lm_heads.%d.weight", h);
    head_edit_ids(e, "token_map", map, DRAFT);
    json_set(head_edit_config(e), "truncated_vocab_size", json_new_int(DRAFT));
    head_edit_close(e);
}

void form_medusa_one(const char *directory)
{
    struct head_edit *e = blocks(directory);
    head_edit_floats(e, VOCAB, WIDTH, 0, "lm_heads.0.weight");
    json_set(head_edit_config(e), "original_lm_head", json_new_bool(true));
    head_edit_close(e);
}

void form_eagle(const char *directory)
{
    const struct head_shape s = form_shape();
    heads_write_eagle(directory, &s);
}

void form_eagle_speculators(const char *directory)
{
    struct head_shape s = form_shape();
    s.speculators = true;
    heads_write_eagle(directory, &s);
}

void form_eagle_bias(const char *directory)
{
    form_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, 64, 0, "layers.0.self_attn.q_proj.bias");
    head_edit_floats(e, 0, 32, 0, "layers.0.self_attn.k_proj.bias");
    head_edit_floats(e, 0, 32, 0, "layers.0.self_attn.v_proj.bias");
    json_set(head_edit_config(e), "qkv_bias", json_new_bool(true));
    json_set(head_edit_config(e), "rope_theta", json_new_number(1e6));
    json_set(head_edit_config(e), "rms_norm_eps", json_new_number(1e-6));
    head_edit_close(e);
}

void form_eagle_own(const char *directory)
{
    form_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    struct json *scaling = json_new_object();
    json_set(scaling, "type", json_new_text("linear"));
    json_set(scaling, "factor", json_new_number(2));
    head_edit_drop(e, "fc.bias");
    head_edit_floats(e, VOCAB, WIDTH, 0, "embed_tokens.weight");
    json_set(head_edit_config(e), "bias", json_new_bool(false));
    json_set(head_edit_config(e), "rope_scaling", scaling);
    head_edit_close(e);
}

void form_eagle_layers(const char *directory)
{
    form_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 64, WIDTH, 0, "layers.1.self_attn.q_proj.weight");
    head_edit_floats(e, 32, WIDTH, 0, "layers.1.self_attn.k_proj.weight");
    head_edit_floats(e, 32, WIDTH, 0, "layers.1.self_attn.v_proj.weight");
    head_edit_floats(e, WIDTH, 64, 0, "layers.1.self_attn.o_proj.weight");
    head_edit_floats(e, 96, WIDTH, 0, "layers.1.mlp.gate_proj.weight");
    head_edit_floats(e, 96, WIDTH, 0, "layers.1.mlp.up_proj.weight");
    head_edit_floats(e, WIDTH, 96, 0, "layers.1.mlp.down_proj.weight");
    head_edit_floats(e, 0, WIDTH, 1, "layers.1.input_layernorm.weight");
    head_edit_floats(e, 0, WIDTH, 1, "layers.1.post_attention_layernorm.weight");
    json_set(head_edit_config(e), "num_hidden_layers", json_new_int(2));
    head_edit_close(e);
}

void form_eagle3(const char *directory)
{
    const struct head_shape s = form_shape();
    heads_write_eagle3(directory, &s);
}

void form_eagle3_narrow(const char *directory)
{
    struct head_shape s = form_shape();
    s.width = 48;
    s.head_dim = 12;
    s.draft_vocab = 0;
    heads_write_eagle3(directory, &s);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 48, 3 * WIDTH, 0, "fc.weight");
    head_edit_floats(e, VOCAB, 48, 0, "embed_tokens.weight");
    json_set(head_edit_config(e), "target_hidden_size", json_new_int(WIDTH));
    head_edit_close(e);
}

void form_eagle3_speculators(const char *directory)
{
    struct head_shape s = form_shape();
    s.speculators = true;
    heads_write_eagle3(directory, &s);
}

// norm_before_residual is false, and the norm `key` is enabled.
struct head_edit *form_eagle3_with_norm(const char *directory, const char *key)
{
    form_eagle3_speculators(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "norm_before_residual", json_new_bool(false));
    json_set(head_edit_config(e), key, json_new_bool(true));
    return e;
}

void form_eagle3_norm_output(const char *directory)
{
    head_edit_close(form_eagle3_with_norm(directory, "norm_output"));
}

void form_eagle3_fc_norm(const char *directory)
{
    struct head_edit *e = form_eagle3_with_norm(directory, "fc_norm");
    for (int i = 0; i < 3; i++)
        head_edit_floats(e, 0, WIDTH, 1, "fc_norm.%d.weight", i);
    head_edit_close(e);
}

void form_eagle3_norm_before_fc(const char *directory)
{
    struct head_edit *e = form_eagle3_with_norm(directory, "norm_before_fc");
    head_edit_floats(e, 0, 3 * WIDTH, 1, "input_norm.weight");
    head_edit_close(e);
}

void form_eagle3_without_norm_key(const char *directory)
{
    form_eagle3_speculators(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "norm_before_residual", json_new_null());
    head_edit_close(e);
}
