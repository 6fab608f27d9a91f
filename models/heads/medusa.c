#include "models/heads/medusa.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/tensor_loading.h"
#include "models/formats/json_fields.h"
#include "models/heads/head.h"
#include "models/model.h"
#include "models/unused_tensors.h"
#include "models/weights.h"

enum { MAX_HEADS = 16, MAX_HEAD_LAYERS = 8 };

struct medusa_head {
    struct tensor w[MAX_HEAD_LAYERS], b[MAX_HEAD_LAYERS]; // (width, width); (1, width), data NULL: none
    struct tensor out;                                    // (vocab, width); data NULL: the target's
};

struct medusa {
    struct head files;
    const struct model *target; // NULL: the heads are only checked
    const struct model_shape *target_shape;
    struct backend *backend;
    struct tensor_loader tensor_loader;
    struct medusa_head head[MAX_HEADS];
    int heads, layers, width, vocab;
    bool own_out, one_out; // the heads have a W_out other than the target's; all heads share the first one's
    struct tensor z, h;    // (rows, width) workspace
    struct head_facts facts;
};

// ---- names

struct names { // formats of tensor names: head, layer
    const char *weight, *bias, *out;
};
static const struct names medusa_names = { "%d.%d.linear.weight", "%d.%d.linear.bias", "%d.%d.weight" };
static const struct names vllm_names = { "blocks.%d.layers.%d.weight", "blocks.%d.layers.%d.bias",
                                         "lm_heads.%d.weight" };

static const char *name_of(char to[64], const char *form, int head, int layer)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(to, 64, form, head, layer);
#pragma GCC diagnostic pop
    return to;
}

static void count_heads(struct medusa *m, const struct names *names)
{
    char name[64];
    while (m->heads < MAX_HEADS && weights_has(m->files.weights, name_of(name, names->weight, m->heads, 0)))
        m->heads++;
    while (m->layers < MAX_HEAD_LAYERS && weights_has(m->files.weights, name_of(name, names->weight, 0, m->layers)))
        m->layers++;
}

// ---- tensors

// Reads the target's id of each logit of a reduced vocabulary.
static bool read_token_map(struct medusa *m, struct error *err)
{
    if (!weights_has(m->files.weights, "token_map"))
        return true;
    m->facts.target_id = xcalloc((size_t)m->vocab, sizeof(*m->facts.target_id));
    return head_target_ids(&m->files, "token_map", false, m->vocab, m->target_shape->vocab, m->facts.target_id, err);
}

static bool load_head(struct medusa *m, const struct names *names, int head, struct error *err)
{
    struct medusa_head *to = &m->head[head];
    char name[64];
    for (int l = 0; l < m->layers; l++) {
        if (!load_matrix(&m->tensor_loader, name_of(name, names->weight, head, l), m->width, m->width, &to->w[l], err))
            return false;
        if (weights_has(m->files.weights, name_of(name, names->bias, head, l)) &&
            !load_vector(&m->tensor_loader, name, m->width, &to->b[l], err))
            return false;
    }
    return !m->own_out || (head > 0 && m->one_out) ||
           load_matrix(&m->tensor_loader, name_of(name, names->out, head, m->layers), m->vocab, m->width, &to->out,
                       err);
}

static bool fits(struct medusa *m, const struct names *names, struct error *err)
{
    const struct model_shape *s = m->target_shape;
    const struct weights *w = m->files.weights;
    char name[64];
    const struct weight *first = weights_find(w, name_of(name, names->weight, 0, 0));
    if (first != NULL && first->tensor.width != s->width)
        return fail(err, "%s: a head for targets of width %lld, but this target's is %d", m->files.path,
                    (long long)first->tensor.width, s->width);
    m->width = s->width;
    m->vocab = s->vocab;
    if (!m->own_out)
        return true;
    const struct weight *out = weights_find(w, name_of(name, names->out, 0, m->layers)),
                        *map = weights_find(w, "token_map");
    if (out == NULL)
        return fail(err, "%s: there is no tensor %s", m->files.path, name);
    const int64_t rows = out->tensor.rows;
    const bool reduced = map != NULL;
    if (reduced && map->tensor.width != rows)
        return fail(err, "%s: output for %lld tokens beside a token_map of %lld; expected the same number",
                    m->files.path, (long long)rows, (long long)map->tensor.width);
    if (reduced ? rows > s->vocab : rows != s->vocab)
        return fail(err, "%s: a head for %lld tokens, but the target has %d", m->files.path, (long long)rows, s->vocab);
    m->vocab = (int)rows;
    return read_token_map(m, err);
}

// A tensor of a head is not loaded if an earlier head is missing, or if the head has more layers than the first.
static bool all_are_used(const struct medusa *m, struct error *err)
{
    char *reason = xformat("not part of %d heads of %d layers, as head 0 has them", m->heads, m->layers);
    // Medusa-2 stores the model under a head's names.
    static const char *const of_model[] = { "layers.", "embed_tokens.weight", "norm.weight", "lm_head.weight", NULL };
    const struct loaded loaded = { .ignored = weights_has(m->files.weights, "embed_tokens.weight") ? of_model : NULL,
                                   .reason = reason };
    const bool ok = unused_tensors_refuse(m->files.weights, &loaded, err);
    free(reason);
    return ok;
}

static bool allocate_workspace(struct medusa *m, int rows, struct error *err)
{
    struct tensor *to[] = { &m->z, &m->h };
    for (int i = 0; i < 2; i++) {
        *to[i] = rows_on(m->backend, rows, m->width);
        if (to[i]->data == NULL)
            return fail(err, "%s: not enough memory for %d rows of a Medusa head", m->backend->name, rows);
    }
    return true;
}

// vLLM's converter may write a factor for the logits, which is not supported.
static bool check_logit_scale(const struct medusa *m, struct error *err)
{
    const struct fields f = { m->files.config_path, "", m->files.config, err };
    const struct json *scale = json_get(m->files.config, "logit_scale");
    return json_is_null(scale) || (json_is_number(scale) && json_number(scale) == 1) ||
           fields_refuse(&f, "logit_scale", "1", scale);
}

static bool load(struct medusa *m, int rows, struct error *err)
{
    if (!check_logit_scale(m, err))
        return false;
    const bool vllm = weights_has(m->files.weights, "blocks.0.layers.0.weight");
    const struct names *names = vllm ? &vllm_names : &medusa_names;
    char name[64];
    count_heads(m, names);
    m->own_out = weights_has(m->files.weights, name_of(name, names->out, 0, m->layers));
    m->one_out = vllm && !weights_has(m->files.weights, name_of(name, names->out, 1, m->layers));
    if (!fits(m, names, err))
        return false;
    for (int h = 0; h < m->heads; h++)
        if (!load_head(m, names, h, err))
            return false;
    if (!all_are_used(m, err))
        return false;
    return m->tensor_loader.check_only || (allocate_workspace(m, rows, err) && m->backend->sync(m->backend, err));
}

// b: NULL: the heads are only checked.
static struct medusa *open_files(struct head files, const struct model_shape *target, struct backend *b,
                                 enum activations a, enum quantize quantize, int rows, struct error *err)
{
    struct medusa *m = xcalloc(1, sizeof(*m));
    struct tensor_loader *l = &m->tensor_loader;
    m->files = files;
    m->target_shape = target;
    m->backend = b;
    *l = (struct tensor_loader){
        .backend = b, .weights = files.weights, .check_only = b == NULL, .activations = a, .quantize = quantize
    };
    if ((b != NULL && !tensor_loader_begin(l, files.path, err)) || !load(m, rows, err)) {
        medusa_close(m);
        return NULL;
    }
    struct head_facts *f = &m->facts;
    f->heads = m->heads;
    f->vocab = m->vocab;
    f->width = m->width;
    f->own_head = m->own_out;
    f->taps = (struct taps){ 1, { FINAL_STATE } };
    f->bytes = l->bytes;
    f->memory = l->bytes + tensor_bytes(m->z) + tensor_bytes(m->h);
    f->activations = l->activations;
    return m;
}

struct medusa *medusa_open(const char *path, const struct model *target, struct backend *b, enum activations a,
                           enum quantize quantize, int rows, struct error *err)
{
    struct head h;
    if (!head_open(&h, path, HEAD_MEDUSA, "drafter medusa", err))
        return NULL;
    struct medusa *m = open_files(h, model_shape(target), b, a, quantize, rows, err);
    if (m == NULL)
        return NULL;
    m->target = target;
    m->facts.hash = head_hash(&m->files);
    return m;
}

bool medusa_fits(struct head h, const struct model_shape *target, struct head_facts *facts, struct error *err)
{
    struct medusa *m = open_files(h, target, NULL, ACTIVATIONS_DEFAULT, QUANTIZE_NONE, 0, err);
    if (m == NULL)
        return false;
    *facts = m->facts;
    facts->target_id = NULL;
    medusa_close(m);
    return true;
}

void medusa_close(struct medusa *m)
{
    if (m == NULL)
        return;
    tensor_loader_release(&m->tensor_loader);
    if (m->backend != NULL) {
        m->backend->release(m->backend, m->z.data);
        m->backend->release(m->backend, m->h.data);
    }
    head_close(&m->files);
    free(m->facts.target_id);
    free(m);
}

const struct head_facts *medusa_facts(const struct medusa *m)
{
    return &m->facts;
}

// ---- the heads

void medusa_logits(struct medusa *m, int head, struct tensor out, struct tensor states)
{
    const struct medusa_head *w = &m->head[head];
    struct backend *b = m->backend;
    assert(head >= 0 && head < m->heads && states.width == m->width && states.rows <= m->z.rows);
    struct tensor z = tensor_rows(m->z, 0, states.rows), h = tensor_rows(m->h, 0, states.rows);
    b->place(b, z, 0, states);
    for (int l = 0; l < m->layers; l++) {
        const struct product p = { .out = h, .w = w->w[l], .bias = w->b[l] };
        b->matmul(b, z, &p, 1);
        b->glu(b, h, h, (struct tensor){ 0 }, GATE_SILU);
        b->add(b, z, h);
    }
    const struct tensor own = m->one_out ? m->head[0].out : w->out;
    if (own.data != NULL)
        multiply(b, out, z, own);
    else
        model_logits(m->target, out, z);
}
