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
#include "models/layer_tensors.h"
#include "models/packed_cache.h"
#include "models/model.h"
#include "models/weights.h"

enum { QUANTIZED_ROWS = 256 }; // rows that are converted at a time

// Returns the type of a matrix once it is loaded.
static enum type loaded_type(const struct tensor_loader *c, enum type type, int64_t width)
{
    const enum type wanted = type_chosen(QUANTIZE_CHOICES, c->quantize); // TYPES: none
    const bool changes = wanted != TYPES && !type_is_quantized(type) && width % type_facts[wanted].block == 0;
    return changes ? wanted : type;
}

// Returns the type that most of the bytes have.
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

static bool quantize_rows(struct backend *b, struct tensor w, enum type type, uint8_t *to, struct error *err)
{
    float *x = xmalloc((size_t)(QUANTIZED_ROWS * w.width) * sizeof(*x));
    bool ok = true;
    for (int64_t first = 0; ok && first < w.rows; first += QUANTIZED_ROWS) {
        const int64_t n = w.rows - first < QUANTIZED_ROWS ? w.rows - first : QUANTIZED_ROWS;
        ok = float_rows(b, w, first, n, x, err);
        for (int64_t i = 0; ok && i < n; i++, to += type_row_bytes(type, w.width))
            ok = quantize_floats(type, x + i * w.width, w.width, to) ||
                 fail(err, "row %" PRId64 " holds a number that is too large for %s", first + i, type_facts[type].name);
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
    if (type == w->type)
        return true;
    struct tensor to = tensor_of(xmalloc((size_t)w->rows * type_row_bytes(type, w->width)), type, w->rows, w->width);
    own(c, to.data);
    if (!quantize_rows(c->backend, *w, type, to.data, &why))
        return fail(err, "tensor %s: quantize: %s", name, why.text);
    *w = to;
    return true;
}

// Prepares a matrix like prepare, but reads the packed form from the cache without reading w's numbers. Returns false
// if the cache does not have it.
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
    if (!packed_cache_read(c->cache, w, packed, bytes)) {
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

bool load_part_of_matrix(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, int64_t first,
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

// Loads one RoPE's inverse frequencies (1, rotated / 2). divisors: as config_rope's.
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

bool load_ropes(struct tensor_loader *c, const struct model_config *config, struct tensor *to, struct error *err)
{
    const int head_dim = config->head_dim;
    return load_rope(c, &config->rope, head_dim, config->rope_short, &to[0], err) &&
           (config->rope.scaling != ROPE_LONG ||
            load_rope(c, &config->rope, head_dim, config->rope_long, &to[1], err)) &&
           (config->window_rope.theta == 0 || load_rope(c, &config->window_rope, head_dim, NULL, &to[1], err));
}

// ---- a layer

// Hugging Face's configuration declares biases for all four matrices. In GGUF the biases are those whose tensors exist.
static bool has_bias(const struct tensor_loader *c, const struct block_load *what, const char *name, bool of_o)
{
    const struct model_config *m = what->config;
    if (what->found_biases || (m->attention_bias && m->gguf))
        return weights_has(c->weights, name);
    return m->attention_bias && !(m->architecture->qkv_bias && of_o);
}

static bool load_tensor(struct tensor_loader *c, const struct block_load *what, const struct layer_tensor *t,
                        const int64_t size[OF_SIZES], struct block *to, struct error *err)
{
    struct tensor *const at = (void *)((char *)to + t->to), *const bias = (void *)((char *)to + t->bias);
    char name[160];
    snprintf(name, sizeof(name), "%s%s.weight", what->prefix, t->hf);
    if (t->rows == OF_NONE)
        return load_norm(c, what->config, name, size[t->width], at, err);
    if (!load_part_of_matrix(c, name, size[t->of_rows != OF_NONE ? t->of_rows : t->rows], size[t->width],
                             size[t->first], size[t->rows], at, err))
        return false;
    snprintf(name, sizeof(name), "%s%s.bias", what->prefix, t->hf);
    return t->bias == 0 || !has_bias(c, what, name, bias == &to->o_bias) ||
           load_vector(c, name, size[t->rows], bias, err);
}

// An expert's matrix is a separate tensor, or in GGUF the expert's rows of one tensor.
static bool load_experts(struct tensor_loader *c, const struct block_load *what, const struct model_shape *s,
                         struct experts *to, struct error *err)
{
    static const char *const names[][2] = { { "gate_proj", "w1" }, { "up_proj", "w3" }, { "down_proj", "w2" } };
    const struct model_config *config = what->config;
    const bool merged = config->gguf, mixtral = !merged && config->architecture->experts == MIXTRAL_EXPERTS;
    const char *block = mixtral ? "block_sparse_moe" : "mlp";
    const int n = config->experts;
    char name[192];
    *to = (struct experts){ .count = n,
                            .used = config->experts_used,
                            .normalized = config->experts_normalized,
                            .gate = xcalloc((size_t)n, sizeof(*to->gate)),
                            .up = xcalloc((size_t)n, sizeof(*to->up)),
                            .down = xcalloc((size_t)n, sizeof(*to->down)) };
    struct tensor *const matrix[] = { to->gate, to->up, to->down };
    snprintf(name, sizeof(name), "%s%s.gate.weight", what->prefix, block);
    if (!load_matrix(c, name, n, s->width, &to->router, err))
        return false;
    const size_t before = c->bytes;
    for (int i = 0; i < 3 * n; i++) {
        const int expert = i / 3, k = i % 3;
        const int64_t rows = k < 2 ? s->expert_hidden : s->width, width = k < 2 ? s->width : s->expert_hidden;
        if (merged)
            snprintf(name, sizeof(name), "%smlp.experts.%s.weight", what->prefix, names[k][0]);
        else
            snprintf(name, sizeof(name), "%s%s.experts.%d.%s.weight", what->prefix, block, expert, names[k][mixtral]);
        if (!load_part_of_matrix(c, name, merged ? rows * n : rows, width, merged ? rows * expert : 0, rows,
                                 &matrix[k][expert], err))
            return false;
    }
    c->expert_bytes += c->bytes - before;
    return true;
}

// Sets what the configuration says about the layer in addition to its tensors.
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
    const struct architecture *a = what->config->architecture;
    const int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    const int64_t size[OF_SIZES] = {
        [OF_WIDTH] = s->width,
        [OF_IN] = what->in,
        [OF_HEADS] = heads,
        [OF_KV] = kv,
        [OF_HEADS_KV] = heads + kv,
        [OF_QKV] = heads + 2 * kv,
        [OF_HIDDEN] = s->hidden,
        [OF_GATE_UP] = 2 * (int64_t)s->hidden,
        [OF_Q_NORM] = a->head_norms == NORMS_OF_HEADS ? s->head_dim : heads,
        [OF_K_NORM] = a->head_norms == NORMS_OF_HEADS ? s->head_dim : kv,
    };
    const bool mixture = what->config->experts > 0 && !layer_set_has(&what->config->dense, what->layer);
    set_attributes(what->config, what->layer, to);
    for (const struct layer_tensor *t = layer_tensors; t < layer_tensors_end; t++) {
        const bool other = t->to == OF_EXPERTS || (mixture && (t->rows == OF_HIDDEN || t->width == OF_HIDDEN)) ||
                           (t->to == offsetof(struct block, input_norm) && !what->input_norm);
        if (!other && layer_tensor_of(t, a) && !load_tensor(c, what, t, size, to, err))
            return false;
    }
    return !mixture || load_experts(c, what, s, &to->experts, err);
}

void blocks_free(struct block *block, int n)
{
    for (int l = 0; block != NULL && l < n; l++) {
        free(block[l].experts.gate);
        free(block[l].experts.up);
        free(block[l].experts.down);
    }
    free(block);
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
