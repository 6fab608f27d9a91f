#include "models/eagle.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/block.h"
#include "models/tensor_loading.h"
#include "models/eagle_parts.h"
#include "models/kv_cache.h"
#include "models/weights.h"

struct eagle {
    struct head files;
    struct eagle_config config;
    const struct model *target;   // NULL: it is only looked at
    const struct model_shape *of; // the target's
    struct backend *backend;
    struct tensor_loader tensor_loader;
    struct model_shape shape;
    struct tensor fc, fc_bias, embedding, head; // data NULL: no bias, the target's embedding, the target's head
    struct tensor hidden_norm, norm;            // EAGLE-3
    struct tensor fc_norm[MAX_TAPS];            // one over all, or one for each state; data NULL: none
    struct block *block;                        // (layers)
    int32_t *target_id;                         // (draft_vocab); NULL
    struct scratch scratch;
    struct tensor embedded, state;   // (rows, width), here and below with padding
    struct tensor pair, wide, piece; // (rows, 2 width), (rows, taps * the target's width), (rows, the target's width)
    int rows;
    struct hash hash;
};

// ---- opening

static bool is_eagle3(const struct eagle *e)
{
    return e->files.kind == HEAD_EAGLE3;
}

static bool load_layers(struct eagle *e, struct error *err)
{
    e->block = xcalloc((size_t)e->shape.layers, sizeof(*e->block));
    for (int l = 0; l < e->shape.layers; l++) {
        char prefix[32];
        snprintf(prefix, sizeof(prefix), "layers.%d.", l);
        const struct block_load what = {
            .prefix = prefix,
            .in = is_eagle3(e) && l == 0 ? 2 * e->shape.width : e->shape.width,
            .input_norm = is_eagle3(e) || l > 0,
            .biases = N_BIASES,
        };
        if (!load_block(&e->tensor_loader, &what, &e->shape, &e->block[l], err))
            return false;
        char bias[64];
        snprintf(bias, sizeof(bias), "%sself_attn.q_proj.bias", prefix);
        if (e->config.layers.attention_bias && !weights_has(e->files.weights, bias))
            return fail(err, "%s: there is no tensor %s, and %s says that there are biases", e->files.path, bias,
                        e->files.config_path);
    }
    return true;
}

static bool load_fc_norms(struct eagle *e, struct error *err)
{
    const int n = e->config.taps.n, width = e->of->width;
    if (e->config.norm_before_fc)
        return load_vector(&e->tensor_loader, "input_norm.weight", (int64_t)n * width, &e->fc_norm[0], err);
    for (int i = 0; e->config.fc_norm && i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "fc_norm.%d.weight", i);
        if (!load_vector(&e->tensor_loader, name, width, &e->fc_norm[i], err))
            return false;
    }
    return true;
}

static bool load_eagle3(struct eagle *e, struct error *err)
{
    struct tensor_loader *c = &e->tensor_loader;
    const int64_t width = e->shape.width;
    return load_matrix(c, "fc.weight", width, (int64_t)e->config.taps.n * e->of->width, &e->fc, err) &&
           load_vector(c, "layers.0.hidden_norm.weight", width, &e->hidden_norm, err) &&
           load_vector(c, "norm.weight", width, &e->norm, err) && load_fc_norms(e, err);
}

static bool load_eagle(struct eagle *e, struct error *err)
{
    const bool there = weights_has(e->files.weights, "fc.bias");
    if (e->config.fc_bias == SAID_TRUE && !there)
        return fail(err, "%s: there is no tensor fc.bias, and %s says that there is", e->files.path,
                    e->files.config_path);
    return load_matrix(&e->tensor_loader, "fc.weight", e->shape.width, 2 * (int64_t)e->shape.width, &e->fc, err) &&
           (!there || e->config.fc_bias == SAID_FALSE ||
            load_vector(&e->tensor_loader, "fc.bias", e->shape.width, &e->fc_bias, err));
}

// The embedding and the head: its own where it brings one, else the target's, if that fits.
static bool load_ends(struct eagle *e, struct error *err)
{
    const struct model_shape *target = e->of;
    const struct weights *w = e->files.weights;
    if (weights_has(w, "embed_tokens.weight")) {
        if (!load_table(&e->tensor_loader, "embed_tokens.weight", e->config.layers.vocab, e->shape.width, &e->embedding,
                        err))
            return false;
    } else if (e->shape.width != target->width)
        return fail(err, "%s: there is no tensor embed_tokens.weight, and the target's embedding is %d wide, not %d",
                    e->files.path, target->width, e->shape.width);
    if (weights_has(w, "lm_head.weight"))
        return load_matrix(&e->tensor_loader, "lm_head.weight", e->config.draft_vocab, e->shape.width, &e->head, err);
    return (e->shape.width == target->width && e->config.draft_vocab == target->vocab) ||
           fail(err, "%s: there is no tensor lm_head.weight, and the target's head does not fit", e->files.path);
}

// d2t holds how far each id is from the target's; t2d which of the target's ids are there.
static bool read_vocabulary(struct eagle *e, struct error *err)
{
    struct weights *w = e->files.weights;
    const int n = e->config.draft_vocab, all = e->config.layers.vocab;
    if (!weights_has(w, "d2t"))
        return n == all ||
               fail(err, "%s: a vocabulary of %d of %d tokens, and no tensor d2t says which", e->files.path, n, all);
    int64_t *offset = xcalloc((size_t)n, sizeof(*offset)), *there = xcalloc((size_t)all, sizeof(*there));
    bool ok = weights_whole(w, "d2t", n, -n, all, offset, err);
    const bool mask = ok && weights_has(w, "t2d");
    ok = ok && (!mask || weights_whole(w, "t2d", all, 0, 1, there, err));
    e->target_id = xcalloc((size_t)n, sizeof(*e->target_id));
    for (int i = 0; i < n && ok; i++) {
        const int64_t id = i + offset[i], before = i > 0 ? e->target_id[i - 1] : -1;
        ok = id > before && id < all;
        if (!ok)
            fail(err, "%s: tensor d2t: number %d: expected an id from %lld to %d, found %lld", e->files.path, i,
                 (long long)before + 1, all - 1, (long long)id);
        else if (mask && there[id] == 0)
            ok = fail(err, "%s: tensors d2t and t2d disagree about token %lld", e->files.path, (long long)id);
        else
            e->target_id[i] = (int32_t)id;
    }
    for (int k = 0, i = 0; k < all && ok && mask; k++) {
        while (i < n && e->target_id[i] < k)
            i++;
        if (there[k] != 0 && (i == n || e->target_id[i] != k))
            ok = fail(err, "%s: tensors d2t and t2d disagree about token %d", e->files.path, k);
    }
    free(offset);
    free(there);
    return ok;
}

// A head is run as it was made, or not at all.
static bool refuse_what_is_left(const struct eagle *e, struct error *err)
{
    static const char *const idle[] = { "d2t", "t2d", "verifier_lm_head.weight", "verifier_norm.weight" };
    const char *name;
    for (size_t i = 0; (name = weights_unused(e->files.weights, i)) != NULL; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof(idle) / sizeof(*idle); k++)
            known = known || strcmp(name, idle[k]) == 0;
        if (!known)
            return fail(err, "%s: tensor %s: %s has no such thing that we compute", e->files.path, name,
                        head_kinds[e->files.kind]);
    }
    return true;
}

static bool make(struct eagle *e, struct tensor *t, int64_t width, struct error *err)
{
    *t = rows_on(e->backend, rows_queued(e->backend, e->rows), width);
    return t->data != NULL ||
           fail(err, "%s: no room for a pass of %d rows of an EAGLE head", e->backend->name, e->rows);
}

static bool make_capacity(struct eagle *e, struct error *err)
{
    const int64_t width = e->shape.width, of_target = e->of->width;
    return (scratch_create(&e->scratch, e->backend, &e->shape, rows_queued(e->backend, e->rows)) ||
            fail(err, "%s: no room for a pass of %d rows of an EAGLE head", e->backend->name, e->rows)) &&
           make(e, &e->embedded, width, err) && make(e, &e->state, width, err) && make(e, &e->pair, 2 * width, err) &&
           (e->fc_norm[0].data == NULL ||
            (make(e, &e->wide, e->config.taps.n * of_target, err) && make(e, &e->piece, of_target, err)));
}

static bool load(struct eagle *e, struct error *err)
{
    const struct model_config *c = &e->config.layers;
    e->shape = model_shape_of(c);
    return load_rope(&e->tensor_loader, c, NULL, &e->shape.inverse_frequency, err) &&
           (is_eagle3(e) ? load_eagle3(e, err) : load_eagle(e, err)) && load_layers(e, err) && load_ends(e, err) &&
           read_vocabulary(e, err) && refuse_what_is_left(e, err) &&
           (e->tensor_loader.looking || (make_capacity(e, err) && e->backend->sync(e->backend, err)));
}

struct eagle *eagle_open(const char *path, const struct model *target, struct backend *b, const struct eagle_setup *s,
                         struct error *err)
{
    struct eagle *e = xcalloc(1, sizeof(*e));
    e->target = target;
    e->of = model_shape(target);
    e->backend = b;
    e->rows = s->rows;
    bool ok = head_open(&e->files, path, s->kind, s->kind == HEAD_EAGLE ? "drafter eagle" : "drafter eagle3", err);
    if (ok) {
        e->tensor_loader =
            (struct tensor_loader){ .backend = b, .weights = e->files.weights, .activations = s->activations };
        e->hash = head_hash(&e->files);
        ok = eagle_config_read(&e->config, &e->files, e->of, s, err) &&
             tensor_loader_finish(&e->tensor_loader, path, err) && load(e, err);
    }
    if (ok)
        return e;
    eagle_close(e);
    return NULL;
}

bool eagle_fits(const char *path, const struct model_shape *target, const struct eagle_setup *s,
                struct head_facts *facts, struct error *err)
{
    struct eagle *e = xcalloc(1, sizeof(*e));
    e->of = target;
    bool ok = head_open(&e->files, path, s->kind, "inspect", err);
    e->tensor_loader = (struct tensor_loader){ .weights = e->files.weights, .looking = true };
    ok = ok && eagle_config_read(&e->config, &e->files, target, s, err) && load(e, err);
    *facts =
        (struct head_facts){ .vocab = e->config.draft_vocab,
                             .width = e->shape.width,
                             .own_head = e->files.weights != NULL && weights_has(e->files.weights, "lm_head.weight"),
                             .own_embedding =
                                 e->files.weights != NULL && weights_has(e->files.weights, "embed_tokens.weight"),
                             .taps = e->config.taps,
                             .bytes = e->tensor_loader.bytes };
    eagle_close(e);
    return ok;
}

void eagle_close(struct eagle *e)
{
    if (e == NULL)
        return;
    struct tensor *capacity[] = { &e->embedded, &e->state, &e->pair, &e->wide, &e->piece };
    tensor_loader_release(&e->tensor_loader);
    for (size_t i = 0; e->backend != NULL && i < sizeof(capacity) / sizeof(*capacity); i++)
        e->backend->release(e->backend, capacity[i]->data);
    if (e->backend != NULL)
        scratch_destroy(&e->scratch, e->backend);
    head_close(&e->files);
    free(e->block);
    free(e->target_id);
    free(e);
}

// ---- facts

struct taps eagle_taps(const struct eagle *e)
{
    return e->config.taps;
}

int eagle_width(const struct eagle *e)
{
    return e->shape.width;
}

int eagle_vocab(const struct eagle *e)
{
    return e->config.draft_vocab;
}

const int32_t *eagle_target_id(const struct eagle *e)
{
    return e->target_id;
}

struct hash eagle_hash(const struct eagle *e)
{
    return e->hash;
}

enum activations eagle_activations(const struct eagle *e)
{
    return e->tensor_loader.activations;
}

size_t eagle_bytes(const struct eagle *e)
{
    // Rows of the embedding and of the state are among a model's scratch.
    const struct tensor capacity[] = { e->embedding, e->pair, e->wide, e->piece };
    size_t bytes = e->tensor_loader.bytes + model_scratch_bytes(&e->shape, e->rows);
    for (size_t i = 0; i < sizeof(capacity) / sizeof(*capacity); i++)
        bytes += capacity[i].data != NULL ? tensor_bytes(capacity[i]) : 0;
    return bytes;
}

struct kv_shape eagle_kv_shape(const struct eagle *e, int slots, int length, int pending)
{
    return (struct kv_shape){ .layers = e->shape.layers,
                              .width = e->shape.kv_heads * e->shape.head_dim,
                              .head_dim = e->shape.head_dim,
                              .slots = slots,
                              .length = length,
                              .pending = pending,
                              .type = F32 };
}

// ---- a pass

static void embed(struct eagle *e, struct tensor out, const struct pass *p)
{
    if (e->embedding.data != NULL)
        take_tokens(e->backend, out, e->embedding, p->token, p->there, p->n_device_rows);
    else
        model_embed(e->target, out, p);
}

// The target's states as fc reads them.
static struct tensor normed(struct eagle *e, struct tensor f)
{
    struct backend *b = e->backend;
    if (e->fc_norm[0].data == NULL)
        return f;
    struct tensor wide = tensor_rows(e->wide, 0, f.rows), piece = tensor_rows(e->piece, 0, f.rows);
    if (e->config.norm_before_fc) {
        b->rmsnorm(b, wide, f, e->fc_norm[0], e->shape.norm_eps);
        return wide;
    }
    const int width = (int)piece.width;
    for (int i = 0; i < e->config.taps.n; i++) {
        b->cut(b, piece, f, i * width);
        b->rmsnorm(b, piece, piece, e->fc_norm[i], e->shape.norm_eps);
        b->place(b, wide, i * width, piece);
    }
    return wide;
}

// The caller's states to where the layers begin with them. EAGLE: the pair's second half. EAGLE-3: x = g.
static void take_states(struct eagle *e, struct tensor x, struct tensor pair, struct tensor f, bool own)
{
    struct backend *b = e->backend;
    if (!is_eagle3(e))
        b->place(b, pair, (int)x.width, f);
    else if (own)
        b->place(b, x, 0, f);
    else
        multiply(b, x, normed(e, f), e->fc);
}

// x = fc [E(token); f]; attention reads x as it is.
static struct tensor begin_eagle(struct eagle *e, struct tensor x, struct tensor embedded, struct tensor pair)
{
    struct backend *b = e->backend;
    const struct product fc = { .out = x, .w = e->fc, .bias = e->fc_bias };
    b->place(b, pair, 0, embedded);
    b->matmul(b, pair, &fc, 1);
    return x;
}

// x = g, or its norm; attention reads [rms E(token); rms g].
static struct tensor begin_eagle3(struct eagle *e, struct tensor x, struct tensor embedded, struct tensor pair)
{
    struct backend *b = e->backend;
    b->rmsnorm(b, embedded, embedded, e->block[0].input_norm, e->shape.norm_eps);
    b->place(b, pair, 0, embedded);
    b->rmsnorm(b, embedded, x, e->hidden_norm, e->shape.norm_eps);
    b->place(b, pair, (int)x.width, embedded);
    if (e->config.norm_before_residual)
        b->place(b, x, 0, embedded);
    return pair;
}

static void run_layers(struct eagle *e, struct kv_cache *c, const struct layout *see, struct tensor x)
{
    struct backend *b = e->backend;
    struct tensor embedded = tensor_rows(e->embedded, 0, x.rows), pair = tensor_rows(e->pair, 0, x.rows);
    block_angles(b, &e->shape, see, &e->scratch);
    struct tensor input = is_eagle3(e) ? begin_eagle3(e, x, embedded, pair) : begin_eagle(e, x, embedded, pair);
    for (int l = 0; l < e->shape.layers; l++) {
        if (l > 0) {
            b->rmsnorm(b, e->scratch.h, x, e->block[l].input_norm, e->shape.norm_eps);
            input = e->scratch.h;
        }
        block_forward(b, &e->block[l], &e->shape, l, c, see, &e->scratch, x, input);
    }
    if (e->config.norm_output)
        b->rmsnorm(b, x, x, e->norm, e->shape.norm_eps);
}

struct tensor eagle_forward(struct eagle *e, struct kv_cache *c, const struct pass *p, struct tensor f, bool own)
{
    struct backend *b = e->backend;
    const int rows = rows_queued(b, p->n);
    assert(p->n >= 1 && p->n <= e->rows && f.rows == p->n);
    struct tensor x = tensor_rows(e->state, 0, p->n); // rows of padding have what was there
    scratch_fit(&e->scratch, rows);
    const struct graph_key graph_key = { .see = kv_admit(c, p, rows), .whose = e, .cache = c };
    embed(e, tensor_rows(e->embedded, 0, p->n), p);
    take_states(e, x, tensor_rows(e->pair, 0, p->n), f, own);
    for (bool done = graph_launched(b, &graph_key); !done; done = graph_ended(b))
        run_layers(e, c, graph_key.see, tensor_rows(e->state, 0, rows));
    return x;
}

void eagle_logits(struct eagle *e, struct tensor out, struct tensor states)
{
    struct backend *b = e->backend;
    struct tensor x = states;
    if (is_eagle3(e) && !e->config.norm_output) {
        x = tensor_rows(e->embedded, 0, states.rows);
        b->rmsnorm(b, x, states, e->norm, e->shape.norm_eps);
    }
    if (e->head.data != NULL)
        multiply(b, out, x, e->head);
    else
        model_logits(e->target, out, x);
}
