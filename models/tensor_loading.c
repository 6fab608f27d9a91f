#include "models/tensor_loading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "kernels/backend.h"
#include "models/architectures.h"
#include "models/block.h"
#include "models/config.h"
#include "models/packed_cache.h"
#include "models/model.h"
#include "models/weights.h"

enum { QUANTIZED_ROWS = 256 }; // converted at a time

// The type of a matrix once it is loaded.
static enum type loaded_type(const struct tensor_loader *c, enum type type, int64_t width)
{
    static const enum type types[] = { [QUANTIZE_Q8_0] = Q8_0, [QUANTIZE_Q4_0] = Q4_0 };
    if (c->quantize == QUANTIZE_NONE || type_is_quantized(type) || width % type_facts[types[c->quantize]].block != 0)
        return type;
    return types[c->quantize];
}

// The type that most of the bytes have.
static enum type main_type(const struct tensor_loader *c)
{
    const struct weights *w = c->weights;
    size_t by_type[TYPES] = { 0 };
    int largest = 0;
    for (const struct weight *s = w->weight; s < w->weight + w->n; s++)
        if (s->known)
            by_type[s->tensor.rows > 1 ? loaded_type(c, s->tensor.type, s->tensor.width) : s->tensor.type] += s->bytes;
    for (int t = 1; t < TYPES; t++)
        if (by_type[t] > by_type[largest])
            largest = t;
    return (enum type)largest;
}

static bool has_memory(const struct tensor_loader *c, const char *path, struct error *err)
{
    char *what = xformat("the weights of %s", path);
    const bool ok = memory_check(c->backend, weights_bytes(c->weights), what, err);
    free(what);
    return ok;
}

bool tensor_loader_begin(struct tensor_loader *c, const char *path, struct error *err)
{
    if (!has_memory(c, path, err))
        return false;
    const enum type type = main_type(c);
    const enum activations wanted = c->activations;
    c->activations = c->backend->rounds_to(c->backend, wanted, type);
    if (c->activations == ACTIVATIONS_DEFAULT)
        return fail(err, "activations: %s: not supported by %s (expected f32 or bf16)", activations_names[wanted],
                    c->backend->name);
    return c->activations != ACTIVATIONS_INT8 || type_is_quantized(type) ||
           fail(err, "activations: int8 is for quantized weights; those of %s are %s (expected bf16 or f32)", path,
                type_facts[type].name);
}

static void remember(struct tensor ***list, int *n, struct tensor *to)
{
    *list = xrealloc(*list, (size_t)(*n + 1) * sizeof(**list));
    (*list)[(*n)++] = to;
}

static bool prepare(struct tensor_loader *c, struct tensor *to, struct tensor w, struct error *err)
{
    *to = c->backend->prepare(c->backend, w, c->activations, err);
    if (to->data == NULL)
        return false;
    remember(&c->matrix, &c->matrices, to);
    return true;
}

// Sets *bad to a row that the type cannot hold; -1: none.
static bool quantize_rows(struct backend *b, struct tensor w, enum type type, uint8_t *to, int64_t *bad,
                          struct error *err)
{
    const size_t row_bytes = type_row_bytes(type, w.width);
    float *x = xmalloc((size_t)(QUANTIZED_ROWS * w.width) * sizeof(*x));
    bool ok = true;
    *bad = -1;
    for (int64_t first = 0; ok && *bad < 0 && first < w.rows; first += QUANTIZED_ROWS) {
        const int64_t n = w.rows - first < QUANTIZED_ROWS ? w.rows - first : QUANTIZED_ROWS;
        ok = float_rows(b, w, first, n, x, err);
        for (int64_t i = 0; ok && *bad < 0 && i < n; i++)
            if (!quantize_floats(type, x + i * w.width, w.width, to + (size_t)(first + i) * row_bytes))
                *bad = first + i;
    }
    free(x);
    return ok;
}

static void own(struct tensor_loader *c, void *numbers)
{
    c->made = xrealloc(c->made, (size_t)(c->n_made + 1) * sizeof(*c->made));
    c->made[c->n_made++] = numbers;
}

// Replaces w by its quantized form, which belongs to the loader.
static bool quantize(struct tensor_loader *c, const char *name, struct tensor *w, struct error *err)
{
    const enum type type = loaded_type(c, w->type, w->width);
    struct error why;
    int64_t bad;
    if (type == w->type)
        return true;
    struct tensor to = tensor_of(xmalloc((size_t)w->rows * type_row_bytes(type, w->width)), type, w->rows, w->width);
    own(c, to.data);
    if (!quantize_rows(c->backend, *w, type, to.data, &bad, &why))
        return fail(err, "tensor %s: quantize: %s", name, why.text);
    if (bad >= 0)
        return fail(err, "tensor %s: quantize: row %" PRId64 " holds a number that is too large for %s", name, bad,
                    type_facts[type].name);
    *w = to;
    return true;
}

// As prepare, but reads the packed form from the cache; w's numbers are not read then. Returns false if it is not there.
static bool read_cached(struct tensor_loader *c, struct tensor *to, struct tensor w)
{
    struct backend *b = c->backend;
    struct error ignored;
    struct tensor out = tensor_of(NULL, w.type, w.rows, w.width);
    size_t bytes;
    if (c->cache == NULL || !packed_cache_is_usable(c->cache))
        return false;
    out = b->prepare(b, out, c->activations, &ignored);
    if (out.packed == NULL)
        return false;
    void *packed = b->packed(b, out, &bytes);
    if (!packed_cache_has(c->cache, w, bytes) || !packed_cache_read(c->cache, packed)) {
        b->unprepare(b, out);
        return false;
    }
    *to = out;
    to->data = w.data;
    remember(&c->matrix, &c->matrices, to);
    return true;
}

void load_count(struct tensor_loader *c, struct tensor w)
{
    c->bytes += tensor_bytes(w);
    c->bytes_by_type[w.type] += tensor_bytes(w);
}

// Rows first .. first + n of a matrix (rows, width).
static bool load_part_of_matrix(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, int64_t first,
                                int64_t n, struct tensor *to, struct error *err)
{
    struct tensor w;
    if (!weights_get_unchecked(c->weights, name, rows, width, &w, err))
        return false;
    w = tensor_rows(w, first, n);
    w.type = loaded_type(c, w.type, w.width);
    load_count(c, w);
    if (c->check_only || read_cached(c, to, w))
        return true;
    if (!weights_get(c->weights, name, rows, width, &w, err))
        return false;
    w = tensor_rows(w, first, n);
    const bool ok = quantize(c, name, &w, err) && prepare(c, to, w, err);
    if (ok && w.type == F8_E4M3 && to->data == w.data)
        to->data = to->packed; // the blocks are not read again
    if (ok)
        weights_drop(c->weights, name);
    return ok;
}

bool load_matrix(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, struct tensor *to,
                 struct error *err)
{
    return load_part_of_matrix(c, name, rows, width, 0, rows, to, err);
}

bool load_table(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, struct tensor *to,
                struct error *err)
{
    struct tensor w;
    if (c->check_only)
        return weights_get_unchecked(c->weights, name, rows, width, &w, err);
    return weights_get(c->weights, name, rows, width, &w, err) && quantize(c, name, &w, err) &&
           (read_cached(c, to, w) || prepare(c, to, w, err));
}

bool load_some_rows(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, const int32_t *id, int n,
                    struct tensor *to, struct error *err)
{
    struct tensor w;
    if (!weights_get(c->weights, name, rows, width, &w, err))
        return false;
    const size_t row_bytes = type_row_bytes(w.type, width);
    struct tensor some = tensor_of(xmalloc((size_t)n * row_bytes), w.type, n, width);
    own(c, some.data);
    for (int i = 0; i < n; i++)
        memcpy((uint8_t *)some.data + (size_t)i * row_bytes, (const uint8_t *)w.data + (size_t)id[i] * row_bytes,
               row_bytes);
    return quantize(c, name, &some, err) && prepare(c, to, some, err);
}

bool load_vector(struct tensor_loader *c, const char *name, int64_t width, struct tensor *to, struct error *err)
{
    struct backend *b = c->backend;
    struct tensor w;
    if (c->check_only) {
        if (!weights_get_unchecked(c->weights, name, 1, width, &w, err))
            return false;
        load_count(c, w);
        return true;
    }
    if (!weights_get(c->weights, name, 1, width, &w, err))
        return false;
    struct tensor stored = tensor_of(b->alloc(b, tensor_bytes(w)), w.type, 1, width);
    *to = rows_on(b, 1, width);
    remember(&c->vector, &c->vectors, to);
    const bool ok = stored.data != NULL && to->data != NULL;
    if (ok) {
        b->upload(b, stored.data, w.data, tensor_bytes(w));
        b->take(b, *to, stored, &(const int32_t){ 0 }); // converts to float
    }
    b->release(b, stored.data);
    load_count(c, w);
    return ok || fail(err, "%s: not enough memory for %s", b->name, name);
}

bool load_norm(struct tensor_loader *c, const struct model_config *config, const char *name, int64_t width,
               struct tensor *to, struct error *err)
{
    struct backend *b = c->backend;
    if (!load_vector(c, name, width, to, err))
        return false;
    if (c->check_only || config->gguf || !config->architecture->norms_from_zero)
        return true;
    const struct tensor ones = rows_on(b, 1, width);
    float *one = xmalloc((size_t)width * sizeof(*one));
    for (int64_t i = 0; i < width; i++)
        one[i] = 1;
    if (ones.data != NULL) {
        b->upload(b, ones.data, one, tensor_bytes(ones));
        b->add(b, *to, ones);
    }
    b->release(b, ones.data);
    free(one);
    return ones.data != NULL || fail(err, "%s: not enough memory for %s", b->name, name);
}

// One RoPE's (1, rotated / 2). divisors: as config_rope's.
static bool load_rope(struct tensor_loader *c, const struct rope *rope, int head_dim, const float *divisors,
                      struct tensor *to, struct error *err)
{
    struct backend *b = c->backend;
    if (c->check_only)
        return true;
    const int half = config_rotated(rope, head_dim) / 2;
    const size_t bytes = (size_t)half * sizeof(float);
    float *frequency = xcalloc((size_t)half, sizeof(float));
    config_rope(rope, head_dim, divisors, frequency);
    *to = tensor_of(b->alloc(b, bytes), F32, 1, half);
    remember(&c->vector, &c->vectors, to);
    if (to->data != NULL)
        b->upload(b, to->data, frequency, bytes);
    free(frequency);
    return to->data != NULL || fail(err, "%s: not enough memory for the RoPE frequencies", b->name);
}

bool load_ropes(struct tensor_loader *c, const struct model_config *config, const float *table, struct tensor *to,
                struct error *err)
{
    const bool is_long = config->rope.scaling == ROPE_LONG;
    const int head_dim = config->head_dim;
    return load_rope(c, &config->rope, head_dim, is_long ? config->rope_short : table, &to[0], err) &&
           (!is_long || load_rope(c, &config->rope, head_dim, config->rope_long, &to[1], err)) &&
           (config->window_rope.theta == 0 || load_rope(c, &config->window_rope, head_dim, NULL, &to[1], err));
}

// ---- a decoder layer

struct part {
    enum { MATRIX, NORM, BIAS } kind;
    const char *name;
    struct tensor *to;
    int64_t rows, width;
    int64_t first, all; // rows first .. first + rows of a matrix of `all` rows; all 0: the whole matrix
};

static bool has_bias(const struct tensor_loader *c, const struct block_load *what, const char *name, bool of_o)
{
    switch (what->biases) {
    case NO_BIASES:
        return false;
    case QKV_BIASES:
        return !of_o;
    case ALL_BIASES:
        return true;
    case FOUND_BIASES:
        return weights_has(c->weights, name);
    }
    return false;
}

static bool load_part(struct tensor_loader *c, const struct block_load *what, const struct part *p, struct block *to,
                      struct error *err)
{
    char name[160];
    snprintf(name, sizeof(name), "%s%s", what->prefix, p->name);
    if (p->kind == MATRIX)
        return load_part_of_matrix(c, name, p->all > 0 ? p->all : p->rows, p->width, p->first, p->rows, p->to, err);
    if (p->kind == NORM)
        return load_norm(c, what->config, name, p->width, p->to, err);
    return !has_bias(c, what, name, p->to == &to->o_bias) || load_vector(c, name, p->width, p->to, err);
}

// The layer's norms, under the names of its family: where there are two, or one behind, "post_attention" is of attention's output.
static int norm_parts(const struct block_load *what, const struct model_shape *s, struct block *to, struct part part[6])
{
    const struct architecture *a = what->config->architecture;
    const bool of_heads = a->head_norms == NORMS_OF_HEADS;
    int n = 0;
    if (what->input_norm && a->norms != NORMS_AFTER)
        part[n++] =
            (struct part){ .kind = NORM, .name = "input_layernorm.weight", .to = &to->input_norm, .width = s->width };
    if (a->norms == NORMS_BEFORE)
        part[n++] = (struct part){
            .kind = NORM, .name = "post_attention_layernorm.weight", .to = &to->ffn_norm, .width = s->width
        };
    else {
        part[n++] = (struct part){
            .kind = NORM, .name = "post_attention_layernorm.weight", .to = &to->out_norm, .width = s->width
        };
        part[n++] = (struct part){
            .kind = NORM, .name = "post_feedforward_layernorm.weight", .to = &to->ffn_out_norm, .width = s->width
        };
    }
    if (a->norms == NORMS_AROUND)
        part[n++] = (struct part){
            .kind = NORM, .name = "pre_feedforward_layernorm.weight", .to = &to->ffn_norm, .width = s->width
        };
    if (a->head_norms != NO_HEAD_NORMS) {
        part[n++] = (struct part){ .kind = NORM, .name = "self_attn.q_norm.weight", .to = &to->q_norm };
        part[n - 1].width = (int64_t)s->head_dim * (of_heads ? 1 : s->heads);
        part[n++] = (struct part){ .kind = NORM, .name = "self_attn.k_norm.weight", .to = &to->k_norm };
        part[n - 1].width = (int64_t)s->head_dim * (of_heads ? 1 : s->kv_heads);
    }
    return n;
}

// One expert's matrix: a tensor of its own, or in GGUF the expert's rows of one tensor.
static bool load_expert(struct tensor_loader *c, const struct block_load *what, const char *name, int expert,
                        int64_t rows, int64_t width, struct tensor *to, struct error *err)
{
    char full[192];
    const bool merged = what->config->gguf;
    if (merged)
        snprintf(full, sizeof(full), "%smlp.experts.%s.weight", what->prefix, name);
    else
        snprintf(full, sizeof(full), "%s%s.experts.%d.%s.weight", what->prefix,
                 what->config->architecture->experts == MIXTRAL_EXPERTS ? "block_sparse_moe" : "mlp", expert, name);
    return merged ? load_part_of_matrix(c, full, rows * what->config->experts, width, rows * expert, rows, to, err)
                  : load_matrix(c, full, rows, width, to, err);
}

static bool load_experts(struct tensor_loader *c, const struct block_load *what, const struct model_shape *s,
                         struct experts *to, struct error *err)
{
    const struct model_config *config = what->config;
    const bool mixtral = !config->gguf && config->architecture->experts == MIXTRAL_EXPERTS;
    const char *gate = mixtral ? "w1" : "gate_proj", *up = mixtral ? "w3" : "up_proj",
               *down = mixtral ? "w2" : "down_proj";
    char router[160];
    const size_t n = (size_t)config->experts;
    *to = (struct experts){ .count = config->experts,
                            .used = config->experts_used,
                            .normalized = config->experts_normalized,
                            .gate = xcalloc(n, sizeof(*to->gate)),
                            .up = xcalloc(n, sizeof(*to->up)),
                            .down = xcalloc(n, sizeof(*to->down)) };
    snprintf(router, sizeof(router), "%s%s.gate.weight", what->prefix, mixtral ? "block_sparse_moe" : "mlp");
    if (!load_matrix(c, router, config->experts, s->width, &to->router, err))
        return false;
    const size_t before = c->bytes;
    for (int i = 0; i < config->experts; i++)
        if (!load_expert(c, what, gate, i, s->expert_hidden, s->width, &to->gate[i], err) ||
            !load_expert(c, what, up, i, s->expert_hidden, s->width, &to->up[i], err) ||
            !load_expert(c, what, down, i, s->width, s->expert_hidden, &to->down[i], err))
            return false;
    c->expert_bytes += c->bytes - before;
    return true;
}

// What the configuration says about the layer, beside its tensors.
static void set_attributes(const struct model_config *c, int layer, struct block *to)
{
    const bool windowed = layer_set_has(&c->windowed, layer);
    to->attention = (struct attention){ .head_dim = c->head_dim,
                                        .scale = c->attention_scale,
                                        .cap = c->attention_cap,
                                        .window = windowed ? c->window : 0 };
    to->rope = layer_set_has(&c->unrotated, layer) ? -1 : windowed && c->window_rope.theta != 0;
    to->f = c->architecture->gate;
    to->residual_scale = c->residual_scale;
}

bool load_block(struct tensor_loader *c, const struct block_load *what, const struct model_shape *s, struct block *to,
                struct error *err)
{
    static const char *const qkv = "self_attn.qkv_proj.weight", *const gate_up = "mlp.gate_up_proj.weight";
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    const bool fused = what->config->architecture->fused;
    const struct part parts[] = {
        { MATRIX, fused ? qkv : "self_attn.q_proj.weight", &to->q, heads, what->in, 0, fused ? heads + 2 * kv : 0 },
        { MATRIX, fused ? qkv : "self_attn.k_proj.weight", &to->k, kv, what->in, fused ? heads : 0,
          fused ? heads + 2 * kv : 0 },
        { MATRIX, fused ? qkv : "self_attn.v_proj.weight", &to->v, kv, what->in, fused ? heads + kv : 0,
          fused ? heads + 2 * kv : 0 },
        { MATRIX, "self_attn.o_proj.weight", &to->o, s->width, heads, 0, 0 },
        { BIAS, "self_attn.q_proj.bias", &to->q_bias, 1, heads, 0, 0 },
        { BIAS, "self_attn.k_proj.bias", &to->k_bias, 1, kv, 0, 0 },
        { BIAS, "self_attn.v_proj.bias", &to->v_bias, 1, kv, 0, 0 },
        { BIAS, "self_attn.o_proj.bias", &to->o_bias, 1, s->width, 0, 0 },
        { MATRIX, fused ? gate_up : "mlp.gate_proj.weight", &to->gate, s->hidden, s->width, 0,
          fused ? 2 * (int64_t)s->hidden : 0 },
        { MATRIX, fused ? gate_up : "mlp.up_proj.weight", &to->up, s->hidden, s->width, fused ? s->hidden : 0,
          fused ? 2 * (int64_t)s->hidden : 0 },
        { MATRIX, "mlp.down_proj.weight", &to->down, s->width, s->hidden, 0, 0 },
    };
    const bool mixture = what->config->experts > 0 && !layer_set_has(&what->config->dense, what->layer);
    struct part norms[6];
    const int n = norm_parts(what, s, to, norms);
    set_attributes(what->config, what->layer, to);
    for (int i = 0; i < n; i++)
        if (!load_part(c, what, &norms[i], to, err))
            return false;
    const size_t n_parts = sizeof(parts) / sizeof(parts[0]) - (mixture ? 3 : 0); // gate, up and down are the last ones
    for (size_t i = 0; i < n_parts; i++)
        if (!load_part(c, what, &parts[i], to, err))
            return false;
    return !mixture || load_experts(c, what, s, &to->experts, err);
}

void block_free(struct block *w)
{
    free(w->experts.gate);
    free(w->experts.up);
    free(w->experts.down);
    w->experts = (struct experts){ 0 };
}

// ---- writing the cache, releasing

void tensor_loader_write_cache(struct tensor_loader *c)
{
    if (packed_cache_is_complete(c->cache))
        return;
    struct packed_matrix *p = xcalloc((size_t)c->matrices, sizeof(*p));
    for (int i = 0; i < c->matrices; i++) {
        p[i].w = *c->matrix[i];
        p[i].data = c->backend->packed(c->backend, p[i].w, &p[i].bytes);
    }
    packed_cache_write(c->cache, p, (size_t)c->matrices);
    free(p);
}

void tensor_loader_release(struct tensor_loader *c)
{
    for (int i = 0; i < c->matrices; i++)
        c->backend->unprepare(c->backend, *c->matrix[i]);
    for (int i = 0; i < c->vectors; i++)
        c->backend->release(c->backend, c->vector[i]->data);
    for (int i = 0; i < c->n_made; i++)
        free(c->made[i]);
    free(c->made);
    free(c->matrix);
    free(c->vector);
    c->matrix = c->vector = NULL;
    c->matrices = c->vectors = c->n_made = 0;
    c->made = NULL;
}
