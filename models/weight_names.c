// weight_names.c - names of a tensor in GGUF and in Hugging Face checkpoints.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "models/architectures.h"
#include "models/weights.h"

struct name {
    const char *gguf, *hf;
    unsigned of; // bits of enum norm_places, and below; 0: all families
};

static const struct name outer_names[] = {
    { "token_embd.weight", "model.embed_tokens.weight", 0 },
    { "output_norm.weight", "model.norm.weight", 0 },
    { "output.weight", "lm_head.weight", 0 },
};

// "post_attention_layernorm" is of the stream behind attention where a layer has two norms, and of attention's output otherwise.
enum {
    BEFORE = 1 << NORMS_BEFORE,
    AROUND = 1 << NORMS_AROUND,
    AFTER = 1 << NORMS_AFTER,
    SPLIT = 1 << 8,
    FUSED = 1 << 9
};
static const struct name layer_names[] = {
    { "attn_norm", "input_layernorm", BEFORE | AROUND },
    { "attn_q", "self_attn.q_proj", SPLIT },
    { "attn_k", "self_attn.k_proj", SPLIT },
    { "attn_v", "self_attn.v_proj", SPLIT },
    { "attn_qkv", "self_attn.qkv_proj", FUSED },
    { "attn_output", "self_attn.o_proj", 0 },
    { "attn_q_norm", "self_attn.q_norm", 0 },
    { "attn_k_norm", "self_attn.k_norm", 0 },
    { "post_attention_norm", "post_attention_layernorm", AROUND | AFTER },
    { "ffn_norm", "post_attention_layernorm", BEFORE },
    { "ffn_norm", "pre_feedforward_layernorm", AROUND },
    { "post_ffw_norm", "post_feedforward_layernorm", AROUND | AFTER },
    { "ffn_gate", "mlp.gate_proj", SPLIT },
    { "ffn_up", "mlp.up_proj", SPLIT },
    { "ffn_up", "mlp.gate_up_proj", FUSED },
    { "ffn_down", "mlp.down_proj", 0 },
    { "ffn_gate_inp", "mlp.gate", 0 },
    { "ffn_gate_exps", "mlp.experts.gate_proj", 0 },
    { "ffn_up_exps", "mlp.experts.up_proj", 0 },
    { "ffn_down_exps", "mlp.experts.down_proj", 0 },
};

static bool is_of(const struct name *n, const struct architecture *a)
{
    return n->of == 0 || (n->of & (1u << a->norms | (a->fused ? FUSED : SPLIT))) != 0;
}

// blk.3.attn_q.weight is model.layers.3.self_attn.q_proj.weight. Unknown names are returned unchanged.
char *weights_name(const struct architecture *a, const char *name)
{
    for (size_t i = 0; i < sizeof(outer_names) / sizeof(*outer_names); i++)
        if (strcmp(name, outer_names[i].gguf) == 0)
            return xstrdup(outer_names[i].hf);
    int layer, end = 0;
    bool numbered = strncmp(name, "blk.", 4) == 0 && isdigit((unsigned char)name[4]) &&
                    (name[4] != '0' || name[5] == '.') && strspn(name + 4, "0123456789") <= 6;
    if (!numbered || sscanf(name, "blk.%d.%n", &layer, &end) != 1 || end == 0)
        return xstrdup(name);
    const char *part = name + end, *dot = strrchr(part, '.');
    for (size_t i = 0; dot != NULL && i < sizeof(layer_names) / sizeof(*layer_names); i++)
        if (is_of(&layer_names[i], a) && strlen(layer_names[i].gguf) == (size_t)(dot - part) &&
            strncmp(part, layer_names[i].gguf, (size_t)(dot - part)) == 0)
            return xformat("model.layers.%d.%s%s", layer, layer_names[i].hf, dot);
    return xstrdup(name);
}

const char *weights_layer(const char *name, const char *before, int *layer)
{
    const size_t n = strlen(before);
    const char *s = name + n;
    if (strncmp(name, before, n) != 0 || !isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1])))
        return NULL;
    int v = 0;
    for (; isdigit((unsigned char)*s); s++)
        v = v < 100000 ? v * 10 + (*s - '0') : v;
    *layer = v;
    return s;
}

char *weights_gguf_name(const struct architecture *a, const char *name)
{
    for (size_t i = 0; i < sizeof(outer_names) / sizeof(*outer_names); i++)
        if (strcmp(name, outer_names[i].hf) == 0)
            return xstrdup(outer_names[i].gguf);
    int layer, end = 0;
    if (sscanf(name, "model.layers.%d.%n", &layer, &end) != 1 || end == 0)
        return xstrdup(name);
    for (size_t i = 0; i < sizeof(layer_names) / sizeof(*layer_names); i++) {
        size_t n = strlen(layer_names[i].hf);
        if (is_of(&layer_names[i], a) && strncmp(name + end, layer_names[i].hf, n) == 0 && name[end + (int)n] == '.')
            return xformat("blk.%d.%s%s", layer, layer_names[i].gguf, name + end + n);
    }
    return xstrdup(name);
}

char *weights_text_name(const char *stored)
{
    static const struct {
        const char *before, *here; // here NULL: of images
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
