// layer_tensors.c - the tensors of a model: their names in GGUF and in Hugging Face's checkpoints, and, for a decoder
// layer, the families that have them, their shapes and their fields in struct block.
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "models/architectures.h"
#include "models/block.h"
#include "models/config.h"
#include "models/tensor_loading.h"
#include "models/weights.h"

static const char *const outer_names[][2] = {
    { "token_embd.weight", "model.embed_tokens.weight" },
    { "output_norm.weight", "model.norm.weight" },
    { "output.weight", "lm_head.weight" },
};

// Families. "post_attention_layernorm" is the norm after attention on the residual stream if a layer has two norms;
// otherwise it is the norm of attention's output.
enum {
    BEFORE = 1 << NORMS_BEFORE,
    AROUND = 1 << NORMS_AROUND,
    AFTER = 1 << NORMS_AFTER,
    SPLIT = 1 << 8,
    FUSED = 1 << 9,
    NORMED = 1 << 10, // q and k have norms
};

// Numbers of rows. HEADS: rows of q; KV: rows of k and of v; NONE: 0.
enum size { NONE, WIDTH, IN, HEADS, KV, HEADS_KV, QKV, HIDDEN, GATE_UP, Q_NORM, K_NORM, SIZES };

#define AT(member) offsetof(struct block, member)
enum { EXPERTS = sizeof(struct block) }; // load_experts loads these

static const struct layer_tensor {
    const char *gguf, *hf;    // names without ".weight" or ".bias"
    unsigned of;              // bits of the families that have it; 0: all
    size_t to, bias;          // its offset in struct block, and that of its bias; bias 0: it has none
    enum size rows, width;    // rows NONE: the weight of a norm
    enum size first, of_rows; // the tensor has rows first .. first + rows of a matrix of so many; NONE: all
} layer_tensors[] = {
    { "attn_norm", "input_layernorm", BEFORE | AROUND, AT(input_norm), 0, NONE, WIDTH, NONE, NONE },
    { "attn_q", "self_attn.q_proj", SPLIT, AT(q), AT(q_bias), HEADS, IN, NONE, NONE },
    { "attn_k", "self_attn.k_proj", SPLIT, AT(k), AT(k_bias), KV, IN, NONE, NONE },
    { "attn_v", "self_attn.v_proj", SPLIT, AT(v), AT(v_bias), KV, IN, NONE, NONE },
    { "attn_qkv", "self_attn.qkv_proj", FUSED, AT(q), 0, HEADS, IN, NONE, QKV },
    { "attn_qkv", "self_attn.qkv_proj", FUSED, AT(k), 0, KV, IN, HEADS, QKV },
    { "attn_qkv", "self_attn.qkv_proj", FUSED, AT(v), 0, KV, IN, HEADS_KV, QKV },
    { "attn_output", "self_attn.o_proj", 0, AT(o), AT(o_bias), WIDTH, HEADS, NONE, NONE },
    { "attn_q_norm", "self_attn.q_norm", NORMED, AT(q_norm), 0, NONE, Q_NORM, NONE, NONE },
    { "attn_k_norm", "self_attn.k_norm", NORMED, AT(k_norm), 0, NONE, K_NORM, NONE, NONE },
    { "post_attention_norm", "post_attention_layernorm", AROUND | AFTER, AT(out_norm), 0, NONE, WIDTH, NONE, NONE },
    { "ffn_norm", "post_attention_layernorm", BEFORE, AT(ffn_norm), 0, NONE, WIDTH, NONE, NONE },
    { "ffn_norm", "pre_feedforward_layernorm", AROUND, AT(ffn_norm), 0, NONE, WIDTH, NONE, NONE },
    { "post_ffw_norm", "post_feedforward_layernorm", AROUND | AFTER, AT(ffn_out_norm), 0, NONE, WIDTH, NONE, NONE },
    { "ffn_gate", "mlp.gate_proj", SPLIT, AT(gate), 0, HIDDEN, WIDTH, NONE, NONE },
    { "ffn_up", "mlp.up_proj", SPLIT, AT(up), 0, HIDDEN, WIDTH, NONE, NONE },
    { "ffn_up", "mlp.gate_up_proj", FUSED, AT(gate), 0, HIDDEN, WIDTH, NONE, GATE_UP },
    { "ffn_up", "mlp.gate_up_proj", FUSED, AT(up), 0, HIDDEN, WIDTH, HIDDEN, GATE_UP },
    { "ffn_down", "mlp.down_proj", 0, AT(down), 0, WIDTH, HIDDEN, NONE, NONE },
    { "ffn_gate_inp", "mlp.gate", 0, EXPERTS, 0, NONE, NONE, NONE, NONE },
    { "ffn_gate_exps", "mlp.experts.gate_proj", 0, EXPERTS, 0, NONE, NONE, NONE, NONE },
    { "ffn_up_exps", "mlp.experts.up_proj", 0, EXPERTS, 0, NONE, NONE, NONE, NONE },
    { "ffn_down_exps", "mlp.experts.down_proj", 0, EXPERTS, 0, NONE, NONE, NONE, NONE },
};
enum { TENSORS = sizeof(layer_tensors) / sizeof(*layer_tensors) };

static bool is_of(const struct layer_tensor *t, const struct architecture *a)
{
    const unsigned family = 1u << a->norms | (a->fused ? FUSED : SPLIT) | (a->head_norms != NO_HEAD_NORMS ? NORMED : 0);
    return t->of == 0 || (t->of & family) != 0;
}

// ---- names

const char *weights_layer(const char *name, const char *before, int *layer)
{
    const size_t n = strlen(before);
    const char *s = name + n;
    if (strncmp(name, before, n) != 0 || !isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1])))
        return NULL;
    char *end;
    const long v = strtol(s, &end, 10);
    *layer = v < 1000000 ? (int)v : 1000000;
    return end;
}

enum format { GGUF, HUGGING_FACE };

static char *translate(const struct architecture *a, const char *name, enum format from)
{
    static const char *const before[] = { "blk.", "model.layers." };
    for (size_t i = 0; i < sizeof(outer_names) / sizeof(*outer_names); i++)
        if (strcmp(name, outer_names[i][from]) == 0)
            return xstrdup(outer_names[i][!from]);
    int layer;
    const char *rest = weights_layer(name, before[from], &layer);
    for (const struct layer_tensor *t = layer_tensors; rest != NULL && t < layer_tensors + TENSORS; t++) {
        const char *own = from == GGUF ? t->gguf : t->hf, *other = from == GGUF ? t->hf : t->gguf;
        const size_t n = strlen(own);
        if (is_of(t, a) && layer < 100000 && *rest == '.' && strncmp(rest + 1, own, n) == 0 && rest[1 + n] == '.' &&
            strchr(rest + 2 + n, '.') == NULL)
            return xformat("%s%d.%s%s", before[!from], layer, other, rest + 1 + n);
    }
    return xstrdup(name);
}

char *weights_name(const struct architecture *a, const char *gguf_name)
{
    return translate(a, gguf_name, GGUF);
}

char *weights_gguf_name(const struct architecture *a, const char *name)
{
    return translate(a, name, HUGGING_FACE);
}

char *weights_text_name(const char *stored)
{
    static const struct {
        const char *before, *here; // here NULL: tensors of images
    } prefixes[] = {
        { "language_model.model.", "model." },    { "language_model.lm_head.", "lm_head." },
        { "model.language_model.", "model." },    { "vision_tower.", NULL },
        { "multi_modal_projector.", NULL },       { "model.vision_tower.", NULL },
        { "model.multi_modal_projector.", NULL },
    };
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        const size_t n = strlen(prefixes[i].before);
        if (strncmp(stored, prefixes[i].before, n) == 0)
            return prefixes[i].here != NULL ? xformat("%s%s", prefixes[i].here, stored + n) : NULL;
    }
    return xstrdup(stored);
}

// ---- loading

// Hugging Face's configuration declares biases for all four matrices. In GGUF the biases are those whose tensors exist.
static bool has_bias(const struct tensor_loader *c, const struct block_load *what, const char *name, bool of_o)
{
    const struct model_config *m = what->config;
    if (what->found_biases || (m->attention_bias && m->gguf))
        return weights_has(c->weights, name);
    return m->attention_bias && !(m->architecture->qkv_bias && of_o);
}

static bool load_tensor(struct tensor_loader *c, const struct block_load *what, const struct layer_tensor *t,
                        const int64_t size[SIZES], struct block *to, struct error *err)
{
    struct tensor *const at = (void *)((char *)to + t->to), *const bias = (void *)((char *)to + t->bias);
    char name[160];
    snprintf(name, sizeof(name), "%s%s.weight", what->prefix, t->hf);
    if (t->rows == NONE)
        return load_norm(c, what->config, name, size[t->width], at, err);
    if (!load_part_of_matrix(c, name, size[t->of_rows != NONE ? t->of_rows : t->rows], size[t->width], size[t->first],
                             size[t->rows], at, err))
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
    const int64_t size[SIZES] = {
        [WIDTH] = s->width,
        [IN] = what->in,
        [HEADS] = heads,
        [KV] = kv,
        [HEADS_KV] = heads + kv,
        [QKV] = heads + 2 * kv,
        [HIDDEN] = s->hidden,
        [GATE_UP] = 2 * (int64_t)s->hidden,
        [Q_NORM] = a->head_norms == NORMS_OF_HEADS ? s->head_dim : heads,
        [K_NORM] = a->head_norms == NORMS_OF_HEADS ? s->head_dim : kv,
    };
    const bool mixture = what->config->experts > 0 && !layer_set_has(&what->config->dense, what->layer);
    set_attributes(what->config, what->layer, to);
    for (const struct layer_tensor *t = layer_tensors; t < layer_tensors + TENSORS; t++) {
        const bool other = t->to == EXPERTS || (mixture && (t->rows == HIDDEN || t->width == HIDDEN)) ||
                           (t->to == AT(input_norm) && !what->input_norm);
        if (!other && is_of(t, a) && !load_tensor(c, what, t, size, to, err))
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
