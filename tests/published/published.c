#include "tests/published/published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/weights.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

// ---- targets

// clang-format off
const struct known_target vicuna_7b = { .name = "vicuna-7b-v1.3", .layers = 32, .width = 4096, .hidden = 11008, .heads = 32, .kv_heads = 32,
                                               .vocab = 32000, .old = true, .files = 2, .min_gb = 13.4 };
const struct known_target vicuna_13b = { .name = "vicuna-13b-v1.3", .layers = 40, .width = 5120, .hidden = 13824, .heads = 40, .kv_heads = 40,
                                                .vocab = 32000, .old = true, .files = 3, .min_gb = 26 };
const struct known_target llama_8b = { .name = "Llama-3.1-8B-Instruct", .layers = 32, .width = 4096, .hidden = 14336, .heads = 32, .kv_heads = 8,
                                              .vocab = 128256, .old = false, .files = 4, .min_gb = 16 };
const struct known_target llama_70b = { .name = "Llama-3.3-70B-Instruct", .layers = 80, .width = 8192, .hidden = 28672, .heads = 64, .kv_heads = 8,
                                               .vocab = 128256, .old = false, .files = 30, .min_gb = 141 };
// clang-format on

static void add_experts(struct sparse *s, const struct known_target *t, const char *prefix)
{
    const bool mixtral = strncmp(t->router, "block", 5) == 0;
    const char *const names[] = { mixtral ? "w1" : "gate_proj", mixtral ? "w3" : "up_proj",
                                  mixtral ? "w2" : "down_proj" };
    char *router = xformat("%s%sgate.weight", prefix, t->router);
    sparse_add(s, "BF16", t->experts, t->width, router);
    free(router);
    for (int e = 0; e < t->experts; e++)
        for (int i = 0; i < 3; i++) {
            char *name = xformat("%s%sexperts.%d.%s.weight", prefix, t->router, e, names[i]);
            sparse_add(s, "BF16", i < 2 ? t->expert_hidden : t->width, i < 2 ? t->width : t->expert_hidden, name);
            free(name);
        }
}

// in: width of the input of q, k and v. own: with an input norm, and with what layers of the target's family have beside Llama's.
static void add_layer(struct sparse *s, const struct known_target *t, const char *dtype, const char *prefix, int64_t in,
                      bool own)
{
    const int64_t size = t->head_dim > 0 ? t->head_dim : t->width / t->heads, q = size * t->heads,
                  kv = size * t->kv_heads;
    const bool experts = own && t->experts > 0;
    const struct {
        const char *name;
        int64_t rows, width;
        bool has;
    } parts[] = {
        { "input_layernorm.weight", 0, t->width, own },
        { "post_attention_layernorm.weight", 0, t->width, true },
        { "pre_feedforward_layernorm.weight", 0, t->width, own && t->output_norms },
        { "post_feedforward_layernorm.weight", 0, t->width, own && t->output_norms },
        { "self_attn.q_norm.weight", 0, size, own && t->head_norms },
        { "self_attn.k_norm.weight", 0, size, own && t->head_norms },
        { "self_attn.q_proj.bias", 0, q, own && t->qkv_bias },
        { "self_attn.k_proj.bias", 0, kv, own && t->qkv_bias },
        { "self_attn.v_proj.bias", 0, kv, own && t->qkv_bias },
        { "self_attn.rotary_emb.inv_freq", 0, size / 2, own && t->old },
        { "self_attn.q_proj.weight", q, in, true },
        { "self_attn.k_proj.weight", kv, in, true },
        { "self_attn.v_proj.weight", kv, in, true },
        { "self_attn.o_proj.weight", t->width, q, true },
        { "mlp.gate_proj.weight", t->hidden, t->width, !experts },
        { "mlp.up_proj.weight", t->hidden, t->width, !experts },
        { "mlp.down_proj.weight", t->width, t->hidden, !experts },
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        char name[96];
        snprintf(name, sizeof(name), "%s%s", prefix, parts[i].name);
        if (parts[i].has)
            sparse_add(s, strstr(name, "inv_freq") != NULL ? "F32" : dtype, parts[i].rows, parts[i].width, name);
    }
    if (experts)
        add_experts(s, t, prefix);
}

static char *llama_config(const struct known_target *t)
{
    return xformat(
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", "
        "\"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
        "\"num_hidden_layers\": %d, \"tie_word_embeddings\": false, \"vocab_size\": %d, \"torch_dtype\": \"%s\", %s}",
        t->width, t->hidden, t->heads, t->kv_heads, t->layers, t->vocab, t->old ? "float16" : "bfloat16",
        t->old ? "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": 0, \"max_position_embeddings\": 2048, "
                 "\"rms_norm_eps\": 1e-06"
               : "\"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008, 128009], \"max_position_embeddings\": "
                 "131072, \"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0, \"attention_bias\": false, "
                 "\"rope_scaling\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
                 "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}");
}

// Vicuna: float16, with RoPE's frequencies. All others: bfloat16.
void published_target(const char *directory, const struct known_target *t)
{
    const char *const begin = t->images ? "language_model." : "", *const dtype = t->old ? "F16" : "BF16";
    struct sparse s = { 0 };
    char name[96];
    if (t->images) {
        sparse_add(&s, "BF16", 1152, 4304, "vision_tower.some.weight");
        sparse_add(&s, "BF16", 1152, t->width, "multi_modal_projector.some.weight");
    }
    snprintf(name, sizeof(name), "%smodel.embed_tokens.weight", begin);
    sparse_add(&s, dtype, t->vocab, t->width, name);
    for (int l = 0; l < t->layers; l++) {
        snprintf(name, sizeof(name), "%smodel.layers.%d.", begin, l);
        add_layer(&s, t, dtype, name, t->width, true);
    }
    snprintf(name, sizeof(name), "%smodel.norm.weight", begin);
    sparse_add(&s, dtype, 0, t->width, name);
    snprintf(name, sizeof(name), "%slm_head.weight", begin);
    if (!t->tied)
        sparse_add(&s, dtype, t->vocab, t->width, name);
    assert_true((double)sparse_bytes(&s) > t->min_gb * 1e9);
    char *config = t->config != NULL ? xstrdup(t->config) : llama_config(t);
    sparse_write(directory, &s, t->files, config);
    sparse_free(&s);
    free(config);
}

struct model_shape published_shape(const struct known_target *t)
{
    struct error err = { "" };
    struct model_config c;
    struct weights *w = NULL;
    char *path = test_path(t->name);
    published_target(path, t);
    if (!config_read(path, &c, &err) || (w = weights_open(&c, &err)) == NULL || !model_check(&c, w, &err))
        fail_msg("%s: %s", t->name, err.text);
    const struct model_shape shape = model_shape_of(&c);
    weights_close(w);
    config_free(&c);
    free(path);
    return shape;
}

static char *layer_config(const struct known_target *t, const char *more)
{
    char size[32] = "";
    if (t->head_dim > 0 && strstr(more, "head_dim") == NULL)
        snprintf(size, sizeof(size), ", \"head_dim\": %d", t->head_dim);
    return xformat(
        "\"hidden_act\": \"silu\", \"hidden_size\": %d, \"initializer_range\": 0.02, \"intermediate_size\": %d, "
        "\"max_position_embeddings\": 2048, \"model_type\": \"llama\", \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": %d, \"num_hidden_layers\": 1, \"rms_norm_eps\": 1e-05, "
        "\"tie_word_embeddings\": false, \"vocab_size\": %d%s%s",
        t->width, t->hidden, t->heads, t->kv_heads, t->vocab, size, more);
}

// ---- heads

static void write_eagle(const char *directory, const struct known_target *t, bool bias, bool embedding)
{
    struct sparse s = { 0 };
    if (embedding)
        sparse_add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    sparse_add(&s, "BF16", t->width, 2 * (int64_t)t->width, "fc.weight");
    if (bias)
        sparse_add(&s, "BF16", 0, t->width, "fc.bias");
    add_layer(&s, t, "BF16", "layers.0.", t->width, false);
    if (t->qkv_bias) {
        const int64_t kv = (int64_t)t->width / t->heads * t->kv_heads;
        sparse_add(&s, "BF16", 0, t->width, "layers.0.self_attn.q_proj.bias");
        sparse_add(&s, "BF16", 0, kv, "layers.0.self_attn.k_proj.bias");
        sparse_add(&s, "BF16", 0, kv, "layers.0.self_attn.v_proj.bias");
    }
    char *layer = layer_config(t, bias          ? ""
                                  : t->qkv_bias ? ", \"bias\": false, \"qkv_bias\": true"
                                                : ", \"bias\": false");
    char *config = xformat("{\"architectures\": [\"LlamaForCausalLM\"], \"torch_dtype\": \"float16\", %s}", layer);
    sparse_write(directory, &s, 1, config);
    sparse_free(&s);
    free(layer);
    free(config);
}

static void write_eagle3(const char *directory, const struct known_target *t, bool speculators, bool embedding)
{
    enum { DRAFT = 32000 };
    struct sparse s = { 0 };
    const char *prefix = speculators ? "layers.0." : "midlayer.";
    char name[64];
    const bool reduced = t->vocab > DRAFT;
    sparse_add(&s, "I64", 0, DRAFT, "d2t");
    sparse_add(&s, "BOOL", 0, t->vocab, "t2d")->ones = reduced ? DRAFT : t->vocab; // consistent with a d2t of zeros
    if (embedding)
        sparse_add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    sparse_add(&s, "BF16", t->width, 3 * (int64_t)t->width, "fc.weight");
    sparse_add(&s, "BF16", DRAFT, t->width, "lm_head.weight");
    sparse_add(&s, "BF16", 0, t->width, "norm.weight");
    snprintf(name, sizeof(name), "%shidden_norm.weight", prefix);
    sparse_add(&s, "BF16", 0, t->width, name);
    snprintf(name, sizeof(name), "%sinput_layernorm.weight", prefix);
    sparse_add(&s, "BF16", 0, t->width, name);
    add_layer(&s, t, "BF16", prefix, 2 * (int64_t)t->width, false);
    char *layer = layer_config(t, speculators ? ", \"head_dim\": 128, \"rope_theta\": 10000.0, \"rope_scaling\": null, "
                                                "\"attention_bias\": false, \"mlp_bias\": false"
                                              : "");
    char *config =
        speculators
            ? xformat("{\"architectures\": [\"Eagle3Speculator\"], \"speculators_model_type\": \"eagle3\", "
                      "\"speculators_version\": \"0.1.0.dev14\", \"draft_vocab_size\": %d, "
                      "\"norm_before_residual\": false, \"target_hidden_size\": null, "
                      "\"eagle_aux_hidden_state_layer_ids\": null, \"norm_before_fc\": false, \"fc_norm\": false, "
                      "\"norm_output\": false, \"transformer_layer_config\": {%s}}",
                      DRAFT, layer)
            : xformat("{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"draft_vocab_size\": %d, %s}", DRAFT, layer);
    sparse_write(directory, &s, 1, config);
    sparse_free(&s);
    free(layer);
    free(config);
}

void published_eagle_speculators(const char *directory, const struct known_target *t)
{
    struct sparse s = { 0 };
    sparse_add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    sparse_add(&s, "BF16", t->width, 2 * (int64_t)t->width, "fusion_fc.weight");
    add_layer(&s, t, "BF16", "transformer.", t->width, false);
    char *layer = layer_config(t, ", \"rope_theta\": 500000.0");
    char *config =
        xformat("{\"architectures\": [\"EagleSpeculator\", \"LlamaDecoderLayer\"], \"speculators_model_type\": "
                "\"eagle\", \"fusion_bias\": false, \"layernorms\": false, \"transformer_layer_config\": {%s}}",
                layer);
    sparse_write(directory, &s, 1, config);
    sparse_free(&s);
    free(layer);
    free(config);
}

static void write_medusa(const char *directory, const struct known_target *t, bool shared)
{
    struct sparse s = { 0 };
    for (int h = 0; h < 5; h++) {
        char name[64];
        snprintf(name, sizeof(name), "%d.0.linear.weight", h);
        sparse_add(&s, "F16", t->width, t->width, name);
        snprintf(name, sizeof(name), "%d.0.linear.bias", h);
        sparse_add(&s, "F16", 0, t->width, name);
        snprintf(name, sizeof(name), "%d.1.weight", h);
        if (!shared)
            sparse_add(&s, "F16", t->vocab, t->width, name);
    }
    char *config = xformat(
        "{\"medusa_num_heads\": 2, \"medusa_num_layers\": 1, \"base_model_name_or_path\": \"lmsys/%s\"}", t->name);
    sparse_write(directory, &s, 1, config);
    sparse_free(&s);
    free(config);
}

// clang-format off
void published_eagle1(const char *to, const struct known_target *t) { write_eagle(to, t, true, true); }
void published_eagle2(const char *to, const struct known_target *t) { write_eagle(to, t, false, true); }
void published_eagle3(const char *to, const struct known_target *t) { write_eagle3(to, t, false, false); }
void published_eagle3_speculators(const char *to, const struct known_target *t) { write_eagle3(to, t, true, true); }
void published_medusa(const char *to, const struct known_target *t) { write_medusa(to, t, false); }
void published_medusa_shared(const char *to, const struct known_target *t) { write_medusa(to, t, true); }
// clang-format on
