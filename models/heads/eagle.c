#include "models/heads/eagle.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/formats/json_fields.h"
#include "kernels/backend.h"
#include "models/block.h"
#include "models/config_readers.h"
#include "models/tensor_loading.h"
#include "models/kv_cache.h"
#include "models/unused_tensors.h"
#include "models/weights.h"

struct eagle {
    struct head files;
    const struct model *target; // NULL: the head is only checked
    const struct model_shape *target_shape;
    struct backend *backend;
    struct tensor_loader tensor_loader;
    struct model_shape shape;
    struct tensor fc, fc_bias, embedding, head; // data NULL: no bias, the target's embedding, the target's LM head
    struct tensor hidden_norm, norm;            // EAGLE-3
    struct tensor fc_norm[MAX_TAPS];            // one norm over all states, or one for each; data NULL: none
    struct block *block;                        // (layers)
    struct scratch scratch;
    struct tensor embedded, state;   // (rows, width), as below with padding
    struct tensor pair, wide, piece; // (rows, 2 width), (rows, taps * the target's width), (rows, the target's width)
    int rows;
    struct head_facts facts;
    // The following fields are read from the configuration.
    struct model_config layers; // path and file borrowed
    enum tri fc_bias_given;     // EAGLE: whether fc has a bias; UNSET: it has one if its tensor exists
    bool norm_before_residual;  // EAGLE-3: the residual that attention is added to is normed
    bool norm_before_fc;        // one norm over the concatenated states
    bool has_fc_norm;           // one norm for each state
    bool norm_output;           // the output state is normed
};

static bool is_eagle3(const struct eagle *e)
{
    return e->files.kind == HEAD_EAGLE3;
}

// ---- the configuration

// These are EAGLE-3's layers, for configurations without layer ids: the streams entering layers 2, L / 2 and L - 3.
static bool default_layers(struct eagle *e, int layers, const char *path, struct error *err)
{
    const int id[] = { 2, layers / 2, layers - 3 };
    if (layers < 7)
        return fail(err, "%s: an EAGLE-3 head reads layers 2, L / 2 and L - 3, but the target has only %d layers", path,
                    layers);
    e->facts.taps.n = 3;
    memcpy(e->facts.taps.layer, id, sizeof(id));
    return true;
}

static bool read_layer_ids(struct eagle *e, const struct fields *f, int layers, enum layer_ids ids)
{
    const struct json *outer = json_get(f->object, "eagle_config");
    const struct json *inner = json_get(outer, "eagle_aux_hidden_state_layer_ids"),
                      *own = json_get(f->object, "eagle_aux_hidden_state_layer_ids");
    const struct json *list = json_is_null(inner) ? own : inner;
    if (!json_is_null(outer) && !json_is_object(outer))
        return fields_refuse(f, "eagle_config", "an object", outer);
    if (!json_is_null(inner) && !json_is_null(own))
        return fields_refuse(f, "eagle_aux_hidden_state_layer_ids", "nothing beside that of eagle_config", own);
    if (json_is_null(list))
        return default_layers(e, layers, f->path, f->err);
    if (!json_is_array(list) || json_count(list) < 1 || json_count(list) > MAX_TAPS)
        return fields_refuse(f, "eagle_aux_hidden_state_layer_ids", "a list of 1 to 8 layers", list);
    e->facts.taps.n = (int)json_count(list);
    for (int i = 0; i < e->facts.taps.n; i++) {
        const struct json *v = json_at(list, (size_t)i);
        const int last = ids == LAYERS_LEFT ? layers - 1 : layers;
        if (!json_is_int(v))
            return fields_refuse(f, "eagle_aux_hidden_state_layer_ids", "a list of layer ids", list);
        if (json_int(v) < 0 || json_int(v) > last)
            return fail(f->err, "%s: eagle_aux_hidden_state_layer_ids: layer %lld, but the target has %d layers",
                        f->path, (long long)json_int(v), layers);
        e->facts.taps.layer[i] = (int)json_int(v) + (ids == LAYERS_LEFT);
    }
    return true;
}

static bool read_norms(struct eagle *e, const struct fields *f, bool speculators, enum tri override)
{
    const struct json *given = json_get(f->object, "norm_before_residual");
    if (!fields_bool(f, "norm_before_residual", &e->norm_before_residual) ||
        !fields_bool(f, "norm_before_fc", &e->norm_before_fc) || !fields_bool(f, "fc_norm", &e->has_fc_norm) ||
        !fields_bool(f, "norm_output", &e->norm_output))
        return false;
    if (e->norm_before_fc && e->has_fc_norm)
        return fields_refuse(f, "fc_norm", "false beside norm_before_fc", json_get(f->object, "fc_norm"));
    if (override != TRI_UNSET)
        e->norm_before_residual = override == TRI_TRUE;
    else if (speculators && json_is_null(given))
        return fail(f->err,
                    "%s: norm_before_residual is missing, and programs disagree about its default; set "
                    "norm_before_residual: true or false",
                    f->path);
    return true;
}

static bool read_layers(struct eagle *e, struct error *err)
{
    const struct head *h = &e->files;
    const struct json *inner = json_get(h->config, "transformer_layer_config");
    const struct fields f = { h->config_path, h->speculators ? "transformer_layer_config" : "",
                              h->speculators ? inner : h->config, err };
    if (h->speculators && !json_is_object(inner))
        return fail(err, "%s: transformer_layer_config: expected an object", h->config_path);
    e->layers.path = h->path;
    e->layers.file = h->config_path;
    if (!config_read_family(&f, false, &e->layers) || !config_from_json(&f, &e->layers) ||
        !config_check(&e->layers, err))
        return false;
    return json_is_null(json_get(f.object, "qkv_bias")) || fields_bool(&f, "qkv_bias", &e->layers.attention_bias);
}

// Checks vocabulary and width. An EAGLE head has the target's width; fc of an EAGLE-3 head reads taps.n times that
// width.
static bool fits_target(const struct eagle *e, struct error *err)
{
    const struct head *h = &e->files;
    const struct weight *fc = weights_find(h->weights, "fc.weight");
    const int64_t own = e->layers.width, of_target = e->target_shape->width, taps = e->facts.taps.n;
    if (e->layers.vocab != e->target_shape->vocab)
        return fail(err, "%s: a head for %d tokens, but the target has %d", h->path, e->layers.vocab,
                    e->target_shape->vocab);
    if (fc == NULL)
        return fail(err, "%s: there is no tensor fc.weight", h->path);
    const int64_t width = fc->tensor.width;
    if (is_eagle3(e) && width % of_target == 0 && width / of_target != taps && own == of_target)
        return fail(err, "%s: fc.weight reads the states of %lld layers, but %s names %lld", h->path,
                    (long long)(width / of_target), h->config_path, (long long)taps);
    return (is_eagle3(e) ? width == taps * of_target : own == of_target) ||
           fail(err, "%s: a head for targets of width %lld, but this target's is %lld", h->path,
                (long long)(is_eagle3(e) ? width / taps : own), (long long)of_target);
}

// Reads the configuration, and checks it against the target.
static bool read_config(struct eagle *e, const struct eagle_setup *s, struct error *err)
{
    const struct head *h = &e->files;
    const struct fields f = { h->config_path, "", h->config, err };
    const char *bias = h->speculators ? "fusion_bias" : "bias";
    bool has_bias = false;
    e->facts.taps = (struct taps){ 1, { FINAL_STATE } };
    if (h->config == NULL)
        return fail(err, "%s: there is no config.json beside it", h->path);
    if (!read_layers(e, err) || !fields_bool(&f, bias, &has_bias))
        return false;
    if (!json_is_null(json_get(h->config, bias)))
        e->fc_bias_given = has_bias ? TRI_TRUE : TRI_FALSE;
    e->facts.vocab = e->layers.vocab;
    if (is_eagle3(e) && (!fields_int(&f, "draft_vocab_size", false, 1, e->layers.vocab, &e->facts.vocab) ||
                         !read_layer_ids(e, &f, e->target_shape->layers, s->layer_ids) ||
                         !read_norms(e, &f, h->speculators, s->norm_before_residual)))
        return false;
    return fits_target(e, err);
}

// ---- opening

static bool has_biases(const struct eagle *e, const char *prefix, struct error *err)
{
    for (const char *which = "qkv"; *which != '\0'; which++) {
        char name[64];
        snprintf(name, sizeof(name), "%sself_attn.%c_proj.bias", prefix, *which);
        if (!weights_has(e->files.weights, name))
            return fail(err, "%s: there is no tensor %s, but %s declares biases", e->files.path, name,
                        e->files.config_path);
    }
    return true;
}

static bool load_layers(struct eagle *e, struct error *err)
{
    e->block = xcalloc((size_t)e->shape.layers, sizeof(*e->block));
    for (int l = 0; l < e->shape.layers; l++) {
        char prefix[32];
        snprintf(prefix, sizeof(prefix), "layers.%d.", l);
        const struct block_load what = {
            .config = &e->layers,
            .layer = l,
            .prefix = prefix,
            .in = is_eagle3(e) && l == 0 ? 2 * e->shape.width : e->shape.width,
            .input_norm = is_eagle3(e) || l > 0,
            .found_biases = true,
        };
        if (!load_block(&e->tensor_loader, &what, &e->shape, &e->block[l], err))
            return false;
        if (e->layers.attention_bias && !has_biases(e, prefix, err))
            return false;
    }
    return true;
}

static bool load_fc_norms(struct eagle *e, struct error *err)
{
    const int n = e->facts.taps.n, width = e->target_shape->width;
    if (e->norm_before_fc)
        return load_vector(&e->tensor_loader, "input_norm.weight", (int64_t)n * width, &e->fc_norm[0], err);
    for (int i = 0; e->has_fc_norm && i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "fc_norm.%d.weight", i);
        if (!load_vector(&e->tensor_loader, name, width, &e->fc_norm[i], err))
            return false;
    }
    return true;
}

static bool load_eagle3(struct eagle *e, struct error *err)
{
    struct tensor_loader *l = &e->tensor_loader;
    const int64_t width = e->shape.width;
    return load_matrix(l, "fc.weight", width, (int64_t)e->facts.taps.n * e->target_shape->width, &e->fc, err) &&
           load_vector(l, "layers.0.hidden_norm.weight", width, &e->hidden_norm, err) &&
           load_vector(l, "norm.weight", width, &e->norm, err) && load_fc_norms(e, err);
}

static bool load_eagle(struct eagle *e, struct error *err)
{
    const bool has_bias = weights_has(e->files.weights, "fc.bias");
    if (e->fc_bias_given == TRI_TRUE && !has_bias)
        return fail(err, "%s: there is no tensor fc.bias, but %s declares one", e->files.path, e->files.config_path);
    return load_matrix(&e->tensor_loader, "fc.weight", e->shape.width, 2 * (int64_t)e->shape.width, &e->fc, err) &&
           (!has_bias || e->fc_bias_given == TRI_FALSE ||
            load_vector(&e->tensor_loader, "fc.bias", e->shape.width, &e->fc_bias, err));
}

// Loads the embedding and the LM head: the checkpoint's own, or the target's if they fit.
static bool load_ends(struct eagle *e, struct error *err)
{
    const struct model_shape *target = e->target_shape;
    const struct weights *w = e->files.weights;
    if (weights_has(w, "embed_tokens.weight")) {
        if (!load_table(&e->tensor_loader, "embed_tokens.weight", e->layers.vocab, e->shape.width, &e->embedding, err))
            return false;
    } else if (e->shape.width != target->width)
        return fail(err, "%s: there is no tensor embed_tokens.weight, and the target's embedding is %d wide, not %d",
                    e->files.path, target->width, e->shape.width);
    if (weights_has(w, "lm_head.weight"))
        return load_matrix(&e->tensor_loader, "lm_head.weight", e->facts.vocab, e->shape.width, &e->head, err);
    return (e->shape.width == target->width && e->facts.vocab == target->vocab) ||
           fail(err, "%s: there is no tensor lm_head.weight, and the target's head does not fit", e->files.path);
}

// t2d[id] is whether the target's id is in the draft vocabulary.
static bool check_mask(const struct eagle *e, int n, int all, struct error *err)
{
    int64_t *in_draft = xcalloc((size_t)all, sizeof(*in_draft));
    bool *expected = xcalloc((size_t)all, sizeof(*expected)),
         ok = weights_integers(e->files.weights, "t2d", all, 0, 1, in_draft, err);
    for (int i = 0; i < n; i++)
        expected[e->facts.target_id[i]] = true;
    for (int k = 0; k < all && ok; k++)
        ok = expected[k] == (in_draft[k] != 0) ||
             fail(err, "%s: tensor t2d: number %d: expected %d, since d2t %s this token, found %lld", e->files.path, k,
                  expected[k], expected[k] ? "has" : "lacks", (long long)in_draft[k]);
    free(in_draft);
    free(expected);
    return ok;
}

// d2t[i] is the target's id of draft id i, minus i.
static bool read_vocabulary(struct eagle *e, struct error *err)
{
    const int n = e->facts.vocab, all = e->layers.vocab;
    if (!weights_has(e->files.weights, "d2t"))
        return n == all ||
               fail(err, "%s: a vocabulary of %d of %d tokens, but there is no tensor d2t", e->files.path, n, all);
    e->facts.target_id = xcalloc((size_t)n, sizeof(*e->facts.target_id));
    return head_target_ids(&e->files, "d2t", true, n, all, e->facts.target_id, err) &&
           (!weights_has(e->files.weights, "t2d") || check_mask(e, n, all, err));
}

static bool all_are_used(const struct eagle *e, struct error *err)
{
    // Files of speculators have copies of the target's tensors, and the reverse of d2t. Without d2t the vocabulary is
    // the target's.
    static const char *const ignored[] = { "verifier_lm_head.weight", "verifier_norm.weight", "t2d", NULL };
    char *reason = xformat("not supported in %s", head_kinds[e->files.kind]);
    const struct loaded loaded = {
        .ignored = ignored,
        .reason = reason,
        .config = e->files.config_path,
        .layers_key = e->files.speculators ? "transformer_layer_config.num_hidden_layers" : "num_hidden_layers",
        .layers = e->shape.layers,
    };
    const bool ok = unused_tensors_refuse(e->files.weights, &loaded, err);
    free(reason);
    return ok;
}

static bool allocate(struct eagle *e, struct tensor *t, int64_t width, struct error *err)
{
    *t = rows_on(e->backend, rows_queued(e->backend, e->rows), width);
    return t->data != NULL ||
           fail(err, "%s: not enough memory for a pass of %d rows of an EAGLE head", e->backend->name, e->rows);
}

static bool allocate_workspace(struct eagle *e, struct error *err)
{
    const int64_t width = e->shape.width, of_target = e->target_shape->width;
    return (scratch_create(&e->scratch, e->backend, &e->shape, rows_queued(e->backend, e->rows)) ||
            fail(err, "%s: not enough memory for a pass of %d rows of an EAGLE head", e->backend->name, e->rows)) &&
           allocate(e, &e->embedded, width, err) && allocate(e, &e->state, width, err) &&
           allocate(e, &e->pair, 2 * width, err) &&
           (e->fc_norm[0].data == NULL ||
            (allocate(e, &e->wide, e->facts.taps.n * of_target, err) && allocate(e, &e->piece, of_target, err)));
}

static void set_facts(struct eagle *e)
{
    const struct weights *w = e->files.weights;
    // model_scratch_bytes counts the rows of `embedded` and `state`.
    const struct tensor workspace[] = { e->embedding, e->pair, e->wide, e->piece };
    struct head_facts *f = &e->facts;
    f->width = e->shape.width;
    f->own_head = weights_has(w, "lm_head.weight");
    f->own_embedding = weights_has(w, "embed_tokens.weight");
    f->bytes = e->tensor_loader.bytes;
    f->activations = e->tensor_loader.activations;
    f->memory = f->bytes + model_scratch_bytes(&e->shape, e->rows);
    for (size_t i = 0; i < sizeof(workspace) / sizeof(*workspace); i++)
        f->memory += workspace[i].data != NULL ? tensor_bytes(workspace[i]) : 0;
}

static bool load(struct eagle *e, struct error *err)
{
    const struct model_config *c = &e->layers;
    e->shape = model_shape_of(c);
    return load_ropes(&e->tensor_loader, c, e->shape.inverse_frequency, err) &&
           (is_eagle3(e) ? load_eagle3(e, err) : load_eagle(e, err)) && load_layers(e, err) && load_ends(e, err) &&
           read_vocabulary(e, err) && all_are_used(e, err) &&
           (e->tensor_loader.check_only || (allocate_workspace(e, err) && e->backend->sync(e->backend, err)));
}

// b: NULL: the head is only checked.
static struct eagle *open_files(struct head files, const struct model_shape *target, struct backend *b,
                                const struct eagle_setup *s, struct error *err)
{
    struct eagle *e = xcalloc(1, sizeof(*e));
    e->files = files;
    e->target_shape = target;
    e->backend = b;
    e->rows = s->rows;
    e->tensor_loader = (struct tensor_loader){ .backend = b,
                                               .weights = files.weights,
                                               .check_only = b == NULL,
                                               .activations = s->activations,
                                               .quantize = s->quantize };
    if (read_config(e, s, err) && (b == NULL || tensor_loader_begin(&e->tensor_loader, files.path, err)) &&
        load(e, err)) {
        set_facts(e);
        return e;
    }
    eagle_close(e);
    return NULL;
}

struct eagle *eagle_open(const char *path, const struct model *target, struct backend *b, const struct eagle_setup *s,
                         struct error *err)
{
    struct head h;
    if (!head_open(&h, path, s->kind, s->kind == HEAD_EAGLE ? "drafter eagle" : "drafter eagle3", err))
        return NULL;
    struct eagle *e = open_files(h, model_shape(target), b, s, err);
    if (e == NULL)
        return NULL;
    e->target = target;
    e->facts.hash = head_hash(&e->files);
    return e;
}

bool eagle_fits(struct head h, const struct model_shape *target, const struct eagle_setup *s, struct head_facts *facts,
                struct error *err)
{
    struct eagle *e = open_files(h, target, NULL, s, err);
    if (e == NULL)
        return false;
    *facts = e->facts;
    facts->target_id = NULL;
    eagle_close(e);
    return true;
}

void eagle_close(struct eagle *e)
{
    if (e == NULL)
        return;
    struct tensor *workspace[] = { &e->embedded, &e->state, &e->pair, &e->wide, &e->piece };
    tensor_loader_release(&e->tensor_loader);
    for (size_t i = 0; e->backend != NULL && i < sizeof(workspace) / sizeof(*workspace); i++)
        e->backend->release(e->backend, workspace[i]->data);
    if (e->backend != NULL)
        scratch_destroy(&e->scratch, e->backend);
    head_close(&e->files);
    blocks_free(e->block, e->shape.layers);
    free(e->facts.target_id);
    free(e);
}

const struct head_facts *eagle_facts(const struct eagle *e)
{
    return &e->facts;
}

struct kv_shape eagle_kv_shape(const struct eagle *e, int slots, int length, int pending)
{
    return model_shape_kv(&e->shape, slots, length, pending);
}

// ---- a pass

// Returns the target's states with the norms that come before fc.
static struct tensor normed(struct eagle *e, struct tensor f)
{
    struct backend *b = e->backend;
    if (e->fc_norm[0].data == NULL)
        return f;
    struct tensor wide = tensor_rows(e->wide, 0, f.rows), piece = tensor_rows(e->piece, 0, f.rows);
    if (e->norm_before_fc) {
        return b->rmsnorm(b, wide, f, e->fc_norm[0], e->shape.norm_eps);
    }
    const int width = (int)piece.width;
    for (int i = 0; i < e->facts.taps.n; i++) {
        b->cut(b, piece, f, i * width);
        b->rmsnorm(b, piece, piece, e->fc_norm[i], e->shape.norm_eps);
        b->place(b, wide, i * width, piece);
    }
    return wide;
}

// Sets x to f, or to fc f where the first layer reads the target's states.
static void take_states(struct eagle *e, struct tensor x, struct tensor f)
{
    if (is_eagle3(e))
        multiply(e->backend, x, normed(e, f), e->fc);
    else
        e->backend->place(e->backend, x, 0, f);
}

// Returns the input of attention. EAGLE-3: [rms E(token); rms f], and x = f or its norm. EAGLE: x = fc [E(token); f].
static struct tensor begin(struct eagle *e, const struct layout *layout, struct tensor x, struct tensor states,
                           int of_slot)
{
    struct backend *b = e->backend;
    const struct joining how = { of_slot, e->shape.norm_eps, !e->norm_before_residual };
    const struct tensor table = e->embedding.data != NULL ? e->embedding : model_embedding(e->target),
                        norm = is_eagle3(e) ? e->block[0].input_norm : (struct tensor){ 0 };
    const struct tensor pair =
        b->join(b, tensor_rows(e->pair, 0, x.rows), x, table, states, norm, e->hidden_norm, layout, how);
    if (is_eagle3(e))
        return pair;
    const struct product fc = { .out = x, .w = e->fc, .bias = e->fc_bias };
    b->matmul(b, pair, &fc, 1);
    return x;
}

// Returns x, with its rounded form if the last operation left one. from_target: x has the states that the rows follow.
static struct tensor run_layers(struct eagle *e, struct kv_cache *c, const struct layout *layout, struct tensor x,
                                bool from_target, const struct eagle_states *own)
{
    struct backend *b = e->backend;
    block_angles(b, &e->shape, layout, &e->scratch);
    struct tensor input = begin(e, layout, x, from_target ? (struct tensor){ 0 } : own->rows, own->of_slot);
    for (int l = 0; l < e->shape.layers; l++) {
        if (l > 0) {
            input = b->rmsnorm(b, e->scratch.h, x, e->block[l].input_norm, e->shape.norm_eps);
        }
        block_forward(b, &e->block[l], &e->shape, l, c, layout, &e->scratch, x, input);
    }
    if (e->norm_output)
        x = b->rmsnorm(b, x, x, e->norm, e->shape.norm_eps);
    b->keep_states(b, own->rows, x, layout, own->of_slot, from_target);
    return x;
}

struct tensor eagle_forward(struct eagle *e, struct kv_cache *c, const struct pass *p, struct tensor f,
                            const struct eagle_states *own)
{
    struct backend *b = e->backend;
    const int rows = rows_queued(b, p->n);
    const bool from_target = f.data != NULL;
    assert(p->n >= 1 && p->n <= e->rows && (!from_target || f.rows == p->n));
    scratch_fit(&e->scratch, rows);
    const struct graph_key key = { .see = kv_admit(c, p, rows), .whose = e, .cache = c, .fact = { from_target } };
    if (from_target)
        take_states(e, tensor_rows(e->state, 0, p->n), f); // rows of padding keep old values
    struct tensor out;
    for (bool done = graph_launched(b, &key, &out); !done; done = graph_ended(b, out))
        out = run_layers(e, c, key.see, tensor_rows(e->state, 0, rows), from_target, own);
    return tensor_rows(out, 0, p->n);
}

void eagle_logits(struct eagle *e, struct tensor out, struct tensor states)
{
    struct backend *b = e->backend;
    struct tensor x = states;
    if (is_eagle3(e) && !e->norm_output) {
        x = tensor_rows(e->embedded, 0, states.rows);
        x = b->rmsnorm(b, x, states, e->norm, e->shape.norm_eps);
    }
    if (e->head.data != NULL)
        multiply(b, out, x, e->head);
    else
        model_logits(e->target, out, x);
}
