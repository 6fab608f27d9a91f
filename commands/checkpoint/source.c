#include "commands/checkpoint/source.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config.h"
#include "formats/gguf.h"
#include "formats/shards.h"
#include "models/model.h"
#include "models/unused_tensors.h"
#include "models/weights.h"

static const char *const role_names[ROLES] = {
    [ROLE_NORM] = "input_layernorm.weight",
    [ROLE_FFN_NORM] = "post_attention_layernorm.weight",
    [ROLE_PRE_FFN_NORM] = "pre_feedforward_layernorm.weight",
    [ROLE_POST_FFN_NORM] = "post_feedforward_layernorm.weight",
    [ROLE_Q_NORM] = "self_attn.q_norm.weight",
    [ROLE_K_NORM] = "self_attn.k_norm.weight",
    [ROLE_LAST_NORM] = "model.norm.weight",
    [ROLE_Q_BIAS] = "self_attn.q_proj.bias",
    [ROLE_K_BIAS] = "self_attn.k_proj.bias",
    [ROLE_V_BIAS] = "self_attn.v_proj.bias",
    [ROLE_O_BIAS] = "self_attn.o_proj.bias",
    [ROLE_Q] = "self_attn.q_proj.weight",
    [ROLE_K] = "self_attn.k_proj.weight",
    [ROLE_V] = "self_attn.v_proj.weight",
    [ROLE_O] = "self_attn.o_proj.weight",
    [ROLE_QKV] = "self_attn.qkv_proj.weight",
    [ROLE_GATE_UP] = "mlp.gate_up_proj.weight",
    [ROLE_GATE] = "mlp.gate_proj.weight",
    [ROLE_UP] = "mlp.up_proj.weight",
    [ROLE_DOWN] = "mlp.down_proj.weight",
    [ROLE_ROUTER] = "mlp.gate.weight",
    [ROLE_EXPERT_GATE] = "mlp.experts.gate_proj.weight",
    [ROLE_EXPERT_UP] = "mlp.experts.up_proj.weight",
    [ROLE_EXPERT_DOWN] = "mlp.experts.down_proj.weight",
    [ROLE_EMBEDDING] = "model.embed_tokens.weight",
    [ROLE_HEAD] = "lm_head.weight",
};

static bool is_layer_role(enum role r)
{
    return r < ROLES && r != ROLE_LAST_NORM && r != ROLE_EMBEDDING && r != ROLE_HEAD;
}

bool role_is_matrix(enum role r)
{
    return r >= ROLE_Q && r < ROLES;
}

bool role_is_norm(enum role r)
{
    return r <= ROLE_K_NORM;
}

bool role_is_quantized(enum role r)
{
    return role_is_matrix(r) && r != ROLE_ROUTER;
}

// "mlp.experts.7.up_proj.weight", or in Mixtral's names "block_sparse_moe.experts.7.w3.weight"; or of the router.
static enum role expert_named(const char *part, int *expert)
{
    static const struct {
        const char *name;
        enum role role;
    } parts[] = {
        { ".gate_proj.weight", ROLE_EXPERT_GATE }, { ".w1.weight", ROLE_EXPERT_GATE },
        { ".up_proj.weight", ROLE_EXPERT_UP },     { ".w3.weight", ROLE_EXPERT_UP },
        { ".down_proj.weight", ROLE_EXPERT_DOWN }, { ".w2.weight", ROLE_EXPERT_DOWN },
    };
    const char *rest = weights_layer(part, "mlp.experts.", expert);
    if (rest == NULL)
        rest = weights_layer(part, "block_sparse_moe.experts.", expert);
    for (size_t i = 0; rest != NULL && i < sizeof(parts) / sizeof(*parts); i++)
        if (strcmp(rest, parts[i].name) == 0)
            return parts[i].role;
    *expert = -1;
    return strcmp(part, "block_sparse_moe.gate.weight") == 0 ? ROLE_ROUTER : ROLE_OTHER;
}

enum role role_named(const char *name, int *layer, int *expert)
{
    const char *rest = weights_layer(name, "model.layers.", layer);
    bool layered = rest != NULL && *rest == '.';
    *expert = -1;
    if (!layered)
        *layer = -1;
    for (int r = 0; r < ROLES; r++)
        if (is_layer_role((enum role)r) == layered && strcmp(layered ? rest + 1 : name, role_names[r]) == 0)
            return (enum role)r;
    const enum role of_expert = layered ? expert_named(rest + 1, expert) : ROLE_OTHER;
    if (of_expert != ROLE_OTHER)
        return of_expert;
    const char *rope = strstr(name, "rotary_emb.inv_freq"); // present in older checkpoints
    return rope != NULL || strcmp(name, "rope_freqs.weight") == 0 ? ROLE_ROPE : ROLE_OTHER;
}

void role_shape(enum role r, const struct model_config *c, int64_t *rows, int64_t *width)
{
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    const bool of_heads = c->architecture->head_norms == NORMS_OF_HEADS;
    const int64_t shape[ROLES][2] = {
        [ROLE_NORM] = { 1, c->width },
        [ROLE_FFN_NORM] = { 1, c->width },
        [ROLE_PRE_FFN_NORM] = { 1, c->width },
        [ROLE_POST_FFN_NORM] = { 1, c->width },
        [ROLE_Q_NORM] = { 1, of_heads ? c->head_dim : q },
        [ROLE_K_NORM] = { 1, of_heads ? c->head_dim : kv },
        [ROLE_LAST_NORM] = { 1, c->width },
        [ROLE_Q_BIAS] = { 1, q },
        [ROLE_K_BIAS] = { 1, kv },
        [ROLE_V_BIAS] = { 1, kv },
        [ROLE_O_BIAS] = { 1, c->width },
        [ROLE_Q] = { q, c->width },
        [ROLE_K] = { kv, c->width },
        [ROLE_V] = { kv, c->width },
        [ROLE_O] = { c->width, q },
        [ROLE_QKV] = { q + 2 * kv, c->width },
        [ROLE_GATE_UP] = { 2 * (int64_t)c->hidden, c->width },
        [ROLE_GATE] = { c->hidden, c->width },
        [ROLE_UP] = { c->hidden, c->width },
        [ROLE_DOWN] = { c->width, c->hidden },
        [ROLE_ROUTER] = { c->experts, c->width },
        [ROLE_EXPERT_GATE] = { c->expert_hidden, c->width },
        [ROLE_EXPERT_UP] = { c->expert_hidden, c->width },
        [ROLE_EXPERT_DOWN] = { c->width, c->expert_hidden },
        [ROLE_EMBEDDING] = { c->vocab, c->width },
        [ROLE_HEAD] = { c->vocab, c->width },
    };
    *rows = shape[r][0];
    *width = shape[r][1];
}

static void take_gguf(struct source_tensor *to, const struct gguf_tensor *t, const struct architecture *a)
{
    to->name = xstrndup(t->name.s, t->name.n);
    to->known = weights_name(a, to->name);
    to->readable = t->known;
    to->ggml = t->ggml_type;
    to->type = t->known ? type_facts[t->tensor.type].name : gguf_type_name(t->ggml_type);
    to->bytes = t->bytes;
    to->dims = t->dims;
    for (int d = 0; d < t->dims; d++)
        to->dim[d] = (int64_t)t->dim[t->dims - 1 - d];
    to->tensor =
        t->known ? t->tensor : tensor_of(NULL, F32, (int64_t)(t->dim[1] * t->dim[2] * t->dim[3]), (int64_t)t->dim[0]);
}

static void take_safetensor(struct source_tensor *to, const struct safetensor *t, bool wrapped)
{
    enum type type = F32;
    to->name = xstrdup(t->name);
    to->known = wrapped ? weights_text_name(t->name) : xstrdup(t->name);
    to->readable = weights_type(t->dtype, &type);
    to->ggml = -1;
    to->dtype = t->dtype;
    to->type = to->readable ? type_facts[type].name : t->dtype;
    to->bytes = t->bytes;
    to->dims = t->dims;
    int64_t rows = t->bytes > 0 ? 1 : 0, width = t->dims > 0 ? t->dim[t->dims - 1] : 1;
    for (int d = 0; d + 1 < t->dims && rows > 0; d++)
        rows *= t->dim[d]; // no overflow: the data is in the file
    for (int d = 0; d < t->dims; d++)
        to->dim[d] = t->dim[d];
    to->tensor = tensor_of((void *)(uintptr_t)t->data, type, rows, width);
}

// A matrix of FP8 cannot be read from its data alone.
static bool take_fp8(struct source_checkpoint *o, struct source_tensor *t, struct error *err)
{
    if (!weights_fp8(o->weights, t->known, &t->fp8, err))
        return false;
    t->is_scale = o->config->fp8.used && fp8_is_scale(t->known);
    if (t->fp8.numbers != NULL) {
        t->readable = true;
        t->tensor.type = F8_E4M3;
        t->type = type_facts[F8_E4M3].name;
    }
    return true;
}

bool source_is_whole(const struct model_config *c, struct error *err)
{
    return c->wrapper == NULL ||
           fail(
               err,
               "%s: a directory of it would lack what the model has for images; `quantize` writes its text model to a GGUF file",
               c->path);
}

bool source_open(struct source_checkpoint *o, const struct model_config *c, struct error *err)
{
    *o = (struct source_checkpoint){ .config = c };
    o->weights = weights_open(c, err);
    if (o->weights == NULL || !model_check(c, o->weights, err)) {
        weights_close(o->weights);
        return false;
    }
    if (c->gguf)
        o->gguf = gguf_open(c->path, err);
    else
        o->shards = shards_open(c->path, err);
    if (o->gguf == NULL && o->shards == NULL) {
        weights_close(o->weights);
        return false;
    }
    const size_t stored = c->gguf ? gguf_tensors(o->gguf) : shards_count(o->shards);
    o->tensor = xcalloc(stored, sizeof(*o->tensor));
    for (size_t i = 0; i < stored; i++) {
        struct source_tensor *t = &o->tensor[o->n];
        if (c->gguf)
            take_gguf(t, gguf_tensor_at(o->gguf, i), c->architecture);
        else
            take_safetensor(t, shards_at(o->shards, i), c->wrapper != NULL);
        if (t->known == NULL || tensor_has_no_effect(LOADED_MODEL, t->known)) {
            if (o->left_out.n++ == 0)
                o->left_out.first = shown(t->name, strlen(t->name));
            free(t->name);
            free(t->known);
            continue;
        }
        t->role = role_named(t->known, &t->layer, &t->expert);
        o->n++;
        if (!take_fp8(o, t, err)) {
            source_close(o);
            return false;
        }
    }
    return true;
}

void source_close(struct source_checkpoint *o)
{
    for (size_t i = 0; i < o->n; i++) {
        free(o->tensor[i].name);
        free(o->tensor[i].known);
    }
    free(o->tensor);
    gguf_close(o->gguf);
    shards_close(o->shards);
    weights_close(o->weights);
    *o = (struct source_checkpoint){ 0 };
}
