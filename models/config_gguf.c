// config_gguf.c - a model's configuration from GGUF metadata (ggml's docs/gguf.md, llama.cpp's llama-model.cpp).
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config_readers.h"
#include "models/formats/gguf.h"
#include "models/formats/identity.h"

// A file whose keys begin with the architecture's name: "llama.block_count".
struct source {
    struct gguf *g;
    const struct architecture *architecture;
    char key[192]; // the full name of the last key that find() looked up
    int layers;    // 0 until block_count is read
    struct error *err;
};

static const struct gguf_value *find(struct source *s, const char *key)
{
    snprintf(s->key, sizeof(s->key), "%s.%s", s->architecture->name, key);
    return gguf_find(s->g, s->key);
}

static bool in_range(struct source *s, int64_t v, int64_t min, int64_t max, int *to)
{
    if (v < min || v > max)
        return fail(s->err, "%s: expected %" PRId64 " to %" PRId64 ", found %" PRId64, s->key, min, max, v);
    *to = (int)v;
    return true;
}

// Reads an integer, or a list of one integer for each layer if they are all equal. *to is unchanged if an optional key
// is missing.
static bool read_int(struct source *s, const char *key, bool needed, int min, int max, int *to)
{
    const struct gguf_value *v = find(s, key);
    int64_t found;
    if (v == NULL)
        return needed ? fail(s->err, "%s is missing", s->key) : true;
    if (gguf_int(s->g, s->key, &found))
        return in_range(s, found, min, max, to);
    bool integers = v->type == GGUF_ARRAY && v->n > 0 && v->element != GGUF_STRING && v->element != GGUF_F32 &&
                    v->element != GGUF_F64 && v->element != GGUF_BOOL;
    if (!integers)
        return fail(s->err, "%s: expected an integer", s->key);
    if (v->n != (uint64_t)s->layers)
        return fail(s->err, "%s: expected a number for each of the %d layers, found %" PRIu64 " numbers", s->key,
                    s->layers, v->n);
    found = gguf_array_int(v, 0);
    for (uint64_t i = 1; i < v->n; i++)
        if (gguf_array_int(v, i) != found)
            return fail(s->err,
                        "%s: layers that differ are not supported (%" PRId64 " in layer 0, %" PRId64
                        " in layer %" PRIu64 ")",
                        s->key, found, gguf_array_int(v, i), i);
    return in_range(s, found, min, max, to);
}

static bool read_real(struct source *s, const char *key, bool needed, double *to)
{
    if (find(s, key) == NULL)
        return needed ? fail(s->err, "%s is missing", s->key) : true;
    if (!gguf_real(s->g, s->key, to))
        return fail(s->err, "%s: expected a real number", s->key);
    return true;
}

// Bits in addition to enum reads.
enum { READS_EXPERTS = 1 << 30, IGNORES_SWITCH = 1 << 29, READS_LONG_ROPE = 1 << 28 };

// Mixtral's files have Llama's name.
static bool has_experts(const struct architecture *a)
{
    return a->experts != NO_EXPERTS || strcmp(a->name, "llama") == 0;
}

// Returns whether the file has Phi-3's LongRoPE.
static bool has_long_factors(const struct source *s)
{
    return (s->architecture->reads & READS_PARTIAL_ROPE) != 0 && gguf_tensor(s->g, "rope_factors_long.weight") != NULL;
}

// Returns whether no context exceeds the window of a family that has windows in transformers. The files have the window
// in their metadata, but llama.cpp gives no layer of these families a window.
static bool window_is_unused(const struct source *s, double window)
{
    const struct architecture *a = s->architecture;
    char key[192];
    int64_t context;
    snprintf(key, sizeof(key), "%s.context_length", a->name);
    return ((a->reads & READS_WINDOW) != 0 || strcmp(a->name, "llama") == 0) && gguf_int(s->g, key, &context) &&
           window >= (double)context;
}

// Rejects settings that are not supported. Values that have no effect are accepted.
static bool reject_unsupported(struct source *s)
{
    static const struct {
        const char *key;
        double inert, also; // values that have no effect
        const char *what;
        unsigned read_by; // bits of enum reads; 0: no family reads it
    } settings[] = {
        { "expert_count", 0, 0, "mixtures of experts", READS_EXPERTS },
        { "expert_shared_count", 0, 0, "shared experts", 0 },
        { "expert_weights_scale", 1, 0, "scaled experts", 0 },
        { "expert_group_count", 1, 0, "groups of experts", 0 },
        { "nextn_predict_layers", 0, 0, "layers that predict later tokens", 0 },
        { "attention.sliding_window", 0, 0, "sliding windows", READS_WINDOW },
        { "attn_logit_softcapping", 0, 0, "soft caps", READS_ATTENTION_CAP },
        { "final_logit_softcapping", 0, 0, "soft caps", READS_LOGIT_CAP },
        { "attention.clamp_kqv", 0, 0, "clamped keys and values", 0 },
        { "attention.max_alibi_bias", 0, 0, "alibi", 0 },
        { "attention.causal", 1, 1, "attention to the future", 0 },
        { "attention.scale", 0, 0, "other scales of attention", READS_MULTIPLIERS },
        { "logit_scale", 0, 1, "scaled logits", READS_MULTIPLIERS },
        { "residual_scale", 0, 1, "scaled residuals", READS_MULTIPLIERS },
        { "embedding_scale", 0, 1, "scaled embeddings", READS_MULTIPLIERS },
        { "use_parallel_residual", 0, 0, "parallel residuals", 0 },
        { "rope.scale_linear", 1, 0, "the old key of linear scaling", 0 },
        { "rope.scaling.finetuned", 1, 1, "layers without RoPE", IGNORES_SWITCH }, // only Granite's files are read for
                                                                                   // it
        { "rope.scaling.attn_factor", 1, 0, "scaled attention", READS_LONG_ROPE },
        { "rope.scaling.yarn_log_multiplier", 0, 0, "another factor of yarn", 0 },
        { "rope.scaling.yarn_ext_factor", 1, -1, "another mixture of yarn", 0 },
        { "rope.scaling.yarn_attn_factor", 1, 0, "another factor of yarn", 0 },
    };
    const struct architecture *a = s->architecture;
    const unsigned of_window = a->window_pattern > 0 ? a->reads : a->reads & ~(unsigned)READS_WINDOW,
                   reads = of_window | (has_experts(a) ? READS_EXPERTS : 0) |
                           ((a->reads & READS_MULTIPLIERS) == 0 ? IGNORES_SWITCH : 0) |
                           (has_long_factors(s) ? READS_LONG_ROPE : 0);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        int64_t n;
        double v;
        bool b;
        if (find(s, settings[i].key) == NULL || (settings[i].read_by & reads) != 0)
            continue;
        if (gguf_int(s->g, s->key, &n))
            v = (double)n;
        else if (gguf_bool(s->g, s->key, &b))
            v = b;
        else if (!gguf_real(s->g, s->key, &v))
            return fail(s->err, "%s: expected %g; not supported: %s", s->key, settings[i].inert, settings[i].what);
        if (v != settings[i].inert && v != settings[i].also &&
            !(settings[i].read_by == READS_WINDOW && window_is_unused(s, v)))
            return fail(s->err, "%s: expected %g, found %g; not supported: %s", s->key, settings[i].inert, v,
                        settings[i].what);
    }
    static const char *const biases[] = { "blk.0.ffn_gate.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias" };
    for (size_t i = 0; i < sizeof(biases) / sizeof(*biases); i++)
        if (gguf_tensor(s->g, biases[i]) != NULL)
            return fail(s->err, "tensor %s: biases of the feed-forward network are not supported", biases[i]);
    return true;
}

static bool read_architecture(struct source *s)
{
    struct gguf_string name, kind;
    if (gguf_text(s->g, "general.type", &kind) && !gguf_is(kind, "model"))
        return fail(s->err, "general.type: expected model, found %.*s", (int)(kind.n < 64 ? kind.n : 64), kind.s);
    if (!gguf_text(s->g, "general.architecture", &name))
        return fail(s->err, "general.architecture is missing");
    s->architecture = architecture_of_gguf(name.s, name.n);
    if (s->architecture != NULL)
        return true;
    const char *lacks = architecture_lacks(name.s, name.n);
    if (lacks != NULL)
        return fail(s->err, "general.architecture: %.*s is not supported: it has %s", (int)name.n, name.s, lacks);
    char *expected = architectures_supported(NAMES_OF_GGUF);
    fail(s->err, "general.architecture: expected %s, found %.*s", expected, (int)(name.n < 64 ? name.n : 64), name.s);
    free(expected);
    return false;
}

static bool read_sizes(struct source *s, struct model_config *c)
{
    if (!read_int(s, "block_count", true, 1, LIMIT_LAYERS, &c->layers))
        return false;
    s->layers = c->layers;
    if (!read_int(s, "embedding_length", true, 1, LIMIT_SIZE, &c->width) ||
        !read_int(s, "feed_forward_length", true, 1, LIMIT_SIZE, &c->hidden) ||
        !read_int(s, "context_length", true, 1, LIMIT_CONTEXT, &c->context) ||
        !read_int(s, "attention.head_count", true, 1, LIMIT_HEADS, &c->heads))
        return false;
    c->kv_heads = c->heads;
    c->head_dim = c->width / c->heads;
    if (!read_int(s, "attention.head_count_kv", false, 1, LIMIT_HEADS, &c->kv_heads))
        return false;
    if (find(s, "attention.key_length") == NULL && c->width % c->heads != 0)
        return fail(s->err, "%s is missing, and a width of %d is not a multiple of %d heads", s->key, c->width,
                    c->heads);
    if (!read_int(s, "attention.key_length", false, 2, LIMIT_SIZE, &c->head_dim))
        return false;
    int value_dim = c->head_dim, rope_dim = c->head_dim;
    if (!read_int(s, "attention.value_length", false, 1, LIMIT_SIZE, &value_dim))
        return false;
    if (value_dim != c->head_dim)
        return fail(s->err, "%s: expected the keys' %d, found %d", s->key, c->head_dim, value_dim);
    if (!read_int(s, "rope.dimension_count", false, 1, LIMIT_SIZE, &rope_dim))
        return false;
    if ((s->architecture->reads & READS_PARTIAL_ROPE) != 0 && rope_dim < c->head_dim && rope_dim % 2 == 0)
        c->rope.rotated = rope_dim;
    else if (rope_dim != c->head_dim)
        return fail(s->err, "%s: expected the head size %d, found %d: partial rope is not supported", s->key,
                    c->head_dim, rope_dim);
    double eps = 0;
    if (!read_real(s, "attention.layer_norm_rms_epsilon", true, &eps))
        return false;
    c->norm_eps = (float)eps;
    return true;
}

// Reads the divisors of all frequencies from a tensor.
static bool read_divisors(struct source *s, const struct model_config *c, const char *name, float *to)
{
    const struct gguf_tensor *t = gguf_tensor(s->g, name);
    const int n = config_rotated(&c->rope, c->head_dim) / 2;
    if (t == NULL)
        return fail(s->err, "tensor %s is missing", name);
    if (n > MAX_ROTATED / 2)
        return fail(s->err, "tensor %s: expected at most %d numbers, found %d", name, MAX_ROTATED / 2, n);
    if (!t->known || t->tensor.type != F32 || t->tensor.rows != 1 || t->tensor.width != n)
        return fail(s->err, "tensor %s: expected %d numbers of f32", name, n);
    memcpy(to, t->tensor.data, (size_t)n * sizeof(float));
    for (int i = 0; i < n; i++)
        if (!(to[i] > 0 && to[i] <= 1e9f))
            return fail(s->err, "tensor %s: expected numbers above 0, found %g", name, (double)to[i]);
    return true;
}

// Reads LongRoPE: the divisors are tensors, its factor of cosines and sines is a key (llama.cpp's Phi-3).
static bool read_long(struct source *s, struct model_config *c)
{
    double factor = 1;
    c->rope.scaling = ROPE_LONG;
    if (!read_int(s, "rope.scaling.original_context_length", true, 2, LIMIT_CONTEXT, &c->rope.original) ||
        !read_real(s, "rope.scaling.attn_factor", false, &factor) ||
        !read_divisors(s, c, "rope_factors_short.weight", c->rope_short) ||
        !read_divisors(s, c, "rope_factors_long.weight", c->rope_long))
        return false;
    c->rope.angle_factor = (float)factor;
    return (factor > 0 && factor <= 1e6) ||
           fail(s->err, "%s.rope.scaling.attn_factor: expected a number above 0, found %g", s->architecture->name,
                factor);
}

static bool read_yarn(struct source *s, struct model_config *c, double factor)
{
    struct rope *r = &c->rope;
    r->scaling = ROPE_YARN;
    r->factor = factor;
    r->low = 1;
    r->high = 32;
    if (!read_int(s, "rope.scaling.original_context_length", true, 2, LIMIT_CONTEXT, &r->original) ||
        !read_real(s, "rope.scaling.yarn_beta_fast", false, &r->high) ||
        !read_real(s, "rope.scaling.yarn_beta_slow", false, &r->low))
        return false;
    r->angle_factor = (float)(factor <= 1 ? 1 : 0.1 * log(factor) + 1);
    return true;
}

// Follows llama.cpp: a factor without a type means linear, and llama 3's scaling is stored as a table of divisors.
static bool read_rope(struct source *s, struct model_config *c)
{
    c->rope.theta = s->architecture->theta != 0 ? s->architecture->theta : 10000;
    double factor = 0;
    if (!read_real(s, "rope.freq_base", false, &c->rope.theta) || !read_real(s, "rope.scaling.factor", false, &factor))
        return false;
    if (has_long_factors(s))
        return read_long(s, c);
    struct gguf_string type = { "linear", 6 };
    if (find(s, "rope.scaling.type") != NULL && !gguf_text(s->g, s->key, &type))
        return fail(s->err, "%s: expected a text", s->key);
    if (gguf_is(type, "yarn"))
        return read_yarn(s, c, factor);
    if (!gguf_is(type, "none") && !gguf_is(type, "linear"))
        return fail(s->err, "%s: expected none, linear or yarn, found %.*s", s->key, (int)(type.n < 64 ? type.n : 64),
                    type.s);
    bool linear = gguf_is(type, "linear") && factor != 0 && factor != 1;
    const bool table = gguf_tensor(s->g, "rope_freqs.weight") != NULL;
    if (table && !read_divisors(s, c, "rope_freqs.weight", c->rope_short))
        return false;
    if (linear && table)
        return fail(s->err, "rope is scaled twice, by %s.rope.scaling.factor and by rope_freqs.weight",
                    s->architecture->name);
    c->rope.scaling = table ? ROPE_TABLE : linear ? ROPE_LINEAR : ROPE_PLAIN;
    c->rope.factor = linear ? factor : 1;
    return true;
}

// ---- layers and factors of some families, as llama.cpp reads them (llama-model.cpp)

static bool read_factor(struct source *s, const char *key, bool needed, float *to)
{
    double x = (double)*to;
    if (!read_real(s, key, needed, &x))
        return false;
    if (!(x >= 0 && x <= 1e9))
        return fail(s->err, "%s: expected a number from 0, found %g", s->key, x);
    *to = (float)x;
    return true;
}

// In llama.cpp the layers with a window follow from the architecture: all except every second or sixth one. Files of
// Llama (including Mistral) and of Qwen have none.
static bool read_windows(struct source *s, struct model_config *c)
{
    const struct architecture *a = s->architecture;
    int pattern = a->window_pattern;
    if (pattern == 0) {
        for (int i = 3; i < c->layers && (a->reads & READS_NO_ROPE_LAYERS) != 0; i += 4)
            layer_set_add(&c->unrotated, i);
        return true;
    }
    c->window = 4096;
    if (!read_int(s, "attention.sliding_window", (a->reads & READS_LOCAL_ROPE) != 0, 1, LIMIT_CONTEXT, &c->window))
        return false;
    if (!read_int(s, "attention.sliding_window_pattern", false, 1, LIMIT_LAYERS, &pattern))
        return false;
    for (int i = 0; i < c->layers; i++)
        if ((i + 1) % pattern != 0)
            layer_set_add(&c->windowed, i);
    const bool local = (a->reads & READS_LOCAL_ROPE) != 0;
    double theta = local ? 10000 : c->rope.theta;
    if (!read_real(s, "rope.freq_base_swa", false, &theta))
        return false;
    if (!local)
        return theta == c->rope.theta ||
               fail(s->err, "%s: expected %s.rope.freq_base, %g, found %g", s->key, a->name, c->rope.theta, theta);
    c->window_rope = (struct rope){ .theta = theta };
    return c->window_rope.theta >= 1 ||
           fail(s->err, "%s: expected a number from 1, found %g", s->key, c->window_rope.theta);
}

// In Gemma's largest models the scale of scores is computed from the width divided by the heads. llama.cpp recognizes
// them by their number of layers.
static float query_scale(const struct model_config *c, const struct architecture *a)
{
    const int largest = a->head_norms == NO_HEAD_NORMS ? 46 : 62;
    const int of = c->layers == largest ? c->width / c->heads : c->head_dim;
    return 1 / sqrtf((float)of);
}

// Follows llama.cpp: all layers have experts, and the weights of the used ones sum to 1.
static bool read_experts(struct source *s, struct model_config *c)
{
    if (!has_experts(s->architecture) || (s->architecture->experts == NO_EXPERTS && find(s, "expert_count") == NULL))
        return true;
    c->expert_hidden = c->hidden;
    c->experts_normalized = true;
    const int least = s->architecture->experts != NO_EXPERTS ? 1 : 0;
    if (!read_int(s, "expert_count", true, least, LIMIT_EXPERTS, &c->experts))
        return false;
    if (c->experts == 0)
        return true;
    return read_int(s, "expert_used_count", true, 1, c->experts < MAX_MIXED ? c->experts : MAX_MIXED,
                    &c->experts_used) &&
           read_int(s, "expert_feed_forward_length", false, 1, LIMIT_SIZE, &c->expert_hidden);
}

static bool read_factors(struct source *s, struct model_config *c)
{
    const struct architecture *a = s->architecture;
    float divisor = 0;
    const bool both = (a->reads & READS_ATTENTION_CAP) != 0; // Gemma-2, whose files may lack the keys
    c->attention_cap = both ? 50 : 0;
    c->logit_cap = both ? 30 : 0;
    if ((both && !read_factor(s, "attn_logit_softcapping", false, &c->attention_cap)) ||
        ((a->reads & READS_LOGIT_CAP) != 0 && !read_factor(s, "final_logit_softcapping", false, &c->logit_cap)))
        return false;
    if ((a->reads & READS_QUERY_SCALAR) != 0)
        c->attention_scale = query_scale(c, a);
    if ((a->reads & READS_MULTIPLIERS) != 0) {
        if (!read_factor(s, "attention.scale", false, &c->attention_scale) ||
            !read_factor(s, "embedding_scale", false, &c->embedding_scale) ||
            !read_factor(s, "residual_scale", false, &c->residual_scale) ||
            !read_factor(s, "logit_scale", true, &divisor)) // llama.cpp requires this one only
            return false;
        if (divisor == 0)
            return fail(s->err, "%s: expected a number above 0, found 0", s->key);
        c->logit_scale = 1 / divisor;
    }
    if (a->scales_embedding)
        c->embedding_scale = sqrtf((float)c->width);
    return true;
}

static bool read_vocabulary(struct source *s, struct model_config *c)
{
    const struct gguf_tensor *e = gguf_tensor(s->g, "token_embd.weight");
    if (e == NULL)
        return fail(s->err, "tensor token_embd.weight is missing");
    if (e->dims != 2 || e->dim[0] != (uint64_t)c->width || e->dim[1] > LIMIT_VOCAB)
        return fail(s->err, "tensor token_embd.weight: expected at most %d rows of %d, found %" PRIu64 " of %" PRIu64,
                    LIMIT_VOCAB, c->width, e->dim[1], e->dim[0]);
    c->vocab = (int)e->dim[1];
    c->tied = gguf_tensor(s->g, "output.weight") == NULL;
    c->attention_bias = gguf_tensor(s->g, "blk.0.attn_q.bias") != NULL;
    const struct gguf_value *tokens = gguf_find(s->g, "tokenizer.ggml.tokens");
    if (tokens != NULL &&
        (tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING || tokens->n > (uint64_t)c->vocab))
        return fail(s->err, "tokenizer.ggml.tokens: expected at most %d texts, a token for each row, found %" PRIu64,
                    c->vocab, tokens->n);
    return true;
}

// Some files mean "none" by 2^32 - 1.
static bool read_id(struct source *s, const char *key, int64_t *id)
{
    *id = -1;
    if (gguf_find(s->g, key) != NULL && !gguf_int(s->g, key, id))
        return fail(s->err, "%s: expected an integer", key);
    if (*id == UINT32_MAX)
        *id = -1;
    return true;
}

static bool read_ends(struct source *s, struct model_config *c)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        int64_t id;
        if (!read_id(s, keys[i], &id) || (id != -1 && !config_add_end_token(c, keys[i], id, s->err)))
            return false;
    }
    const struct gguf_value *tokens = gguf_find(s->g, "tokenizer.ggml.tokens");
    struct gguf_string token;
    size_t at = 0;
    for (int64_t id = 0; gguf_next_string(tokens, &at, &token); id++)
        if (config_is_end_token(token.s, token.n) && !config_add_end_token(c, "tokenizer.ggml.tokens", id, s->err))
            return false;
    return true;
}

// Follows llama.cpp for files without add_bos_token: these kinds of tokenizer put BOS before a text.
static bool adds_bos_by_default(const struct source *s)
{
    static const char *const kinds[] = { "llama-bpe", "llama3", "llama-v3", "falcon3", "tekken" };
    struct gguf_string model, pre;
    if (gguf_text(s->g, "tokenizer.ggml.model", &model) && gguf_is(model, "llama"))
        return true;
    if (gguf_text(s->g, "tokenizer.ggml.pre", &pre))
        for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
            if (gguf_is(pre, kinds[i]))
                return true;
    return false;
}

static void read_special_tokens(const struct source *s, struct model_config *c)
{
    static const char *const names[][2] = { { "bos_token", "tokenizer.ggml.bos_token_id" },
                                            { "eos_token", "tokenizer.ggml.eos_token_id" },
                                            { "unk_token", "tokenizer.ggml.unknown_token_id" },
                                            { "pad_token", "tokenizer.ggml.padding_token_id" } };
    const struct gguf_value *tokens = gguf_find(s->g, "tokenizer.ggml.tokens");
    struct gguf_string token;
    size_t at = 0;
    for (int64_t id = 0; gguf_next_string(tokens, &at, &token); id++)
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
            int64_t wanted;
            if (gguf_int(s->g, names[i][1], &wanted) && wanted == id)
                json_set(c->special_tokens, names[i][0], json_new_text_n(token.s, token.n));
        }
}

static bool read_tokenizer(struct source *s, struct model_config *c)
{
    int64_t bos;
    if (!read_ends(s, c) || !read_id(s, "tokenizer.ggml.bos_token_id", &bos))
        return false;
    if (bos < -1 || bos >= c->vocab)
        return fail(s->err, "tokenizer.ggml.bos_token_id: expected a token id from 0 to %d, found %" PRId64,
                    c->vocab - 1, bos);
    c->bos = (int)bos;
    c->add_bos = c->bos >= 0 && adds_bos_by_default(s);
    const char *key = "tokenizer.ggml.add_bos_token";
    if (gguf_find(s->g, key) != NULL && !gguf_bool(s->g, key, &c->add_bos))
        return fail(s->err, "%s: expected a bool", key);
    struct gguf_string jinja;
    if (gguf_text(s->g, "tokenizer.chat_template", &jinja))
        c->chat_template = xstrndup(jinja.s, jinja.n);
    read_special_tokens(s, c);
    return true;
}

static bool read_mark(struct source *s, const char *key, char **to)
{
    struct gguf_string mark;
    if (gguf_text(s->g, key, &mark))
        *to = xstrndup(mark.s, mark.n);
    return *to != NULL || gguf_find(s->g, key) == NULL || fail(s->err, "%s: expected a text", key);
}

static bool read_all(struct source *s, struct model_config *c)
{
    return read_architecture(s) && reject_unsupported(s) && read_sizes(s, c) && read_rope(s, c) && read_windows(s, c) &&
           read_experts(s, c) && read_factors(s, c) && read_vocabulary(s, c) && read_tokenizer(s, c) &&
           read_mark(s, CONFIG_INFLATED_GGUF, &c->inflated) && read_mark(s, CONFIG_QUANTIZED_GGUF, &c->quantized);
}

bool config_from_gguf(const char *path, bool text, struct digest *d, struct model_config *to, struct error *err)
{
    struct error why;
    struct source s = { .g = gguf_open(path, err), .err = &why };
    if (s.g == NULL)
        return false;
    identity_gguf(s.g, d);
    const struct gguf_value *tokens = gguf_find(s.g, "tokenizer.ggml.tokens");
    to->gguf = true;
    to->vocab = tokens != NULL && tokens->n <= LIMIT_VOCAB ? (int)tokens->n : 0;
    const bool ok = text ? read_tokenizer(&s, to) : read_all(&s, to);
    to->architecture = s.architecture;
    gguf_close(s.g);
    return ok || fail(err, "%s: %s", path, why.text);
}
