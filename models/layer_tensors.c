// layer_tensors.c - the list of a layer's tensors, and the names of a model's tensors in the two formats.
#include "models/layer_tensors.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "models/architectures.h"

#define AT(member) offsetof(struct block, member)

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

const struct layer_tensor layer_tensors[] = {
    { "attn_norm", "input_layernorm", BEFORE | AROUND, AT(input_norm), 0, OF_NONE, OF_WIDTH, OF_NONE, OF_NONE },
    { "attn_q", "self_attn.q_proj", SPLIT, AT(q), AT(q_bias), OF_HEADS, OF_IN, OF_NONE, OF_NONE },
    { "attn_k", "self_attn.k_proj", SPLIT, AT(k), AT(k_bias), OF_KV, OF_IN, OF_NONE, OF_NONE },
    { "attn_v", "self_attn.v_proj", SPLIT, AT(v), AT(v_bias), OF_KV, OF_IN, OF_NONE, OF_NONE },
    { "attn_qkv", "self_attn.qkv_proj", FUSED, AT(q), 0, OF_HEADS, OF_IN, OF_NONE, OF_QKV },
    { "attn_qkv", "self_attn.qkv_proj", FUSED, AT(k), 0, OF_KV, OF_IN, OF_HEADS, OF_QKV },
    { "attn_qkv", "self_attn.qkv_proj", FUSED, AT(v), 0, OF_KV, OF_IN, OF_HEADS_KV, OF_QKV },
    { "attn_output", "self_attn.o_proj", 0, AT(o), AT(o_bias), OF_WIDTH, OF_HEADS, OF_NONE, OF_NONE },
    { "attn_q_norm", "self_attn.q_norm", NORMED, AT(q_norm), 0, OF_NONE, OF_Q_NORM, OF_NONE, OF_NONE },
    { "attn_k_norm", "self_attn.k_norm", NORMED, AT(k_norm), 0, OF_NONE, OF_K_NORM, OF_NONE, OF_NONE },
    { "post_attention_norm", "post_attention_layernorm", AROUND | AFTER, AT(out_norm), 0, OF_NONE, OF_WIDTH, OF_NONE,
      OF_NONE },
    { "ffn_norm", "post_attention_layernorm", BEFORE, AT(ffn_norm), 0, OF_NONE, OF_WIDTH, OF_NONE, OF_NONE },
    { "ffn_norm", "pre_feedforward_layernorm", AROUND, AT(ffn_norm), 0, OF_NONE, OF_WIDTH, OF_NONE, OF_NONE },
    { "post_ffw_norm", "post_feedforward_layernorm", AROUND | AFTER, AT(ffn_out_norm), 0, OF_NONE, OF_WIDTH, OF_NONE,
      OF_NONE },
    { "ffn_gate", "mlp.gate_proj", SPLIT, AT(gate), 0, OF_HIDDEN, OF_WIDTH, OF_NONE, OF_NONE },
    { "ffn_up", "mlp.up_proj", SPLIT, AT(up), 0, OF_HIDDEN, OF_WIDTH, OF_NONE, OF_NONE },
    { "ffn_up", "mlp.gate_up_proj", FUSED, AT(gate), 0, OF_HIDDEN, OF_WIDTH, OF_NONE, OF_GATE_UP },
    { "ffn_up", "mlp.gate_up_proj", FUSED, AT(up), 0, OF_HIDDEN, OF_WIDTH, OF_HIDDEN, OF_GATE_UP },
    { "ffn_down", "mlp.down_proj", 0, AT(down), 0, OF_WIDTH, OF_HIDDEN, OF_NONE, OF_NONE },
    { "ffn_gate_inp", "mlp.gate", 0, OF_EXPERTS, 0, OF_NONE, OF_NONE, OF_NONE, OF_NONE },
    { "ffn_gate_exps", "mlp.experts.gate_proj", 0, OF_EXPERTS, 0, OF_NONE, OF_NONE, OF_NONE, OF_NONE },
    { "ffn_up_exps", "mlp.experts.up_proj", 0, OF_EXPERTS, 0, OF_NONE, OF_NONE, OF_NONE, OF_NONE },
    { "ffn_down_exps", "mlp.experts.down_proj", 0, OF_EXPERTS, 0, OF_NONE, OF_NONE, OF_NONE, OF_NONE },
};
enum { TENSORS = sizeof(layer_tensors) / sizeof(*layer_tensors) };
const struct layer_tensor *const layer_tensors_end = layer_tensors + TENSORS;

bool layer_tensor_of(const struct layer_tensor *t, const struct architecture *a)
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
        if (layer_tensor_of(t, a) && layer < 100000 && *rest == '.' && strncmp(rest + 1, own, n) == 0 &&
            rest[1 + n] == '.' && strchr(rest + 2 + n, '.') == NULL)
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
