#include "models/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/block.h"
#include "models/config.h"
#include "models/kept.h"
#include "models/kv_cache.h"
#include "models/weights.h"

struct model {
    struct backend *backend;
    struct model_config config;
    struct weights *weights;
    struct model_shape shape;
    enum activations activations;
    struct tensor embedding, head, norm; // head is the embedding where they are tied
    struct block *block;                 // (layers)
    struct scratch scratch;
    int rows;                 // of a pass, at most
    struct tensor x, last;    // (rows, width)
    struct tensor tapped;     // (rows, width * taps), made when first asked for
    struct kept *kept;        // packed weights of an earlier time; NULL: nobody asked for them, or they were read
    struct tensor **prepared; // what unprepare is owed
    int n_prepared;
    size_t bytes, bytes_by_type[TYPES];
};

static void owe(struct model *m, struct tensor *to)
{
    m->prepared = xrealloc(m->prepared, (size_t)(m->n_prepared + 1) * sizeof(struct tensor *));
    m->prepared[m->n_prepared++] = to;
}

static bool claim(struct model *m, struct tensor *to, struct tensor w, struct error *err)
{
    *to = m->backend->prepare(m->backend, w, m->activations, err);
    if (to->data == NULL)
        return false;
    owe(m, to);
    return true;
}

// As claim, if what it would make was kept: then nobody looks at w's numbers.
static bool claim_kept(struct model *m, struct tensor *to, struct tensor w)
{
    struct backend *b = m->backend;
    struct error ignored;
    struct tensor room = tensor_of(NULL, w.type, w.rows, w.width);
    size_t bytes;
    if (m->kept == NULL || !kept_is_usable(m->kept))
        return false;
    room = b->prepare(b, room, m->activations, &ignored);
    if (room.packed == NULL)
        return false;
    void *packed = b->packed(b, room, &bytes);
    if (!kept_has(m->kept, w, bytes) || !kept_read(m->kept, packed)) {
        b->unprepare(b, room);
        return false;
    }
    *to = room;
    to->data = w.data;
    owe(m, to);
    return true;
}

static void count(struct model *m, struct tensor w)
{
    m->bytes += tensor_bytes(w);
    m->bytes_by_type[w.type] += tensor_bytes(w);
}

static bool get_matrix(struct model *m, const char *name, int64_t rows, int64_t width, struct tensor *to,
                       struct error *err)
{
    struct tensor w;
    if (!weights_look(m->weights, name, rows, width, &w, err))
        return false;
    count(m, w);
    return claim_kept(m, to, w) || (weights_get(m->weights, name, rows, width, &w, err) && claim(m, to, w, err));
}

// A vector as floats on the backend, whatever its type in the checkpoint.
static bool get_vector(struct model *m, const char *name, int64_t width, struct tensor *to, struct error *err)
{
    struct backend *b = m->backend;
    struct tensor w;
    if (!weights_get(m->weights, name, 1, width, &w, err))
        return false;
    struct tensor there = tensor_of(b->alloc(b, tensor_bytes(w)), w.type, 1, width);
    *to = tensor_of(b->alloc(b, (size_t)width * sizeof(float)), F32, 1, width);
    if (there.data != NULL && to->data != NULL) {
        b->upload(b, there.data, w.data, tensor_bytes(w));
        b->take(b, *to, there, &(const int32_t){ 0 });
    }
    b->release(b, there.data);
    count(m, w);
    return to->data != NULL || fail(err, "%s: no room for %s", b->name, name);
}

struct part {
    const char *name;
    struct tensor *to;
    int64_t rows, width; // rows 1: a vector
    bool optional;       // a bias
};

static bool get_block(struct model *m, int layer, struct error *err)
{
    const struct model_shape *s = &m->shape;
    struct block *b = &m->block[layer];
    int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    const struct part parts[] = {
        { "input_layernorm.weight", &b->input_norm, 1, s->width, false },
        { "self_attn.q_proj.weight", &b->q, heads, s->width, false },
        { "self_attn.k_proj.weight", &b->k, kv, s->width, false },
        { "self_attn.v_proj.weight", &b->v, kv, s->width, false },
        { "self_attn.o_proj.weight", &b->o, s->width, heads, false },
        { "self_attn.q_proj.bias", &b->q_bias, 1, heads, true },
        { "self_attn.k_proj.bias", &b->k_bias, 1, kv, true },
        { "self_attn.v_proj.bias", &b->v_bias, 1, kv, true },
        { "self_attn.o_proj.bias", &b->o_bias, 1, s->width, true },
        { "post_attention_layernorm.weight", &b->ffn_norm, 1, s->width, false },
        { "mlp.gate_proj.weight", &b->gate, s->hidden, s->width, false },
        { "mlp.up_proj.weight", &b->up, s->hidden, s->width, false },
        { "mlp.down_proj.weight", &b->down, s->width, s->hidden, false },
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const struct part *p = &parts[i];
        char name[128];
        snprintf(name, sizeof(name), "model.layers.%d.%s", layer, p->name);
        // Hugging Face's config says whether there are biases, and then there are all four; of GGUF the tensors
        // themselves say.
        bool needed = !p->optional || (m->config.attention_bias && !m->config.gguf);
        if (!needed && (!m->config.attention_bias || !weights_has(m->weights, name)))
            continue;
        bool vector = strstr(p->name, "norm") != NULL || strstr(p->name, "bias") != NULL;
        if (!(vector ? get_vector(m, name, p->width, p->to, err) : get_matrix(m, name, p->rows, p->width, p->to, err)))
            return false;
    }
    return true;
}

static bool get_rope(struct model *m, struct error *err)
{
    struct backend *b = m->backend;
    int half = m->shape.head_dim / 2;
    struct tensor divisors = { 0 };
    if (m->config.rope_scaling == ROPE_TABLE && !weights_get(m->weights, "rope_freqs.weight", 1, half, &divisors, err))
        return false;
    if (divisors.data != NULL && divisors.type != F32)
        return fail(err, "%s: rope_freqs.weight: expected type f32, found %s", m->config.path,
                    type_facts[divisors.type].name);
    float *frequency = xcalloc((size_t)half, sizeof(float));
    config_rope(&m->config, divisors.data, frequency);
    m->shape.inverse_frequency = tensor_of(b->alloc(b, (size_t)half * sizeof(float)), F32, 1, half);
    if (m->shape.inverse_frequency.data != NULL)
        b->upload(b, m->shape.inverse_frequency.data, frequency, (size_t)half * sizeof(float));
    free(frequency);
    return m->shape.inverse_frequency.data != NULL || fail(err, "%s: no room for rope's frequencies", b->name);
}

// The type that most of the checkpoint's bytes have.
static enum type main_type(const struct model *m)
{
    const char *name, *type;
    int64_t rows, width;
    size_t bytes, by_type[TYPES] = { 0 };
    int most = 0;
    for (size_t i = 0; weights_list(m->weights, i, &name, &type, &rows, &width, &bytes); i++)
        for (int t = 0; t < TYPES; t++)
            if (strcmp(type_facts[t].name, type) == 0)
                by_type[t] += bytes;
    for (int t = 1; t < TYPES; t++)
        if (by_type[t] > by_type[most])
            most = t;
    return (enum type)most;
}

static bool settle_activations(struct model *m, struct error *err)
{
    enum type type = main_type(m);
    m->activations = activations_settle(m->activations, type);
    return m->activations != ACTIVATIONS_INT8 || type_is_quantised(type) ||
           fail(err, "activations: int8 is for quantised weights; those of %s are %s (expected bf16 or f32)",
                m->config.path, type_facts[type].name);
}

static bool get_all(struct model *m, struct error *err)
{
    const struct model_shape *s = &m->shape;
    struct tensor w;
    if (!get_rope(m, err))
        return false;
    m->block = xcalloc((size_t)s->layers, sizeof(*m->block));
    for (int l = 0; l < s->layers; l++)
        if (!get_block(m, l, err))
            return false;
    if (!get_vector(m, "model.norm.weight", s->width, &m->norm, err))
        return false;
    // Its rows are read as they are, too.
    if (!weights_get(m->weights, "model.embed_tokens.weight", s->vocab, s->width, &w, err) ||
        !(claim_kept(m, &m->embedding, w) || claim(m, &m->embedding, w, err)))
        return false;
    if (!m->config.tied)
        return get_matrix(m, "lm_head.weight", s->vocab, s->width, &m->head, err);
    m->head = m->embedding;
    count(m, w);
    return true;
}

static bool make(struct model *m, struct tensor *t, int64_t width, struct error *err)
{
    struct backend *b = m->backend;
    *t = tensor_of(b->alloc(b, (size_t)m->rows * (size_t)width * sizeof(float)), F32, m->rows, width);
    return t->data != NULL || fail(err, "%s: no room for a pass of %d rows", b->name, m->rows);
}

// After all have been claimed: what was not read is written for the next time.
static void keep(struct model *m)
{
    struct packed_bytes *p = xcalloc((size_t)m->n_prepared, sizeof(*p));
    for (int i = 0; i < m->n_prepared; i++) {
        p[i].w = *m->prepared[i];
        p[i].data = m->backend->packed(m->backend, p[i].w, &p[i].bytes);
    }
    kept_write(m->kept, p, (size_t)m->n_prepared);
    free(p);
}

static struct model *open_model(const char *path, struct backend *b, enum activations a, int rows, char **kept,
                                struct error *err)
{
    struct model *m = xcalloc(1, sizeof(*m));
    m->backend = b;
    m->activations = a;
    m->rows = rows;
    bool ok = config_read(path, &m->config, err);
    if (ok) {
        const struct model_config *c = &m->config;
        m->shape = (struct model_shape){ .layers = c->layers,
                                         .width = c->width,
                                         .heads = c->heads,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .hidden = c->hidden,
                                         .vocab = c->vocab,
                                         .context = c->context,
                                         .norm_eps = c->norm_eps };
        m->weights = weights_open(c, err);
        if (m->weights != NULL && kept != NULL && b->packed_layout != 0)
            m->kept = kept_open(c, m->weights, b->packed_layout);
        ok = m->weights != NULL && settle_activations(m, err) && get_all(m, err) && make(m, &m->x, c->width, err) &&
             make(m, &m->last, c->width, err);
        if (ok && !scratch_create(&m->scratch, b, &m->shape, rows))
            ok = fail(err, "%s: no room for a pass of %d rows", b->name, rows);
        ok = ok && b->sync(b, err);
    }
    if (ok && m->kept != NULL) {
        if (!kept_is_whole(m->kept))
            keep(m);
        *kept = kept_sentence(m->kept);
    }
    kept_close(m->kept);
    m->kept = NULL;
    if (ok)
        return m;
    model_close(m);
    return NULL;
}

struct model *model_open(const char *path, struct backend *b, enum activations a, int rows, struct error *err)
{
    return open_model(path, b, a, rows, NULL, err);
}

struct model *model_open_keeping(const char *path, struct backend *b, enum activations a, int rows, char **kept,
                                 struct error *err)
{
    *kept = NULL;
    return open_model(path, b, a, rows, kept, err);
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    struct backend *b = m->backend;
    for (int i = 0; i < m->n_prepared; i++)
        b->unprepare(b, *m->prepared[i]);
    for (int l = 0; m->block != NULL && l < m->shape.layers; l++) {
        struct block *k = &m->block[l];
        struct tensor *vectors[] = { &k->input_norm, &k->ffn_norm, &k->q_bias, &k->k_bias, &k->v_bias, &k->o_bias };
        for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
            b->release(b, vectors[i]->data);
    }
    b->release(b, m->norm.data);
    b->release(b, m->shape.inverse_frequency.data);
    b->release(b, m->x.data);
    b->release(b, m->last.data);
    b->release(b, m->tapped.data);
    scratch_destroy(&m->scratch, b);
    weights_close(m->weights);
    config_free(&m->config);
    free(m->block);
    free(m->prepared);
    free(m);
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
    return m->bytes;
}

size_t model_scratch_bytes(const struct model_shape *s, int rows)
{
    size_t floats = 3 * (size_t)s->width + 2 * (size_t)s->heads * (size_t)s->head_dim +
                    2 * (size_t)s->kv_heads * (size_t)s->head_dim + (size_t)s->hidden + (size_t)s->head_dim;
    return floats * (size_t)rows * sizeof(float);
}

uint64_t model_hash(const struct model *m)
{
    return weights_hash(m->weights);
}

const char *model_type(const struct model *m)
{
    int most = 0;
    for (int t = 1; t < TYPES; t++)
        if (m->bytes_by_type[t] > m->bytes_by_type[most])
            most = t;
    return type_facts[most].name;
}

enum activations model_activations(const struct model *m)
{
    return m->activations;
}

const char *model_unused(const struct model *m, size_t i)
{
    return weights_unused(m->weights, i);
}

struct kv_shape model_kv_shape(const struct model *m, int slots, int length, int pending)
{
    return (struct kv_shape){ .layers = m->shape.layers,
                              .width = m->shape.kv_heads * m->shape.head_dim,
                              .head_dim = m->shape.head_dim,
                              .slots = slots,
                              .length = length,
                              .pending = pending,
                              .type = F32 };
}

// The residual stream before layer `layer` goes into every tap that asked for it.
static void tap(struct model *m, const struct taps *taps, int layer, struct tensor x)
{
    for (int i = 0; i < taps->n; i++)
        if (taps->layer[i] == layer)
            m->backend->place(m->backend, m->tapped, i * m->shape.width, x);
}

static bool make_tapped(struct model *m, int taps, struct error *err)
{
    if (m->tapped.width == (int64_t)taps * m->shape.width)
        return true;
    m->backend->release(m->backend, m->tapped.data);
    m->tapped = (struct tensor){ 0 };
    return make(m, &m->tapped, (int64_t)taps * m->shape.width, err);
}

bool model_forward(struct model *m, struct kv_cache *c, const struct pass *p, const struct taps *taps,
                   struct states *out, struct error *err)
{
    static const struct taps none;
    struct backend *b = m->backend;
    assert(p->n >= 1 && p->n <= m->rows);
    if (taps == NULL)
        taps = &none;
    if (taps->n > 0 && !make_tapped(m, taps->n, err))
        return false;

    struct tensor x = tensor_rows(m->x, 0, p->n), last = tensor_rows(m->last, 0, p->n);
    m->tapped.rows = p->n;
    scratch_fit(&m->scratch, p->n);
    const struct layout *see = kv_admit(c, p);
    block_angles(b, &m->shape, see, &m->scratch);
    model_embed(m, x, p->token);
    for (int l = 0; l < m->shape.layers; l++) {
        tap(m, taps, l, x);
        b->rmsnorm(b, m->scratch.h, x, m->block[l].input_norm, m->shape.norm_eps);
        block_forward(b, &m->block[l], &m->shape, l, c, see, &m->scratch, x, m->scratch.h);
    }
    tap(m, taps, m->shape.layers, x);
    b->rmsnorm(b, last, x, m->norm, m->shape.norm_eps);
    tap(m, taps, FINAL_STATE, last);
    out->last = last;
    out->tapped = taps->n > 0 ? m->tapped : (struct tensor){ 0 };
    return true;
}

void model_embed(const struct model *m, struct tensor out, const int32_t *token)
{
    m->backend->take(m->backend, out, m->embedding, token);
}

void model_logits(const struct model *m, struct tensor out, struct tensor state)
{
    multiply(m->backend, out, state, m->head);
}
