// config_json.c - the configuration of layers, from the JSON that transformers' configurations write: a model's
// config.json, or the object in a head's config.json that describes its own layers.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config_parts.h"
#include "formats/json_fields.h"

// Rejects settings that the architecture does not read. null, and values that have no effect, are accepted.
static bool reject_unsupported(const struct fields *f, const struct architecture *a)
{
    static const struct {
        const char *key, *inert; // the value as JSON
        unsigned read_by;        // of enum reads; 0: by none
    } settings[] = {
        { "attention_bias", "false", READS_ATTENTION_BIAS },
        { "mlp_bias", "false", 0 },
        { "sliding_window", "null", READS_WINDOW },
        { "partial_rotary_factor", "1", READS_PARTIAL_ROPE },
        { "resid_pdrop", "0", 0 },
        { "embd_pdrop", "0", 0 },
        { "attn_logit_softcapping", "null", READS_SOFT_CAPS },
        { "final_logit_softcapping", "null", READS_SOFT_CAPS },
        { "quantization_config", "null", 0 },
        { "compression_config", "null", 0 },
        { "num_experts", "0", 0 },
        { "num_local_experts", "0", 0 },
        { "pretraining_tp", "1", 0 },
        { "rope_interleaved", "false", 0 },
        { "is_encoder_decoder", "false", 0 },
        { "use_bidirectional_attention", "false", 0 },
        // Llama's class does not read these; code that comes with a checkpoint may. No tensor shows them.
        { "embedding_multiplier", "1", READS_MULTIPLIERS },
        { "residual_multiplier", "1", READS_MULTIPLIERS },
        { "attention_multiplier", "null", READS_MULTIPLIERS },
        { "logits_scaling", "1", READS_MULTIPLIERS },
        { "scale_emb", "1", 0 },
        { "scale_depth", "null", 0 },
        { "query_pre_attn_scalar", "null", READS_QUERY_SCALAR },
        { "clip_qkv", "null", 0 },
        { "no_rope_layers", "null", READS_NO_ROPE_LAYERS },
        { "logit_scale", "1", 0 },
        { "use_parallel_residual", "false", 0 },
        { "alibi", "false", 0 },
        { "num_nextn_predict_layers", "0", 0 },
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        const struct json *v = json_get(f->object, settings[i].key);
        const bool of_experts = (a->experts == QWEN_EXPERTS && strcmp(settings[i].key, "num_experts") == 0) ||
                                (a->experts == MIXTRAL_EXPERTS && strcmp(settings[i].key, "num_local_experts") == 0);
        if (json_is_null(v) || (settings[i].read_by & a->reads) != 0 || of_experts)
            continue;
        char *text = json_write(v);
        bool same = strcmp(text, settings[i].inert) == 0 ||
                    (json_is_number(v) && *settings[i].inert != 'n' && json_number(v) == atof(settings[i].inert));
        free(text);
        if (!same)
            return fields_refuse(f, settings[i].key, settings[i].inert, v);
    }
    // MiniCPM divides its logits by hidden_size / dim_model_base.
    const struct json *base = json_get(f->object, "dim_model_base"), *norm = json_get(f->object, "norm_type");
    if (!json_is_null(base) &&
        !(json_is_number(base) && json_number(base) == json_number(json_get(f->object, "hidden_size"))))
        return fields_refuse(f, "dim_model_base", "hidden_size, or nothing", base);
    if (!json_is_null(norm) && strcasecmp(json_text(norm), "rmsnorm") != 0 &&
        strcasecmp(json_text(norm), "rms_norm") != 0)
        return fields_refuse(f, "norm_type", "\"rmsnorm\"", norm);
    return true;
}

// Gemma's configurations have the function under hidden_activation, older ones under hidden_act, with another name.
static bool check_gate(const struct fields *f, const struct architecture *a)
{
    const struct json *own = json_get(f->object, "hidden_activation"), *old = json_get(f->object, "hidden_act");
    const bool gelu = a->gate == GATE_GELU;
    const char *key = gelu && !json_is_null(own) ? "hidden_activation" : "hidden_act";
    const struct json *v = gelu && !json_is_null(own) ? own : old;
    const char *expected = gelu ? "gelu_pytorch_tanh" : "silu";
    if (json_is_null(v) || strcmp(json_text(v), expected) == 0)
        return true;
    return fields_refuse(f, key, gelu ? "\"gelu_pytorch_tanh\"" : "\"silu\"", v);
}

static bool read_sizes(const struct fields *f, struct model_config *c)
{
    static const struct wrapper none = { .sizes = { .context = 2048 } }; // LlamaConfig's default
    const struct wrapper *w = c->wrapper != NULL && c->wrapper->sizes.context > 0 ? c->wrapper : &none;
    const struct architecture *a = c->architecture;
    c->context = w->sizes.context;
    c->vocab = w->sizes.vocab;
    c->heads = w->sizes.heads;
    double eps = a->norm_eps != 0 ? a->norm_eps : 1e-6;
    if (!fields_int(f, "num_hidden_layers", true, 1, LIMIT_LAYERS, &c->layers) ||
        !fields_int(f, "hidden_size", true, 1, LIMIT_SIZE, &c->width) ||
        !fields_int(f, "intermediate_size", true, 1, LIMIT_SIZE, &c->hidden) ||
        !fields_int(f, "vocab_size", c->vocab == 0, 1, LIMIT_VOCAB, &c->vocab) ||
        !fields_int(f, "max_position_embeddings", false, 1, LIMIT_CONTEXT, &c->context) ||
        !fields_int(f, "num_attention_heads", c->heads == 0, 1, LIMIT_HEADS, &c->heads))
        return false;
    c->kv_heads = w->sizes.kv_heads > 0 ? w->sizes.kv_heads : c->heads;
    c->head_dim = w->sizes.head_dim > 0 ? w->sizes.head_dim : c->width / c->heads;
    if (json_is_null(json_get(f->object, "head_dim")) && !a->head_dim_needed && c->width % c->heads != 0)
        return fields_refuse(f, "num_attention_heads", "a divisor of hidden_size, as there is no head_dim",
                             json_get(f->object, "num_attention_heads"));
    c->tied = a->tied;
    c->attention_bias = a->qkv_bias;
    if (!fields_int(f, "num_key_value_heads", a->kv_heads_needed && w->sizes.kv_heads == 0, 1, LIMIT_HEADS,
                    &c->kv_heads) ||
        !fields_int(f, "head_dim", a->head_dim_needed && w->sizes.head_dim == 0, 2, LIMIT_SIZE, &c->head_dim) ||
        !fields_bool(f, "tie_word_embeddings", &c->tied) || !fields_bool(f, "attention_bias", &c->attention_bias) ||
        !fields_real(f, "rms_norm_eps", false, &eps))
        return false;
    c->norm_eps = (float)eps;
    return true;
}

static bool is_phi3(const struct model_config *c)
{
    return (c->architecture->reads & READS_PARTIAL_ROPE) != 0;
}

// partial_rotary_factor, beside RoPE's other keys or among them: the share of a head that is rotated.
static bool read_rotated(const struct fields *f, const struct fields *of_rope, const struct model_config *c,
                         struct rope *to)
{
    double part = 1;
    const struct json *own = json_get(of_rope->object, "partial_rotary_factor");
    if ((is_phi3(c) && !fields_real(f, "partial_rotary_factor", false, &part)) ||
        !fields_real(of_rope, "partial_rotary_factor", false, &part))
        return false;
    if (part == 1)
        return true;
    if (!is_phi3(c))
        return fields_refuse(f, "partial_rotary_factor", "1", own);
    to->rotated = (int)(c->head_dim * part);
    if (!(part > 0 && part < 1) || to->rotated < 2 || to->rotated % 2 != 0)
        return fields_refuse(f, "partial_rotary_factor", "a share of a head, an even number of its numbers",
                             json_is_null(own) ? json_get(f->object, "partial_rotary_factor") : own);
    return true;
}

// original_max_position_embeddings, among RoPE's keys or, of LongRoPE, beside them.
static bool read_original(const struct fields *f, const struct fields *of_rope, struct rope *to)
{
    const bool own = !json_is_null(json_get(of_rope->object, "original_max_position_embeddings"));
    return fields_int(own ? of_rope : f, "original_max_position_embeddings", true, 2, LIMIT_CONTEXT, &to->original);
}

static bool read_factor_list(const struct fields *of_rope, const char *key, int n, float *to)
{
    const struct json *list = json_get(of_rope->object, key);
    char expected[64];
    bool ok = json_is_array(list) && json_count(list) == (size_t)n && n <= MAX_ROTATED / 2;
    for (int i = 0; i < n && ok; i++) {
        const double x = json_number(json_at(list, (size_t)i));
        ok = json_is_number(json_at(list, (size_t)i)) && x > 0 && x <= 1e9;
        to[i] = (float)x;
    }
    snprintf(expected, sizeof(expected), "a list of %d numbers above 0", n);
    return ok || fields_refuse(of_rope, key, expected, list);
}

// LongRoPE: its factor of cosines and sines follows from the extension of the context.
static bool read_long(const struct fields *f, const struct fields *of_rope, struct model_config *c, struct rope *to)
{
    const int n = config_rotated(to, c->head_dim) / 2;
    double given = 0;
    if (!read_original(f, of_rope, to) || !read_factor_list(of_rope, "short_factor", n, c->rope_short) ||
        !read_factor_list(of_rope, "long_factor", n, c->rope_long))
        return false;
    double factor = (double)c->context / to->original;
    if (!fields_real(of_rope, "factor", false, &factor) || !fields_real(of_rope, "attention_factor", false, &given))
        return false;
    if (given < 0 || given > 1e6)
        return fields_refuse(of_rope, "attention_factor", "a number above 0",
                             json_get(of_rope->object, "attention_factor"));
    to->scaling = ROPE_LONG;
    to->angle_factor = (float)(given > 0 ? given : factor <= 1 ? 1 : sqrt(1 + log(factor) / log(to->original)));
    return true;
}

static double yarn_scale(double factor, double by)
{
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

static bool read_yarn(const struct fields *f, const struct fields *of_rope, struct rope *to)
{
    double given = 0, mscale = 0, all = 0;
    bool truncate = true;
    to->low = 1;
    to->high = 32;
    if (!read_original(f, of_rope, to) || !fields_real(of_rope, "beta_slow", false, &to->low) ||
        !fields_real(of_rope, "beta_fast", false, &to->high) || !fields_bool(of_rope, "truncate", &truncate) ||
        !fields_real(of_rope, "attention_factor", false, &given) || !fields_real(of_rope, "mscale", false, &mscale) ||
        !fields_real(of_rope, "mscale_all_dim", false, &all))
        return false;
    if (given < 0 || given > 1e6)
        return fields_refuse(of_rope, "attention_factor", "a number above 0",
                             json_get(of_rope->object, "attention_factor"));
    to->scaling = ROPE_YARN;
    to->untruncated = !truncate;
    to->angle_factor = (float)(given > 0                 ? given
                               : mscale != 0 && all != 0 ? yarn_scale(to->factor, mscale) / yarn_scale(to->factor, all)
                                                         : yarn_scale(to->factor, 1));
    return true;
}

// One RoPE, from the object that scales it (data null: none does). theta: where the object has none.
static bool read_one_rope(const struct fields *f, const char *where, const struct json *rope, double theta,
                          struct model_config *c, struct rope *to)
{
    char full[96]; // the path of the object
    snprintf(full, sizeof(full), "%s%s%s", f->where, *f->where != '\0' ? "." : "", where);
    const struct fields of_rope = { f->path, full, rope, f->err };
    to->theta = theta;
    if (!fields_real(&of_rope, "rope_theta", false, &to->theta) || !read_rotated(f, &of_rope, c, to))
        return false;
    const struct json *type = json_get(rope, "rope_type"), *old_type = json_get(rope, "type");
    // Versions of transformers differ in which of the two they use.
    if (!json_is_null(type) && !json_is_null(old_type) && strcmp(json_text(type), json_text(old_type)) != 0)
        return fields_refuse(&of_rope, "type", "the same as rope_type", old_type);
    if (json_is_null(type))
        type = old_type;
    const char *name = json_is_text(type) ? json_text(type) : "default";
    if (!json_is_null(type) && !json_is_text(type))
        return fields_refuse(f, where, "one rope for all layers, with a rope_type", rope);
    if (strcmp(name, "default") == 0)
        return true;
    if (strcmp(name, "longrope") == 0 || ((strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0) && is_phi3(c)))
        return read_long(f, &of_rope, c, to);
    if (!fields_real(&of_rope, "factor", true, &to->factor))
        return false;
    if (strcmp(name, "yarn") == 0)
        return read_yarn(f, &of_rope, to);
    if (strcmp(name, "linear") == 0) {
        to->scaling = ROPE_LINEAR;
        return true;
    }
    if (strcmp(name, "llama3") != 0)
        return fields_refuse(f, where, "a rope_type of default, linear, llama3, yarn or longrope", type);
    double original = 0;
    if (!fields_real(&of_rope, "low_freq_factor", true, &to->low) ||
        !fields_real(&of_rope, "high_freq_factor", true, &to->high) ||
        !fields_real(&of_rope, "original_max_position_embeddings", true, &original))
        return false;
    if (!(original >= 1 && original <= LIMIT_CONTEXT))
        return fields_refuse(f, "original_max_position_embeddings", "a number of positions",
                             json_get(rope, "original_max_position_embeddings"));
    to->original = (int)original;
    to->scaling = ROPE_LLAMA3;
    return true;
}

// Ministral 3 multiplies queries at position i by 1 + beta log(1 + floor(i / original)): by 1 in the original context. The model's context ends there.
static bool read_query_rise(const struct fields *f, const char *where, const struct json *rope, struct model_config *c)
{
    const struct json *beta = json_get(rope, "llama_4_scaling_beta");
    char full[96];
    snprintf(full, sizeof(full), "%s%s%s", f->where, *f->where != '\0' ? "." : "", where);
    const struct fields of_rope = { f->path, full, rope, f->err };
    if ((c->architecture->reads & READS_QUERY_RISE) == 0)
        return json_is_null(beta) || fields_refuse(&of_rope, "llama_4_scaling_beta", "nothing", beta);
    if (!json_is_number(beta) || !(json_number(beta) >= 0))
        return fields_refuse(&of_rope, "llama_4_scaling_beta", "a number from 0", beta);
    int original = 0;
    if (!fields_int(&of_rope, "original_max_position_embeddings", true, 2, LIMIT_CONTEXT, &original))
        return false;
    if (json_number(beta) > 0 && c->context > original)
        c->context = original;
    return true;
}

// transformers 4 writes rope_theta and rope_scaling, transformers 5 rope_parameters, which contains both; of a model whose layers
// with a window have a RoPE of their own, one object for each type of layer.
static bool read_rope(const struct fields *f, struct model_config *c)
{
    const struct json *new = json_get(f->object, "rope_parameters"), *old = json_get(f->object, "rope_scaling");
    const bool local = (c->architecture->reads & READS_LOCAL_ROPE) != 0;
    if (!json_is_null(new) && !json_is_null(old))
        return fields_refuse(f, "rope_scaling", "nothing beside rope_parameters", old);
    const char *where = json_is_null(new) ? "rope_scaling" : "rope_parameters";
    const struct json *rope = json_is_null(new) ? old : new;
    if (!json_is_null(rope) && !json_is_object(rope))
        return fields_refuse(f, where, "an object", rope);
    const struct json *full = json_get(rope, "full_attention"), *windowed = json_get(rope, "sliding_attention");
    const bool per_type = full != NULL || windowed != NULL;
    if (per_type && !local)
        return fields_refuse(f, where, "one rope for all layers, with a rope_type", rope);

    double theta = c->architecture->theta != 0 ? c->architecture->theta : 10000, of_windows = 10000;
    if (!fields_real(f, "rope_theta", false, &theta) ||
        (local && !fields_real(f, "rope_local_base_freq", false, &of_windows)) ||
        !read_one_rope(f, where, per_type ? full : rope, theta, c, &c->rope) || !read_query_rise(f, where, rope, c))
        return false;
    if (!json_is_null(json_get(f->object, "rope_theta")) && theta != c->rope.theta)
        return fields_refuse(f, "rope_theta", "the same in rope_parameters", json_get(f->object, "rope_theta"));
    return !local || read_one_rope(f, where, per_type ? windowed : NULL, of_windows, c, &c->window_rope);
}

// ---- layers

// sliding_window, null where use_sliding_window is false. 0: no layer has one.
static bool read_window_size(const struct fields *f, struct model_config *c)
{
    const unsigned reads = c->architecture->reads;
    const struct json *v = json_get(f->object, "sliding_window");
    bool used = (reads & READS_USE_WINDOW) == 0;
    if ((reads & READS_WINDOW) == 0)
        return true;
    if (!used && !fields_bool(f, "use_sliding_window", &used))
        return false;
    c->window = json_get(f->object, "sliding_window") != NULL ? 0 : c->architecture->window;
    if (!json_is_null(v) && !fields_int(f, "sliding_window", false, 1, LIMIT_CONTEXT, &c->window))
        return false;
    c->window = used ? c->window : 0;
    return true;
}

// Without layer_types: which layers transformers gives a window.
static bool default_windows(const struct fields *f, struct model_config *c)
{
    const struct architecture *a = c->architecture;
    int pattern = a->window_pattern, first = 0;
    if ((a->reads & READS_WINDOW_PATTERN) != 0 &&
        !fields_int(f, "sliding_window_pattern", false, 1, LIMIT_LAYERS, &pattern))
        return false;
    if ((a->reads & READS_USE_WINDOW) != 0 && (a->reads & READS_NO_ROPE_LAYERS) == 0) {
        first = 28;
        if (!fields_int(f, "max_window_layers", false, 0, LIMIT_CONTEXT, &first))
            return false;
    }
    for (int i = first; i < c->layers; i++)
        if ((pattern == 0 || (i + 1) % pattern != 0) &&
            ((a->reads & READS_NO_ROPE_LAYERS) == 0 || layer_set_has(&c->unrotated, i)))
            layer_set_add(&c->windowed, i);
    return true;
}

static bool read_windows(const struct fields *f, struct model_config *c)
{
    const struct json *types = json_get(f->object, "layer_types");
    if (!read_window_size(f, c))
        return false;
    if (json_is_null(types) && c->window > 0)
        return default_windows(f, c);
    const bool one = c->window > 0 && c->architecture->window_pattern == 0 &&
                     (c->architecture->reads & (READS_USE_WINDOW | READS_LAYER_TYPES)) ==
                         0; // Mistral: transformers does not read layer_types
    char *expected = one ? xstrdup("nothing: all layers have the window")
                         : xformat("a list of %d times \"full_attention\"%s", c->layers,
                                   c->window > 0 ? " or \"sliding_attention\"" : "");
    bool ok = json_is_null(types) || (json_is_array(types) && !one && json_count(types) == (size_t)c->layers);
    for (size_t i = 0; i < json_count(types) && ok; i++) {
        const bool windowed = strcmp(json_text(json_at(types, i)), "sliding_attention") == 0;
        ok = windowed ? c->window > 0 : strcmp(json_text(json_at(types, i)), "full_attention") == 0;
        if (windowed)
            layer_set_add(&c->windowed, (int)i);
    }
    if (!ok)
        fields_refuse(f, "layer_types", expected, types);
    free(expected);
    return ok;
}

// SmolLM3: no_rope_layers has a 1 for each layer with RoPE; without it every fourth layer has none.
static bool read_unrotated(const struct fields *f, struct model_config *c)
{
    const struct json *list = json_get(f->object, "no_rope_layers");
    int interval = 4;
    if ((c->architecture->reads & READS_NO_ROPE_LAYERS) == 0)
        return true;
    if (!fields_int(f, "no_rope_layer_interval", false, 1, LIMIT_LAYERS, &interval))
        return false;
    if (!json_is_null(list) && (!json_is_array(list) || json_count(list) != (size_t)c->layers))
        return fields_refuse(f, "no_rope_layers", "a number, 0 or 1, for each layer", list);
    for (int i = 0; i < c->layers; i++) {
        const struct json *v = json_at(list, (size_t)i);
        if (!json_is_null(list) && (!json_is_int(v) || json_int(v) < 0 || json_int(v) > 1))
            return fields_refuse(f, "no_rope_layers", "a number, 0 or 1, for each layer", list);
        if (json_is_null(list) ? (i + 1) % interval == 0 : json_int(v) == 0)
            layer_set_add(&c->unrotated, i);
    }
    return true;
}

// ---- experts

// Which layers have experts: those of every decoder_sparse_step, without mlp_only_layers.
static bool read_dense_layers(const struct fields *f, struct model_config *c)
{
    const struct json *list = json_get(f->object, "mlp_only_layers");
    int step = 1;
    if (!fields_int(f, "decoder_sparse_step", false, 1, LIMIT_LAYERS, &step))
        return false;
    for (int i = 0; i < c->layers; i++)
        if ((i + 1) % step != 0)
            layer_set_add(&c->dense, i);
    if (!json_is_null(list) && !json_is_array(list))
        return fields_refuse(f, "mlp_only_layers", "a list of layers", list);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *v = json_at(list, i);
        if (!json_is_int(v) || json_int(v) < 0 || json_int(v) >= c->layers)
            return fields_refuse(f, "mlp_only_layers", "a list of layers", list);
        layer_set_add(&c->dense, (int)json_int(v));
    }
    return true;
}

static bool read_experts(const struct fields *f, struct model_config *c)
{
    const enum expert_layers kind = c->architecture->experts;
    const bool qwen = kind == QWEN_EXPERTS;
    if (kind == NO_EXPERTS)
        return true;
    c->experts_normalized = !qwen;
    if (!fields_int(f, qwen ? "num_experts" : "num_local_experts", true, 1, LIMIT_EXPERTS, &c->experts) ||
        !fields_int(f, "num_experts_per_tok", true, 1, c->experts < MAX_MIXED ? c->experts : MAX_MIXED,
                    &c->experts_used) ||
        !fields_int(f, qwen ? "moe_intermediate_size" : "intermediate_size", true, 1, LIMIT_SIZE, &c->expert_hidden))
        return false;
    return !qwen || (fields_bool(f, "norm_topk_prob", &c->experts_normalized) && read_dense_layers(f, c));
}

// ---- factors

static bool positive(const struct fields *f, const char *key, double least, float *to)
{
    double x = 0;
    const struct json *v = json_get(f->object, key);
    if (json_is_null(v))
        return true;
    if (!fields_real(f, key, false, &x))
        return false;
    if (!(x >= least && x <= 1e9))
        return fields_refuse(f, key, "a number above 0", v);
    *to = (float)x;
    return true;
}

static bool read_factors(const struct fields *f, struct model_config *c)
{
    const unsigned reads = c->architecture->reads;
    const double least = 1e-9;
    float scalar = 0, divisor = 0;
    if ((reads & READS_SOFT_CAPS) != 0 && (!positive(f, "attn_logit_softcapping", least, &c->attention_cap) ||
                                           !positive(f, "final_logit_softcapping", least, &c->logit_cap)))
        return false;
    if ((reads & READS_QUERY_SCALAR) != 0) {
        if (!positive(f, "query_pre_attn_scalar", least, &scalar))
            return false;
        c->attention_scale = 1 / sqrtf(scalar > 0 ? scalar : 256);
    }
    if ((reads & READS_MULTIPLIERS) != 0) {
        c->attention_scale = 1;
        if (!positive(f, "embedding_multiplier", least, &c->embedding_scale) ||
            !positive(f, "residual_multiplier", least, &c->residual_scale) ||
            !positive(f, "attention_multiplier", least, &c->attention_scale) ||
            !positive(f, "logits_scaling", least, &divisor))
            return false;
        c->logit_scale = divisor > 0 ? 1 / divisor : 0;
    }
    if (c->architecture->scales_embedding)
        c->embedding_scale = sqrtf((float)c->width);
    return true;
}

static bool refuse_family(const struct fields *f, const struct json *type)
{
    const char *lacks = architecture_lacks(json_text(type), json_text_length(type));
    if (lacks != NULL)
        return fail(f->err, "%s: %s%smodel_type: %s is not supported: it has %s", f->path, f->where,
                    *f->where != '\0' ? "." : "", json_text(type), lacks);
    char *expected = architectures_supported(false);
    fields_refuse(f, "model_type", expected, type);
    free(expected);
    return false;
}

bool config_read_family(const struct fields *f, bool required, struct model_config *to)
{
    const struct json *type = json_get(f->object, "model_type");
    to->architecture = architecture_of_model_type(json_is_null(type) && !required ? "llama" : json_text(type));
    return to->architecture != NULL || refuse_family(f, type);
}

// The model of texts in one of texts and images. What the whole says of the quantization and the tied head holds for it.
bool config_read_wrapper(const struct fields *f, const struct wrapper *w, struct fields *text, struct model_config *to)
{
    const struct json *own = json_get(f->object, "text_config"),
                      *quantized = json_get(f->object, "quantization_config");
    if (!json_is_object(own))
        return fields_refuse(f, "text_config", "an object", own);
    if (!json_is_null(quantized))
        return fields_refuse(f, "quantization_config", "null", quantized);
    *text = (struct fields){ f->path, "text_config", own, f->err };
    const struct json *type = json_get(own, "model_type");
    const char *name = json_is_null(type) ? w->text[0] : json_text(type);
    if (!wrapper_has_text(w, name)) {
        char *expected = xformat("\"%s\"%s%s%s", w->text[0], w->text[1] != NULL ? " or \"" : "",
                                 w->text[1] != NULL ? w->text[1] : "", w->text[1] != NULL ? "\"" : "");
        fields_refuse(text, "model_type", expected, type);
        free(expected);
        return false;
    }
    to->wrapper = w;
    to->architecture = architecture_of_model_type(name);
    return true;
}

bool config_from_json(const struct fields *f, struct model_config *to)
{
    return reject_unsupported(f, to->architecture) && check_gate(f, to->architecture) && read_sizes(f, to) &&
           read_rope(f, to) && read_unrotated(f, to) && read_windows(f, to) && read_experts(f, to) &&
           read_factors(f, to);
}
