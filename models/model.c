#include "models/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/architectures.h"
#include "models/block.h"
#include "models/tensor_loading.h"
#include "models/config.h"
#include "models/packed_cache.h"
#include "models/kv_cache.h"
#include "models/unused_tensors.h"
#include "models/weights.h"

struct model {
    struct backend *backend;
    struct model_config config;
    struct weights *weights;
    struct model_shape shape;
    struct tensor_loader tensor_loader;
    struct tensor embedding, head, norm; // head: the embedding if they are tied
    struct tensor some;                  // rows of the head, if it is restricted
    struct block *block;                 // (layers)
    struct scratch scratch;
    int rows;              // maximum rows of a pass
    struct tensor x, last; // (rows, width), as below with padding
    struct tensor tapped;  // (rows, width * taps), allocated for most_taps by the first pass with as many
    int most_taps;
};

static bool load_layer(struct model *m, int layer, struct error *err)
{
    char prefix[32];
    snprintf(prefix, sizeof(prefix), "model.layers.%d.", layer);
    const struct block_load what = {
        .config = &m->config, .layer = layer, .prefix = prefix, .in = m->shape.width, .input_norm = true
    };
    return load_block(&m->tensor_loader, &what, &m->shape, &m->block[layer], err);
}

// The configuration has the RoPE divisors that a tensor repeats, so the tensors count as used.
static void mark_divisors(struct model *m)
{
    static const char *const names[] = { "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight" };
    for (int i = 0; i < 3 && m->config.gguf; i++) {
        struct weight *t = weights_find(m->weights, names[i]);
        if (t != NULL)
            t->requested |= m->config.rope.scaling == (i == 0 ? ROPE_TABLE : ROPE_LONG);
    }
}

static bool load_tensors(struct model *m, struct error *err)
{
    const struct model_shape *s = &m->shape;
    struct tensor_loader *c = &m->tensor_loader;
    mark_divisors(m);
    if (!load_ropes(c, &m->config, m->shape.inverse_frequency, err))
        return false;
    m->block = xcalloc((size_t)s->layers, sizeof(*m->block));
    for (int l = 0; l < s->layers; l++)
        if (!load_layer(m, l, err))
            return false;
    if (!load_norm(c, &m->config, "model.norm.weight", s->width, &m->norm, err) ||
        !load_table(c, "model.embed_tokens.weight", s->vocab, s->width, &m->embedding, err))
        return false;
    if (!m->config.tied)
        return load_matrix(c, "lm_head.weight", s->vocab, s->width, &m->head, err);
    m->head = m->embedding;
    load_count(c, m->head);
    return true;
}

// transformers would ignore the stored head and compute with the embedding.
static bool tied_head_is_equal(const struct model_config *c, struct weights *w, struct error *err)
{
    struct tensor embedding, head;
    if (!c->tied || !weights_has(w, "lm_head.weight"))
        return true;
    if (!weights_get_unchecked(w, "model.embed_tokens.weight", c->vocab, c->width, &embedding, err) ||
        !weights_get_unchecked(w, "lm_head.weight", c->vocab, c->width, &head, err))
        return false;
    return (embedding.type == head.type && memcmp(embedding.data, head.data, tensor_bytes(head)) == 0) ||
           fail(err,
                "%s: tie_word_embeddings is true, but lm_head.weight is not equal to "
                "model.embed_tokens.weight",
                c->file);
}

static bool all_are_used(const struct model_config *c, const struct weights *w, struct error *err)
{
    char *reason = xformat("not supported in architecture %s", c->architecture->name),
         *key = c->gguf ? xformat("%s.block_count", c->architecture->name) : xstrdup("num_hidden_layers");
    // Medusa-2: no logit of the model depends on its heads.
    static const char *const ignored[] = { "medusa_head.", NULL };
    const struct loaded loaded = {
        .ignored = ignored, .reason = reason, .config = c->file, .layers_key = key, .layers = c->layers
    };
    const bool ok = unused_tensors_refuse(w, &loaded, err);
    free(reason);
    free(key);
    return ok;
}

bool model_check(const struct model_config *c, struct weights *w, struct error *err)
{
    struct model m = {
        .config = *c, .weights = w, .shape = model_shape_of(c), .tensor_loader = { .weights = w, .check_only = true }
    };
    const bool ok = load_tensors(&m, err) && tied_head_is_equal(c, w, err) && all_are_used(c, w, err);
    blocks_free(m.block, m.shape.layers);
    return ok;
}

static bool allocate(struct model *m, struct tensor *t, int64_t width, struct error *err)
{
    struct backend *b = m->backend;
    b->release(b, t->data);
    *t = rows_on(b, rows_queued(b, m->rows), width);
    return t->data != NULL || fail(err, "%s: not enough memory for a pass of %d rows", b->name, m->rows);
}

static bool set_rows(struct model *m, int rows, struct error *err)
{
    struct backend *b = m->backend;
    m->rows = rows;
    scratch_destroy(&m->scratch, b);
    b->release(b, m->tapped.data);
    m->tapped = (struct tensor){ 0 };
    m->most_taps = 0;
    return allocate(m, &m->x, m->config.width, err) && allocate(m, &m->last, m->config.width, err) &&
           (scratch_create(&m->scratch, b, &m->shape, rows_queued(b, rows)) ||
            fail(err, "%s: not enough memory for a pass of %d rows", b->name, rows));
}

bool model_reserve(struct model *m, int rows, struct error *err)
{
    const int had = m->rows;
    if (rows <= had)
        return true;
    if (had > 0 && !m->backend->sync(m->backend, err)) // queued passes use the memory
        return false;
    if (set_rows(m, rows, err))
        return true;
    struct error ignored;
    if (had > 0 && !set_rows(m, had, &ignored))
        m->rows = 0; // no pass is possible any more
    return false;
}

struct model *model_open_as(const char *path, struct backend *b, enum activations a, enum quantize quantize, int rows,
                            char **message, struct error *err)
{
    struct model *m = xcalloc(1, sizeof(*m));
    m->backend = b;
    bool ok = config_read(path, &m->config, err);
    if (ok) {
        const struct model_config *c = &m->config;
        m->shape = model_shape_of(c);
        m->weights = weights_open(c, err);
        m->tensor_loader =
            (struct tensor_loader){ .backend = b, .weights = m->weights, .activations = a, .quantize = quantize };
        if (m->weights != NULL && message != NULL && b->packed_layout != 0)
            m->tensor_loader.cache = packed_cache_open(c, m->weights, b->packed_layout);
        ok = m->weights != NULL && model_check(c, m->weights, err) &&
             tensor_loader_begin(&m->tensor_loader, c->path, err) && load_tensors(m, err) &&
             model_reserve(m, rows, err) && b->sync(b, err);
    }
    if (ok && m->tensor_loader.cache != NULL) {
        tensor_loader_write_cache(&m->tensor_loader);
        *message = packed_cache_message(m->tensor_loader.cache);
    }
    packed_cache_close(m->tensor_loader.cache);
    m->tensor_loader.cache = NULL;
    if (ok)
        return m;
    model_close(m);
    return NULL;
}

struct model *model_open(const char *path, struct backend *b, enum activations a, int rows, struct error *err)
{
    return model_open_as(path, b, a, QUANTIZE_NONE, rows, NULL, err);
}

bool model_restrict_head(struct model *m, const int32_t *id, int n, struct error *err)
{
    const char *name = m->config.tied ? "model.embed_tokens.weight" : "lm_head.weight";
    if (!load_some_rows(&m->tensor_loader, name, m->shape.vocab, m->shape.width, id, n, &m->some, err))
        return false;
    load_count(&m->tensor_loader, m->some);
    return true;
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    struct backend *b = m->backend;
    tensor_loader_release(&m->tensor_loader);
    b->release(b, m->x.data);
    b->release(b, m->last.data);
    b->release(b, m->tapped.data);
    scratch_destroy(&m->scratch, b);
    weights_close(m->weights);
    config_free(&m->config);
    blocks_free(m->block, m->shape.layers);
    free(m);
}

struct model_shape model_shape_of(const struct model_config *c)
{
    return (struct model_shape){ .layers = c->layers,
                                 .width = c->width,
                                 .heads = c->heads,
                                 .kv_heads = c->kv_heads,
                                 .head_dim = c->head_dim,
                                 .hidden = c->hidden,
                                 .vocab = c->vocab,
                                 .context = c->context,
                                 .experts = c->experts,
                                 .experts_used = c->experts_used,
                                 .expert_hidden = c->expert_hidden,
                                 .norm_eps = c->norm_eps,
                                 .angle_factor = { c->rope.angle_factor, c->window_rope.angle_factor },
                                 .long_from = c->rope.scaling == ROPE_LONG ? c->rope.original : 0 };
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->shape;
}

const struct model_config *model_config(const struct model *m)
{
    return &m->config;
}

struct backend *model_backend(const struct model *m)
{
    return m->backend;
}

int model_rows(const struct model *m)
{
    return m->rows;
}

size_t model_bytes(const struct model *m)
{
    return m->tensor_loader.bytes;
}

double model_bytes_read(const struct model *m, double experts)
{
    const struct tensor_loader *c = &m->tensor_loader;
    const int all = config_mixed_layers(&m->config) * m->config.experts;
    return (double)(c->bytes - c->expert_bytes) + (all > 0 ? (double)c->expert_bytes * experts / all : 0);
}

double model_pass_bytes(const struct model *m, int n)
{
    return model_bytes_read(m, config_mixed_layers(&m->config) * config_experts_expected(&m->config, n));
}

int64_t model_experts_touched(const struct model *m)
{
    return m->scratch.experts.touched;
}

size_t model_table_bytes(const struct model *m)
{
    return m->config.tied ? 0 : tensor_bytes(m->embedding);
}

size_t model_scratch_bytes(const struct model_shape *s, int rows)
{
    size_t floats = 3 * (size_t)s->width + 2 * (size_t)s->heads * (size_t)s->head_dim +
                    2 * (size_t)s->kv_heads * (size_t)s->head_dim + (size_t)s->hidden + (size_t)s->head_dim;
    return floats * (size_t)rows * sizeof(float);
}

struct hash model_hash(const struct model *m)
{
    return weights_hash(m->weights);
}

struct hash model_identity(const struct model *m)
{
    struct digest *d = digest_begin();
    digest_hash(d, weights_hash(m->weights));
    digest_hash(d, m->config.hash);
    return digest_end(d);
}

const char *model_type(const struct model *m)
{
    int largest = 0;
    for (int t = 1; t < TYPES; t++)
        if (m->tensor_loader.bytes_by_type[t] > m->tensor_loader.bytes_by_type[largest])
            largest = t;
    return type_facts[largest].name;
}

enum activations model_activations(const struct model *m)
{
    return m->tensor_loader.activations;
}

const char *model_unused(const struct model *m, size_t i)
{
    return weights_unused(m->weights, i);
}

struct kv_shape model_shape_kv(const struct model_shape *s, int slots, int length, int pending)
{
    return (struct kv_shape){ .layers = s->layers,
                              .width = s->kv_heads * s->head_dim,
                              .head_dim = s->head_dim,
                              .slots = slots,
                              .length = length,
                              .pending = pending,
                              .type = F32 };
}

struct kv_shape model_kv_shape(const struct model *m, int slots, int length, int pending)
{
    struct kv_shape shape = model_shape_kv(&m->shape, slots, length, pending);
    shape.window = m->config.window;
    shape.windowed = m->config.windowed;
    return shape;
}

// Copies the residual stream that enters layer `layer` to every tap of that layer.
static void tap(struct model *m, const struct taps *taps, int layer, struct tensor x)
{
    for (int i = 0; i < taps->n; i++)
        if (taps->layer[i] == layer)
            m->backend->place(m->backend, m->tapped, i * m->shape.width, x);
}

static bool allocate_tapped(struct model *m, int taps, struct error *err)
{
    if (taps > m->most_taps) {
        m->backend->release(m->backend, m->tapped.data);
        m->tapped = (struct tensor){ 0 };
        m->most_taps = 0;
        if (!allocate(m, &m->tapped, (int64_t)taps * m->shape.width, err))
            return false;
        m->most_taps = taps;
    }
    m->tapped.width = (int64_t)taps * m->shape.width;
    return true;
}

// Returns `last`, with its rounded form if the last operation left one. layer: (n); NULL: all layers.
static struct tensor run_layers(struct model *m, struct kv_cache *c, const struct layout *layout,
                                const struct taps *taps, const int *layer, int n, struct tensor x, struct tensor last)
{
    struct backend *b = m->backend;
    b->embed(b, x, m->embedding, layout);
    if (m->config.embedding_scale != 0)
        b->rescale(b, x, m->config.embedding_scale, 0);
    block_angles(b, &m->shape, layout, &m->scratch);
    for (int i = 0; i < n; i++) {
        const int l = layer != NULL ? layer[i] : i;
        tap(m, taps, l, x);
        const struct tensor norm = m->block[l].input_norm,
                            h = norm.data != NULL ? b->rmsnorm(b, m->scratch.h, x, norm, m->shape.norm_eps) : x;
        block_forward(b, &m->block[l], &m->shape, l, c, layout, &m->scratch, x, h);
    }
    tap(m, taps, m->shape.layers, x);
    last = b->rmsnorm(b, last, x, m->norm, m->shape.norm_eps);
    tap(m, taps, FINAL_STATE, last);
    return last;
}

enum { LAYER_BITS = 31, ANY_LAYERS = LAYER_BITS * MAX_TAPS }; // bits of the facts in a graph's key

static struct graph_key graph_key_of(const struct model *m, const struct kv_cache *c, const struct layout *layout,
                                     const struct taps *taps, const int *layer, int n)
{
    struct graph_key key = { .see = layout, .whose = m, .cache = c, .fact = { layer != NULL ? -1 : taps->n } };
    _Static_assert((int)MAX_TAPS < (int)GRAPH_KEY_FACTS, "the key holds all taps");
    for (int i = 0; i < taps->n; i++)
        key.fact[1 + i] = taps->layer[i];
    for (int i = 0; i < n && layer != NULL; i++)
        key.fact[1 + layer[i] / LAYER_BITS] |= 1 << layer[i] % LAYER_BITS;
    return key;
}

static bool forward(struct model *m, struct kv_cache *c, const struct pass *p, const struct taps *taps,
                    const int *layer, int n, struct states *out, struct error *err)
{
    struct backend *b = m->backend;
    const bool waits =
        m->shape.experts > 0; // the router's scores need a wait, so there is no graph, and no padding, which would read
                              // experts
    const int rows = waits ? p->n : rows_queued(b, p->n);
    assert(p->n >= 1 && p->n <= m->rows);
    if (taps->n > 0 && !allocate_tapped(m, taps->n, err))
        return false;

    struct tensor x = tensor_rows(m->x, 0, rows), last;
    m->tapped.rows = rows;
    scratch_fit(&m->scratch, rows);
    const struct layout *layout = kv_admit(c, p, rows);
    const struct graph_key graph_key = graph_key_of(m, c, layout, taps, layer, n);
    for (bool done = !waits && graph_launched(b, &graph_key, &last); !done; done = waits || graph_ended(b, last))
        last = run_layers(m, c, layout, taps, layer, n, x, tensor_rows(m->last, 0, rows));
    out->last = tensor_rows(last, 0, p->n);
    out->tapped = taps->n > 0 ? tensor_rows(m->tapped, 0, p->n) : (struct tensor){ 0 };
    return true;
}

static const struct taps no_taps;

bool model_forward(struct model *m, struct kv_cache *c, const struct pass *p, const struct taps *taps,
                   struct states *out, struct error *err)
{
    return forward(m, c, p, taps != NULL ? taps : &no_taps, NULL, m->shape.layers, out, err);
}

bool model_append(struct model *m, struct kv_cache *c, int slot, const int32_t *token, int n, const struct taps *taps,
                  struct states *out, struct error *err)
{
    int32_t slots[MAX_APPENDED], parent[MAX_APPENDED], row[MAX_APPENDED];
    assert(n <= MAX_APPENDED);
    for (int i = 0; i < n; i++) {
        slots[i] = slot;
        parent[i] = i - 1;
        row[i] = i;
    }
    const struct pass pass = { .n = n, .token = token, .slot = slots, .parent = parent };
    if (!model_forward(m, c, &pass, taps, out, err) || !m->backend->sync(m->backend, err))
        return false;
    kv_keep(c, slot, row, n);
    return true;
}

bool model_forward_some(struct model *m, struct kv_cache *c, const struct pass *p, const int *layer, int n,
                        struct states *out, struct error *err)
{
    assert(m->shape.layers <= ANY_LAYERS);
    return forward(m, c, p, &no_taps, layer, n, out, err);
}

void model_logits(const struct model *m, struct tensor out, struct tensor state)
{
    const struct model_config *c = &m->config;
    multiply(m->backend, out, state, m->some.data != NULL ? m->some : m->head);
    if (c->logit_cap != 0 || c->logit_scale != 0)
        m->backend->rescale(m->backend, out, c->logit_scale != 0 ? c->logit_scale : 1, c->logit_cap);
}

struct tensor model_embedding(const struct model *m)
{
    return m->embedding;
}

struct tensor model_norm(const struct model *m)
{
    return m->norm;
}
