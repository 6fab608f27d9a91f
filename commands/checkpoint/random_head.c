#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "formats/file.h"
#include "commands/checkpoint/head_folder.h"
#include "commands/checkpoint/random_model.h"
#include "commands/checkpoint/random_parts.h"
#include "formats/safetensors.h"

enum { MAX_TENSORS = 16 };

struct generator {
    struct model_config target;
    int draft_vocab;
    enum type type;
    uint64_t seed;
    size_t n;
    struct random_tensor shape[MAX_TENSORS];
    struct safetensor tensor[MAX_TENSORS]; // names are literals; "d2t" is not random
};

// rows: 0 for a vector.
static void plan(struct generator *m, const char *name, int64_t rows, int64_t width)
{
    const enum type as = rows == 0 ? F32 : m->type;
    const struct random_tensor shape = { .vector = rows == 0, .rows = rows == 0 ? 1 : rows, .width = width };
    struct safetensor t = { .name = name, .dtype = as == F32 ? "F32" : "BF16", .dims = rows == 0 ? 1 : 2 };
    t.dim[0] = rows == 0 ? width : rows;
    t.dim[1] = width;
    t.bytes = (size_t)shape.rows * type_row_bytes(as, width);
    m->shape[m->n] = shape;
    m->tensor[m->n++] = t;
}

static void plan_tensors(struct generator *m)
{
    const struct model_config *c = &m->target;
    const int64_t heads = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim, width = c->width;
    plan(m, "fc.weight", width, 3 * width);
    plan(m, "midlayer.self_attn.q_proj.weight", heads, 2 * width);
    plan(m, "midlayer.self_attn.k_proj.weight", kv, 2 * width);
    plan(m, "midlayer.self_attn.v_proj.weight", kv, 2 * width);
    plan(m, "midlayer.self_attn.o_proj.weight", width, heads);
    plan(m, "midlayer.mlp.gate_proj.weight", c->hidden, width);
    plan(m, "midlayer.mlp.up_proj.weight", c->hidden, width);
    plan(m, "midlayer.mlp.down_proj.weight", width, c->hidden);
    plan(m, "midlayer.input_layernorm.weight", 0, width);
    plan(m, "midlayer.hidden_norm.weight", 0, width);
    plan(m, "midlayer.post_attention_layernorm.weight", 0, width);
    plan(m, "norm.weight", 0, width);
    plan(m, "lm_head.weight", m->draft_vocab, width);
    if (m->draft_vocab == c->vocab)
        return;
    m->tensor[m->n++] = (struct safetensor){
        .name = "d2t", .dtype = "I64", .dims = 1, .dim = { m->draft_vocab }, .bytes = (size_t)m->draft_vocab * 8
    };
}

// Writes d2t: the difference between a target id and its draft id.
static void put_ids(const struct generator *m, struct part *to)
{
    for (int64_t i = 0; i < m->draft_vocab; i++)
        part_write(to, &(const int64_t){ i * m->target.vocab / m->draft_vocab - i }, sizeof(int64_t));
}

static bool put(void *context, size_t i, struct part *to, struct error *err)
{
    const struct generator *m = context;
    if (strcmp(m->tensor[i].name, "d2t") != 0)
        return random_tensor_write(&m->shape[i], m->type, random_tensor_stream(m->seed, i), to, err);
    put_ids(m, to);
    return true;
}

// Taps of the layers that published heads read, if the target has enough layers.
static char *config_text(const struct generator *m)
{
    const struct model_config *c = &m->target;
    const bool few = c->layers < 7;
    return xformat(
        "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\", \"hidden_size\": %d, "
        "\"intermediate_size\": %d, \"num_hidden_layers\": 1, \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": %d, \"head_dim\": %d, \"vocab_size\": %d, \"draft_vocab_size\": %d, "
        "\"max_position_embeddings\": %d, \"rope_theta\": %.1f, \"rms_norm_eps\": 1e-05, "
        "\"hidden_act\": \"silu\", \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [%d, %d, %d]}}\n",
        c->width, c->hidden, c->heads, c->kv_heads, c->head_dim, c->vocab, m->draft_vocab, c->context, c->rope.theta,
        few ? 1 : 2, c->layers / 2, few ? c->layers : c->layers - 3);
}

bool random_eagle3_write(const char *target, int draft_vocab, enum type type, uint64_t seed, const char *to,
                         struct error *err)
{
    struct generator m = { .draft_vocab = draft_vocab, .type = type, .seed = seed };
    if (!config_read(target, &m.target, err))
        return false;
    bool ok = true;
    if (draft_vocab > m.target.vocab)
        ok = fail(err, "draft_vocab is %d, and %s has %d tokens", draft_vocab, target, m.target.vocab);
    else if (file_exists(to))
        ok = fail(err, "%s: exists already", to);
    if (ok) {
        plan_tensors(&m);
        char *config = config_text(&m);
        ok = head_folder_write(to, m.tensor, m.n, put, &m, config, err);
        free(config);
    }
    config_free(&m.target);
    return ok;
}
