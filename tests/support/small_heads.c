#include "tests/support/small_heads.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/memory.h"
#include "verifier/exact/instance.h"
#include "models/config.h"
#include "tests/formats/safetensors_write.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

enum { MAX_TENSORS = 64 };

struct contents {
    uint64_t seed;
    int n;
    struct safetensor tensor[MAX_TENSORS];
};

struct head_shape head_shape_of(const char *target)
{
    struct model_config c;
    struct error err;
    assert_ok(config_read(target, &c, &err), err);
    struct head_shape s = { .width = c.width,
                            .vocab = c.vocab,
                            .layers = c.layers,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 16,
                            .hidden = 96,
                            .draft_vocab = c.vocab / 3,
                            .medusa_heads = 4,
                            .seed = 5 };
    config_free(&c);
    return s;
}

static struct safetensor *add(struct contents *c, const char *dtype, size_t size, int64_t rows, int64_t width,
                              const char *name)
{
    assert_true(c->n < MAX_TENSORS);
    struct safetensor *t = &c->tensor[c->n++];
    *t = (struct safetensor){ .name = xstrdup(name), .dtype = dtype, .dims = rows > 0 ? 2 : 1 };
    t->dim[0] = rows > 0 ? rows : width;
    t->dim[1] = width;
    t->bytes = (size_t)((rows > 0 ? rows : 1) * width) * size;
    t->data = xcalloc(t->bytes, 1);
    return t;
}

// rows 0: a vector. Uniform numbers around `about`, scaled so that a product keeps the size of a row.
static void floats(struct contents *c, int64_t rows, int64_t width, float about, const char *form, ...)
{
    char name[96];
    va_list args;
    va_start(args, form);
    vsnprintf(name, sizeof(name), form, args);
    va_end(args);
    struct safetensor *t = add(c, "F32", sizeof(float), rows, width, name);
    float *to = (float *)(uintptr_t)t->data;
    uint64_t state = c->seed * 1000003;
    for (const char *at = name; *at != '\0'; at++)
        state = state * 31 + (unsigned char)*at;
    const float size = rows > 0 ? 1.7f / sqrtf((float)width) : 0.2f;
    for (size_t i = 0; i < t->bytes / sizeof(float); i++)
        to[i] = about + size * ((float)(splitmix(&state) >> 40) * 0x1p-23f - 1);
}

static void finish(struct contents *c, const char *directory, const char *config)
{
    struct error err;
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        fail_msg("%s cannot be made", directory);
    char *weights = xformat("%s/model.safetensors", directory), *file = xformat("%s/config.json", directory);
    assert_ok(safetensors_write(weights, c->tensor, (size_t)c->n, NULL, &err), err);
    file_write(file, config);
    free(weights);
    free(file);
    for (int i = 0; i < c->n; i++) {
        free((void *)(uintptr_t)c->tensor[i].name);
        free((void *)(uintptr_t)c->tensor[i].data);
    }
    free(c);
}

void heads_write_medusa(const char *directory, const struct head_shape *s)
{
    struct contents *c = xcalloc(1, sizeof(*c));
    c->seed = s->seed;
    for (int h = 0; h < s->medusa_heads; h++) {
        floats(c, s->width, s->width, 0, "%d.0.linear.weight", h);
        floats(c, 0, s->width, 0, "%d.0.linear.bias", h);
        if (!s->shared)
            floats(c, s->vocab, s->width, 0, "%d.1.weight", h);
    }
    finish(c, directory,
           "{\"medusa_num_heads\": 2, \"medusa_num_layers\": 1}"); // a wrong number, as in published heads
}

// The configuration of the layer, as members of a JSON object.
static char *layer_json(const struct head_shape *s)
{
    return xformat(
        "\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, \"vocab_size\": %d, "
        "\"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\"",
        s->width, s->hidden, s->heads, s->kv_heads, s->head_dim, s->vocab);
}

static void layer(struct contents *c, const struct head_shape *s, const char *prefix, int64_t in)
{
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    floats(c, heads, in, 0, "%sself_attn.q_proj.weight", prefix);
    floats(c, kv, in, 0, "%sself_attn.k_proj.weight", prefix);
    floats(c, kv, in, 0, "%sself_attn.v_proj.weight", prefix);
    floats(c, s->width, heads, 0, "%sself_attn.o_proj.weight", prefix);
    floats(c, s->hidden, s->width, 0, "%smlp.gate_proj.weight", prefix);
    floats(c, s->hidden, s->width, 0, "%smlp.up_proj.weight", prefix);
    floats(c, s->width, s->hidden, 0, "%smlp.down_proj.weight", prefix);
    floats(c, 0, s->width, 1, "%spost_attention_layernorm.weight", prefix);
}

void heads_write_eagle(const char *directory, const struct head_shape *s)
{
    struct contents *c = xcalloc(1, sizeof(*c));
    const char *const fc = s->speculators ? "fusion_fc" : "fc";
    char *numbers = layer_json(s), *config;
    c->seed = s->seed;
    floats(c, s->width, 2 * (int64_t)s->width, 0, "%s.weight", fc);
    floats(c, 0, s->width, 0, "%s.bias", fc);
    layer(c, s, s->speculators ? "transformer." : "layers.0.", s->width);
    config = s->speculators
                 ? xformat("{\"speculators_model_type\": \"eagle\", \"architectures\": [\"EagleSpeculator\"], "
                           "\"fusion_bias\": true, \"layernorms\": false, \"transformer_layer_config\": {%s}}",
                           numbers)
                 : xformat("{\"architectures\": [\"LlamaForCausalLM\"], %s}", numbers);
    finish(c, directory, config);
    free(config);
    free(numbers);
}

// Copies a tensor of a model, with column i multiplied by scale[i] (NULL: unchanged).
static void copy(struct contents *c, const struct small_model *from, const char *name, const float *scale)
{
    int64_t rows, width;
    char *full = xformat("model.%s", name);
    float *value = small_tensor(from, full, &rows, &width);
    struct safetensor *t = add(c, "F32", sizeof(float), rows > 1 ? rows : 0, width, name);
    for (int64_t i = 0; i < rows * width; i++)
        ((float *)(uintptr_t)t->data)[i] = value[i] * (scale != NULL ? scale[i % width] : 1);
    free(value);
    free(full);
}

void heads_write_eagle_of(const char *directory, const struct small_model *target)
{
    static const char *const parts[] = { "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
                                         "mlp.down_proj.weight", "post_attention_layernorm.weight" };
    struct contents *c = xcalloc(1, sizeof(*c));
    int64_t rows, width;
    float *embedding = small_tensor(target, "model.embed_tokens.weight", &rows, &width);
    float *norm = small_tensor(target, "model.layers.0.input_layernorm.weight", &(int64_t){ 0 }, &(int64_t){ 0 });
    double squares = 0;
    for (int64_t i = 0; i < rows * width; i++)
        squares += (double)embedding[i] * (double)embedding[i] / (double)(rows * width);
    for (int64_t i = 0; i < width; i++)
        norm[i] /= (float)sqrt(squares);
    float *fc = (float *)(uintptr_t)add(c, "F32", sizeof(float), width, 2 * width, "fc.weight")->data;
    for (int64_t i = 0; i < width; i++)
        fc[i * 2 * width + i] = 1;
    copy(c, target, "layers.0.self_attn.q_proj.weight", norm);
    copy(c, target, "layers.0.self_attn.k_proj.weight", norm);
    copy(c, target, "layers.0.self_attn.v_proj.weight", norm);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        char *name = xformat("layers.0.%s", parts[i]);
        copy(c, target, name, NULL);
        free(name);
    }
    const struct head_shape s = { .width = target->width,
                                  .vocab = target->vocab,
                                  .heads = target->heads,
                                  .kv_heads = target->kv_heads,
                                  .head_dim = target->head_dim,
                                  .hidden = target->hidden };
    char *numbers = layer_json(&s), *config = xformat("{\"bias\": false, %s}", numbers);
    finish(c, directory, config);
    free(config);
    free(numbers);
    free(embedding);
    free(norm);
}

static void vocabulary(struct contents *c, const struct head_shape *s)
{
    struct safetensor *d2t = add(c, "I64", 8, 0, s->draft_vocab, "d2t"), *t2d = add(c, "BOOL", 1, 0, s->vocab, "t2d");
    for (int i = 0; i < s->draft_vocab; i++) { // evenly spaced ids
        const int64_t id = (int64_t)i * s->vocab / s->draft_vocab;
        ((int64_t *)(uintptr_t)d2t->data)[i] = id - i;
        ((uint8_t *)(uintptr_t)t2d->data)[id] = 1;
    }
}

void heads_write_eagle3(const char *directory, const struct head_shape *s)
{
    struct contents *c = xcalloc(1, sizeof(*c));
    const char *const prefix = s->speculators ? "layers.0." : "midlayer.";
    const int draft = s->draft_vocab > 0 ? s->draft_vocab : s->vocab;
    char *numbers = layer_json(s), *ids = xstrdup("null"), *config;
    c->seed = s->seed;
    floats(c, s->width, 3 * (int64_t)s->width, 0, "fc.weight");
    layer(c, s, prefix, 2 * (int64_t)s->width);
    floats(c, 0, s->width, 1, "%sinput_layernorm.weight", prefix);
    floats(c, 0, s->width, 1, "%shidden_norm.weight", prefix);
    floats(c, 0, s->width, 1, "norm.weight");
    floats(c, draft, s->width, 0, "lm_head.weight");
    if (draft < s->vocab)
        vocabulary(c, s);
    if (s->layers < 7) {
        free(ids);
        ids = s->layers < 3 ? xstrdup("[0, 1, 2]") : xformat("[1, %d, %d]", s->layers / 2, s->layers);
    }
    config = s->speculators
                 ? xformat("{\"speculators_model_type\": \"eagle3\", \"architectures\": [\"Eagle3Speculator\"], "
                           "\"draft_vocab_size\": %d, \"norm_before_residual\": true, "
                           "\"eagle_aux_hidden_state_layer_ids\": %s, \"transformer_layer_config\": {%s}}",
                           draft, ids, numbers)
                 : xformat("{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"draft_vocab_size\": %d, "
                           "\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": %s}, %s}",
                           draft, ids, numbers);
    finish(c, directory, config);
    free(config);
    free(numbers);
    free(ids);
}
