// config_json.c - the configuration of layers, from the JSON that transformers' configurations write: a model's
// config.json, or the object in a head's config.json that describes its own layers.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config_readers.h"
#include "models/formats/json_fields.h"

// Bits in addition to enum reads. READS_EXPERTS: a family with experts reads the key. OF_EXPERTS: a setting of experts,
// which has no effect if there are none.
enum { READS_EXPERTS = 1 << 29, OF_EXPERTS = 1 << 30 };

// The masks of every class of transformers use is_causal; null means false. A model of texts and images passes its
// value on to the text model, except null.
static bool check_causal(const struct fields *f, bool whole)
{
    const struct json *v = json_get(f->object, "is_causal");
    return v == NULL || json_bool(v) || (whole && json_is_null(v)) ||
           fields_refuse(f, "is_causal", "true, or nothing", v);
}

// Rejects settings that the architecture does not read. null, and values that have no effect, are accepted.
static bool reject_unsupported(const struct fields *f, const struct architecture *a)
{
    static const struct {
        const char *key, *inert; // the value as JSON
        unsigned read_by;        // bits of enum reads; 0: no family reads it
    } settings[] = {
        { "attention_bias", "false", READS_ATTENTION_BIAS },
        { "mlp_bias", "false", 0 },
        { "sliding_window", "null", READS_WINDOW },
        { "partial_rotary_factor", "1", READS_PARTIAL_ROPE },
        { "attn_logit_softcapping", "null", READS_ATTENTION_CAP | READS_LOCAL_ROPE }, // Gemma 3's class does not use it
        { "final_logit_softcapping", "null", READS_LOGIT_CAP },
        { "compression_config", "null", 0 },
        { "num_experts", "0", READS_EXPERTS },
        { "num_local_experts", "0", READS_EXPERTS },
        { "n_shared_experts", "0", OF_EXPERTS },
        { "shared_expert_intermediate_size", "0", OF_EXPERTS },
        { "routed_scaling_factor", "1", OF_EXPERTS },
        { "scoring_func", "\"softmax\"", OF_EXPERTS },
        { "n_group", "1", OF_EXPERTS },
        { "first_k_dense_replace", "0", OF_EXPERTS },
        { "swiglu_limit", "null", 0 },
        { "attention_chunk_size", "null", 0 },
        { "text_config", "null", 0 },
        { "vision_config", "null", 0 },
        { "rope_local_base_freq", "null", READS_LOCAL_ROPE },
        { "rope_interleaved", "false", 0 },
        { "is_encoder_decoder", "false", 0 },
        { "per_layer_config", "null", 0 },
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
    const unsigned reads = a->reads | (a->experts != NO_EXPERTS ? READS_EXPERTS : 0);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        const struct json *v = json_get(f->object, settings[i].key);
        if (json_is_null(v) || (settings[i].read_by & reads) != 0 ||
            (settings[i].read_by == OF_EXPERTS && a->experts == NO_EXPERTS))
            continue;
        char *text = json_write(v);
        bool same = strcmp(text, settings[i].inert) == 0 ||
                    (json_is_number(v) && *settings[i].inert != 'n' && json_number(v) == atof(settings[i].inert));
        free(text);
        if (!same)
            return fields_refuse(f, settings[i].key, settings[i].inert, v);
    }
    if (!check_causal(f, false))
        return false;
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

// Gemma's classes take the function from hidden_activation, and do not read hidden_act.
static bool check_gate(const struct fields *f, const struct architecture *a)
{
    const bool gelu = a->gate == GATE_GELU;
    const char *key = gelu ? "hidden_activation" : "hidden_act";
    const struct json *v = json_get(f->object, key);
    if (json_is_null(v) || strcmp(json_text(v), gelu ? "gelu_pytorch_tanh" : "silu") == 0)
        return true;
    return fields_refuse(f, key, gelu ? "\"gelu_pytorch_tanh\"" : "\"silu\"", v);
}

static bool read_sizes(const struct fields *f, struct model_config *c)
{
    static const struct wrapper none = { 0 };
    const struct wrapper *w = c->wrapper != NULL ? c->wrapper : &none;
    const struct architecture *a = c->architecture;
    c->context = a->context > 0 ? a->context : 2048;
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

// ---- layers

// Refuses keys of other families that specify other windows than this family has.
static bool refuse_other_windows(const struct fields *f, const struct model_config *c)
{
    const struct json *use = json_get(f->object, "use_sliding_window"),
                      *layers = json_get(f->object, "max_window_layers"),
                      *pattern = json_get(f->object, "sliding_window_pattern");
    if (!json_is_null(use) && !(json_is_bool(use) && json_bool(use) == (c->window > 0)))
        return fields_refuse(f, "use_sliding_window", c->window > 0 ? "true, as there is a window" : "false", use);
    if (c->window > 0 && !json_is_null(layers))
        return fields_refuse(f, "max_window_layers", "nothing", layers);
    if (c->window > 0 && !json_is_null(pattern) && (c->architecture->reads & READS_WINDOW_PATTERN) == 0)
        return fields_refuse(f, "sliding_window_pattern", "nothing", pattern);
    return true;
}

// Reads sliding_window, which is null if use_sliding_window is false. 0: no layer has one.
static bool read_window_size(const struct fields *f, struct model_config *c)
{
    const unsigned reads = c->architecture->reads;
    const struct json *v = json_get(f->object, "sliding_window");
    const bool chosen = (reads & READS_USE_WINDOW) != 0;
    bool used = !chosen;
    if (chosen && !fields_bool(f, "use_sliding_window", &used))
        return false;
    if ((reads & READS_WINDOW) == 0)
        return refuse_other_windows(f, c);
    c->window = json_get(f->object, "sliding_window") != NULL ? 0 : c->architecture->window;
    if (!json_is_null(v) && !fields_int(f, "sliding_window", false, 1, LIMIT_CONTEXT, &c->window))
        return false;
    if (c->window == 0 && c->architecture->window_pattern > 0 && json_is_null(json_get(f->object, "layer_types")))
        return fields_refuse(f, "sliding_window", "a number of positions", v);
    c->window = used ? c->window : 0;
    return chosen || refuse_other_windows(f, c);
}

// Sets the layers to which transformers gives a window if there are no layer_types.
static bool default_windows(const struct fields *f, struct model_config *c)
{
    const struct architecture *a = c->architecture;
    int pattern = a->window_pattern, first = 0;
    if ((a->reads & READS_WINDOW_PATTERN) != 0 &&
        !fields_int(f, "sliding_window_pattern", false, 1, LIMIT_LAYERS, &pattern))
        return false;
    if ((a->reads & READS_USE_WINDOW) != 0 && (a->reads & READS_LAYER_TYPES) != 0 &&
        (a->reads & READS_NO_ROPE_LAYERS) == 0) {
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

// layer_types decides; the pattern must not contradict it.
static bool agrees_with_pattern(const struct fields *f, const struct model_config *c)
{
    const struct json *v = json_get(f->object, "sliding_window_pattern");
    int pattern = 0;
    if ((c->architecture->reads & READS_WINDOW_PATTERN) == 0 || json_is_null(v))
        return true;
    if (!fields_int(f, "sliding_window_pattern", false, 1, LIMIT_LAYERS, &pattern))
        return false;
    for (int i = 0; i < c->layers; i++)
        if (layer_set_has(&c->windowed, i) != ((i + 1) % pattern != 0))
            return fields_refuse(f, "sliding_window_pattern", "the windows of layer_types", v);
    return true;
}

static bool read_windows(const struct fields *f, struct model_config *c)
{
    const struct json *types = json_get(f->object, "layer_types");
    if (!read_window_size(f, c))
        return false;
    if (json_is_null(types) && c->window > 0)
        return default_windows(f, c);
    const bool one = c->window > 0 && (c->architecture->reads & READS_LAYER_TYPES) == 0;
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
    return ok && agrees_with_pattern(f, c);
}

// SmolLM3's no_rope_layers has a 1 for each layer with RoPE. Without the key, every fourth layer has no RoPE.
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

// Finds the layers with experts: every decoder_sparse_step-th layer except mlp_only_layers.
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

// num_experts and num_local_experts are one setting (attribute_map of both classes): transformers 5 writes the latter.
static bool read_expert_count(const struct fields *f, bool qwen, struct model_config *c)
{
    const struct json *num = json_get(f->object, "num_experts"), *local = json_get(f->object, "num_local_experts");
    const bool both = !json_is_null(num) && !json_is_null(local);
    const char *key = json_is_null(local) && (qwen || !json_is_null(num)) ? "num_experts" : "num_local_experts";
    if (!fields_int(f, key, true, 1, LIMIT_EXPERTS, &c->experts))
        return false;
    return !both || (json_is_int(num) && json_int(num) == c->experts) ||
           fields_refuse(f, "num_experts", "the same as num_local_experts", num);
}

static bool read_experts(const struct fields *f, struct model_config *c)
{
    const enum expert_layers kind = c->architecture->experts;
    const bool qwen = kind == QWEN_EXPERTS;
    if (kind == NO_EXPERTS)
        return true;
    c->experts_normalized = !qwen;
    if (!read_expert_count(f, qwen, c) ||
        !fields_int(f, "num_experts_per_tok", true, 1, c->experts < MAX_MIXED ? c->experts : MAX_MIXED,
                    &c->experts_used) ||
        !fields_int(f, qwen ? "moe_intermediate_size" : "intermediate_size", true, 1, LIMIT_SIZE, &c->expert_hidden))
        return false;
    if (!fields_bool(f, "norm_topk_prob", &c->experts_normalized))
        return false;
    if (!qwen && !c->experts_normalized)
        return fields_refuse(f, "norm_topk_prob", "true", json_get(f->object, "norm_topk_prob"));
    return !qwen || read_dense_layers(f, c);
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
    float scalar = 0, divisor = 1;
    if ((reads & READS_ATTENTION_CAP) != 0) { // Gemma-2's class takes null for none
        c->attention_cap = json_get(f->object, "attn_logit_softcapping") == NULL ? 50 : 0;
        c->logit_cap = json_get(f->object, "final_logit_softcapping") == NULL ? 30 : 0;
    }
    if (((reads & READS_ATTENTION_CAP) != 0 && !positive(f, "attn_logit_softcapping", least, &c->attention_cap)) ||
        ((reads & READS_LOGIT_CAP) != 0 && !positive(f, "final_logit_softcapping", least, &c->logit_cap)))
        return false;
    if (c->wrapper != NULL)
        c->logit_cap = 0; // only the class of texts alone applies it (Gemma-3)
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
        c->logit_scale = 1 / divisor;
    }
    if (c->architecture->scales_embedding)
        c->embedding_scale = sqrtf((float)c->width);
    return true;
}

static bool refuse_family(const struct fields *f, const struct json *type, enum name_list list)
{
    const char *lacks = architecture_lacks(json_text(type), json_text_length(type));
    if (lacks != NULL)
        return fail(f->err, "%s: %s%smodel_type: %s is not supported: it has %s", f->path, f->where,
                    *f->where != '\0' ? "." : "", json_text(type), lacks);
    char *expected = architectures_supported(list);
    fields_refuse(f, "model_type", expected, type);
    free(expected);
    return false;
}

bool config_read_family(const struct fields *f, bool required, struct model_config *to)
{
    const struct json *type = json_get(f->object, "model_type");
    const char *name = json_is_null(type) && !required ? "llama" : json_text(type);
    if (required && strcmp(name, "mistral") == 0 && json_get(f->object, "layer_types") != NULL)
        name = "ministral"; // transformers' AutoConfig does so; its MistralConfig does not read that key
    to->architecture = architecture_of_model_type(name);
    return to->architecture != NULL || refuse_family(f, type, required ? NAMES_OF_ALL : NAMES_OF_TEXTS);
}

// Reads the text model in a model of texts and images. The quantization and the tied head that the whole model's
// configuration specifies apply to it.
bool config_read_wrapper(const struct fields *f, const struct wrapper *w, struct fields *text, struct model_config *to)
{
    const struct json *own = json_get(f->object, "text_config");
    if (!json_is_object(own))
        return fields_refuse(f, "text_config", "an object", own);
    if (!config_read_fp8(f, to) || !check_causal(f, true))
        return false;
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
    return reject_unsupported(f, to->architecture) && config_read_fp8(f, to) && check_gate(f, to->architecture) &&
           read_sizes(f, to) && config_read_rope(f, to) && read_unrotated(f, to) && read_windows(f, to) &&
           read_experts(f, to) && read_factors(f, to);
}
