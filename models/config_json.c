// config_json.c - the configuration of Llama layers, from the JSON that transformers' LlamaConfig writes: a model's
// config.json, or the object in a head's config.json that describes its own layers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/error.h"
#include "core/json.h"
#include "models/architectures.h"
#include "models/config_parts.h"
#include "formats/json_fields.h"

// Rejects settings that are not supported. null, and values that have no effect, are accepted.
static bool reject_unsupported(const struct fields *f)
{
    static const struct {
        const char *key, *inert; // the value as JSON
    } settings[] = {
        { "hidden_act", "\"silu\"" },
        { "mlp_bias", "false" },
        { "sliding_window", "null" },
        { "partial_rotary_factor", "1" },
        { "attn_logit_softcapping", "null" },
        { "final_logit_softcapping", "null" },
        { "quantization_config", "null" },
        { "compression_config", "null" },
        { "num_experts", "0" },
        { "num_local_experts", "0" },
        { "pretraining_tp", "1" },
        { "rope_interleaved", "false" },
        { "is_encoder_decoder", "false" },
        // Llama's class does not read these; code that comes with a checkpoint may. No tensor shows them.
        { "embedding_multiplier", "1" },
        { "residual_multiplier", "1" },
        { "attention_multiplier", "null" },
        { "logits_scaling", "1" },
        { "scale_emb", "1" },
        { "scale_depth", "null" },
        { "query_pre_attn_scalar", "null" },
        { "clip_qkv", "null" },
        { "no_rope_layers", "null" },
        { "logit_scale", "1" },
        { "use_parallel_residual", "false" },
        { "alibi", "false" },
        { "num_nextn_predict_layers", "0" },
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        const struct json *v = json_get(f->object, settings[i].key);
        if (json_is_null(v))
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
    const struct json *types = json_get(f->object, "layer_types");
    if (!json_is_null(types) && !json_is_array(types))
        return fields_refuse(f, "layer_types", "\"full_attention\" for every layer", types);
    for (size_t i = 0; i < json_count(types); i++)
        if (strcmp(json_text(json_at(types, i)), "full_attention") != 0)
            return fields_refuse(f, "layer_types", "\"full_attention\" for every layer", types);
    return true;
}

static bool read_sizes(const struct fields *f, struct model_config *c)
{
    c->context = 2048; // LlamaConfig's default
    double eps = 1e-6;
    if (!fields_int(f, "num_hidden_layers", true, 1, LIMIT_LAYERS, &c->layers) ||
        !fields_int(f, "hidden_size", true, 1, LIMIT_SIZE, &c->width) ||
        !fields_int(f, "intermediate_size", true, 1, LIMIT_SIZE, &c->hidden) ||
        !fields_int(f, "vocab_size", true, 1, LIMIT_VOCAB, &c->vocab) ||
        !fields_int(f, "max_position_embeddings", false, 1, LIMIT_CONTEXT, &c->context) ||
        !fields_int(f, "num_attention_heads", true, 1, LIMIT_HEADS, &c->heads))
        return false;
    c->kv_heads = c->heads;
    c->head_dim = c->width / c->heads;
    if (json_is_null(json_get(f->object, "head_dim")) && c->width % c->heads != 0)
        return fields_refuse(f, "num_attention_heads", "a divisor of hidden_size, as there is no head_dim",
                             json_get(f->object, "num_attention_heads"));
    if (!fields_int(f, "num_key_value_heads", false, 1, LIMIT_HEADS, &c->kv_heads) ||
        !fields_int(f, "head_dim", false, 2, LIMIT_SIZE, &c->head_dim) ||
        !fields_bool(f, "tie_word_embeddings", &c->tied) || !fields_bool(f, "attention_bias", &c->attention_bias) ||
        !fields_real(f, "rms_norm_eps", false, &eps))
        return false;
    c->norm_eps = (float)eps;
    return true;
}

// transformers 4 writes rope_theta and rope_scaling, transformers 5 rope_parameters, which contains both.
static bool read_rope(const struct fields *f, struct model_config *c)
{
    const struct json *new = json_get(f->object, "rope_parameters"), *old = json_get(f->object, "rope_scaling");
    if (!json_is_null(new) && !json_is_null(old))
        return fields_refuse(f, "rope_scaling", "nothing beside rope_parameters", old);
    const char *where = json_is_null(new) ? "rope_scaling" : "rope_parameters";
    const struct json *rope = json_is_null(new) ? old : new;
    if (!json_is_null(rope) && !json_is_object(rope))
        return fields_refuse(f, where, "an object", rope);
    const struct fields of_rope = { f->path, where, rope, f->err };

    c->rope_theta = 10000;
    if (!fields_real(f, "rope_theta", false, &c->rope_theta))
        return false;
    double outer = c->rope_theta, part = 1;
    if (!fields_real(&of_rope, "rope_theta", false, &c->rope_theta) ||
        !fields_real(&of_rope, "partial_rotary_factor", false, &part))
        return false;
    if (!json_is_null(json_get(f->object, "rope_theta")) && outer != c->rope_theta)
        return fields_refuse(f, "rope_theta", "the same in rope_parameters", json_get(f->object, "rope_theta"));
    if (part != 1)
        return fields_refuse(f, "partial_rotary_factor", "1", json_get(rope, "partial_rotary_factor"));

    const struct json *type = json_get(rope, "rope_type"), *old_type = json_get(rope, "type");
    // Versions of transformers differ in which of the two they use.
    if (!json_is_null(type) && !json_is_null(old_type) && strcmp(json_text(type), json_text(old_type)) != 0)
        return fields_refuse(&of_rope, "type", "the same as rope_type", old_type);
    if (json_is_null(type))
        type = old_type;
    const char *name = json_is_text(type) ? json_text(type) : "default";
    bool per_layer = json_get(rope, "full_attention") != NULL || json_get(rope, "sliding_attention") != NULL;
    if ((!json_is_null(type) && !json_is_text(type)) || per_layer)
        return fields_refuse(f, where, "one rope for all layers, with a rope_type", rope);
    if (strcmp(name, "default") == 0)
        return true;
    if (!fields_real(&of_rope, "factor", true, &c->rope_factor))
        return false;
    if (strcmp(name, "linear") == 0) {
        c->rope_scaling = ROPE_LINEAR;
        return true;
    }
    if (strcmp(name, "llama3") != 0)
        return fields_refuse(f, where, "a rope_type of default, linear or llama3", type);
    double original = 0;
    if (!fields_real(&of_rope, "low_freq_factor", true, &c->rope_low) ||
        !fields_real(&of_rope, "high_freq_factor", true, &c->rope_high) ||
        !fields_real(&of_rope, "original_max_position_embeddings", true, &original))
        return false;
    if (!(original >= 1 && original <= LIMIT_CONTEXT))
        return fields_refuse(f, "original_max_position_embeddings", "a number of positions",
                             json_get(rope, "original_max_position_embeddings"));
    c->rope_original = (int)original;
    c->rope_scaling = ROPE_LLAMA3;
    return true;
}

bool config_read_family(const struct fields *f, bool required, struct model_config *to)
{
    const struct json *type = json_get(f->object, "model_type");
    to->architecture = architecture_of_model_type(json_is_null(type) && !required ? "llama" : json_text(type));
    if (to->architecture != NULL)
        return true;
    char *expected = architectures_supported(false);
    fields_refuse(f, "model_type", expected, type);
    free(expected);
    return false;
}

bool config_from_json(const struct fields *f, struct model_config *to)
{
    return reject_unsupported(f) && read_sizes(f, to) && read_rope(f, to);
}
