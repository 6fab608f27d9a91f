// config_hf.c - a model's configuration from a Hugging Face directory: config.json, and generation_config.json,
// tokenizer_config.json, tokenizer.json and chat_template.jinja where they are (transformers' LlamaConfig).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config_parts.h"
#include "models/files.h"

struct source {
    char *path;                                            // of config.json
    struct json *config, *generation, *tokenizer, *tokens; // NULL: the file is not there
    char *generation_path, *tokenizer_path, *tokens_path;
    struct error *err;
};

// "expected ..., found what stands there".
static bool refuse(struct source *s, const char *key, const char *expected, const struct json *found)
{
    char *text = found != NULL ? json_write(found) : xstrdup("nothing");
    fail(s->err, "%s: %s: expected %s, found %.200s", s->path, key, expected, text);
    free(text);
    return false;
}

static bool read_int(struct source *s, const char *key, bool needed, int least, int most, int *to)
{
    const struct json *v = json_get(s->config, key);
    if (json_is_null(v) && !needed)
        return true;
    if (!json_is_int(v) || json_int(v) < least || json_int(v) > most) {
        char expected[64];
        snprintf(expected, sizeof(expected), "an integer from %d to %d", least, most);
        return refuse(s, key, expected, v);
    }
    *to = (int)json_int(v);
    return true;
}

static bool read_bool(struct source *s, const char *key, bool *to)
{
    const struct json *v = json_get(s->config, key);
    if (json_is_null(v))
        return true;
    if (!json_is_bool(v))
        return refuse(s, key, "true or false", v);
    *to = json_bool(v);
    return true;
}

// A number of some object of the configuration, which stands there as `where`.
static bool read_real(struct source *s, const struct json *object, const char *where, const char *key, bool needed,
                      double *to)
{
    const struct json *v = json_get(object, key);
    if (json_is_null(v) && !needed)
        return true;
    if (!json_is_number(v)) {
        char name[128];
        snprintf(name, sizeof(name), "%s%s%s", where, *where != '\0' ? "." : "", key);
        return refuse(s, name, "a number", v);
    }
    *to = json_number(v);
    return true;
}

// Settings that we would have to ignore: only the value that changes nothing is accepted, and null.
static bool refuse_what_we_do_not_compute(struct source *s)
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
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        const struct json *v = json_get(s->config, settings[i].key);
        if (json_is_null(v))
            continue;
        char *text = json_write(v);
        bool same = strcmp(text, settings[i].inert) == 0 ||
                    (json_is_number(v) && *settings[i].inert != 'n' && json_number(v) == atof(settings[i].inert));
        free(text);
        if (!same)
            return refuse(s, settings[i].key, settings[i].inert, v);
    }
    const struct json *types = json_get(s->config, "layer_types");
    for (size_t i = 0; i < json_count(types); i++)
        if (strcmp(json_text(json_at(types, i)), "full_attention") != 0)
            return refuse(s, "layer_types", "\"full_attention\" for every layer", types);
    return true;
}

static bool read_architecture(struct source *s, struct model_config *c)
{
    const struct json *family = json_get(s->config, "model_type"), *classes = json_get(s->config, "architectures");
    if (strcmp(json_text(family), "llama") != 0)
        return refuse(s, "model_type", "\"llama\"", family);
    if (!json_is_null(classes) &&
        (json_count(classes) != 1 || strcmp(json_text(json_at(classes, 0)), "LlamaForCausalLM") != 0))
        return refuse(s, "architectures", "[\"LlamaForCausalLM\"]", classes);
    snprintf(c->architecture, sizeof(c->architecture), "llama");
    return true;
}

static bool read_sizes(struct source *s, struct model_config *c)
{
    c->context = 2048; // LlamaConfig's own
    double eps = 1e-6;
    if (!read_int(s, "num_hidden_layers", true, 1, MOST_LAYERS, &c->layers) ||
        !read_int(s, "hidden_size", true, 1, MOST_SIZE, &c->width) ||
        !read_int(s, "intermediate_size", true, 1, MOST_SIZE, &c->hidden) ||
        !read_int(s, "vocab_size", true, 1, MOST_VOCAB, &c->vocab) ||
        !read_int(s, "max_position_embeddings", false, 1, MOST_CONTEXT, &c->context) ||
        !read_int(s, "num_attention_heads", true, 1, MOST_HEADS, &c->heads))
        return false;
    c->kv_heads = c->heads;
    c->head_dim = c->width / c->heads;
    if (json_is_null(json_get(s->config, "head_dim")) && c->width % c->heads != 0)
        return refuse(s, "num_attention_heads", "a divisor of hidden_size, as there is no head_dim",
                      json_get(s->config, "num_attention_heads"));
    if (!read_int(s, "num_key_value_heads", false, 1, MOST_HEADS, &c->kv_heads) ||
        !read_int(s, "head_dim", false, 2, MOST_SIZE, &c->head_dim) || !read_bool(s, "tie_word_embeddings", &c->tied) ||
        !read_bool(s, "attention_bias", &c->attention_bias) ||
        !read_real(s, s->config, "", "rms_norm_eps", false, &eps))
        return false;
    c->norm_eps = (float)eps;
    return true;
}

// transformers 4 says rope_theta and rope_scaling, transformers 5 rope_parameters with both in it.
static bool read_rope(struct source *s, struct model_config *c)
{
    const struct json *new = json_get(s->config, "rope_parameters"), *old = json_get(s->config, "rope_scaling");
    if (!json_is_null(new) && !json_is_null(old))
        return refuse(s, "rope_scaling", "nothing beside rope_parameters", old);
    const char *where = json_is_null(new) ? "rope_scaling" : "rope_parameters";
    const struct json *rope = json_is_null(new) ? old : new;
    if (!json_is_null(rope) && !json_is_object(rope))
        return refuse(s, where, "an object", rope);

    c->rope_theta = 10000;
    if (!read_real(s, s->config, "", "rope_theta", false, &c->rope_theta))
        return false;
    double outer = c->rope_theta, part = 1;
    if (!read_real(s, rope, where, "rope_theta", false, &c->rope_theta) ||
        !read_real(s, rope, where, "partial_rotary_factor", false, &part))
        return false;
    if (!json_is_null(json_get(s->config, "rope_theta")) && outer != c->rope_theta)
        return refuse(s, "rope_theta", "the same in rope_parameters", json_get(s->config, "rope_theta"));
    if (part != 1)
        return refuse(s, "partial_rotary_factor", "1", json_get(rope, "partial_rotary_factor"));

    const struct json *type = json_get(rope, "rope_type");
    if (json_is_null(type))
        type = json_get(rope, "type");
    const char *name = json_is_text(type) ? json_text(type) : "default";
    bool per_layer = json_get(rope, "full_attention") != NULL || json_get(rope, "sliding_attention") != NULL;
    if ((!json_is_null(type) && !json_is_text(type)) || per_layer)
        return refuse(s, where, "one rope for all layers, with a rope_type", rope);
    if (strcmp(name, "default") == 0)
        return true;
    if (!read_real(s, rope, where, "factor", true, &c->rope_factor))
        return false;
    if (strcmp(name, "linear") == 0) {
        c->rope_scaling = ROPE_LINEAR;
        return true;
    }
    if (strcmp(name, "llama3") != 0)
        return refuse(s, where, "a rope_type of default, linear or llama3", type);
    double original = 0;
    if (!read_real(s, rope, where, "low_freq_factor", true, &c->rope_low) ||
        !read_real(s, rope, where, "high_freq_factor", true, &c->rope_high) ||
        !read_real(s, rope, where, "original_max_position_embeddings", true, &original))
        return false;
    if (!(original >= 1 && original <= MOST_CONTEXT))
        return refuse(s, "original_max_position_embeddings", "a number of positions",
                      json_get(rope, "original_max_position_embeddings"));
    c->rope_original = (int)original;
    c->rope_scaling = ROPE_LLAMA3;
    return true;
}

// The id of a token's text, -1 if tokenizer.json has none.
static int64_t token_id(const struct source *s, const char *text)
{
    const struct json *added = json_get(s->tokens, "added_tokens");
    for (size_t i = 0; i < json_count(added); i++)
        if (strcmp(json_text(json_get(json_at(added, i), "content")), text) == 0 &&
            json_is_int(json_get(json_at(added, i), "id")))
            return json_int(json_get(json_at(added, i), "id"));
    const struct json *id = json_get(json_get(json_get(s->tokens, "model"), "vocab"), text);
    return json_is_int(id) ? json_int(id) : -1;
}

// tokenizer_config.json writes a token as its text or as an object with it.
static const char *token_text(const struct json *v)
{
    return json_text(json_is_object(v) ? json_get(v, "content") : v);
}

// eos_token_id: null, an id or a list of them.
static bool add_ends(struct source *s, struct model_config *c, const char *file, const struct json *v)
{
    if (json_is_int(v))
        return config_add_end(c, file, "eos_token_id", json_int(v), s->err);
    if (!json_is_null(v) && !json_is_array(v))
        return fail(s->err, "%s: eos_token_id: expected a token id or a list of them", file);
    for (size_t i = 0; i < json_count(v); i++) {
        if (!json_is_int(json_at(v, i)))
            return fail(s->err, "%s: eos_token_id: expected a list of token ids", file);
        if (!config_add_end(c, file, "eos_token_id", json_int(json_at(v, i)), s->err))
            return false;
    }
    return true;
}

static bool read_ends(struct source *s, struct model_config *c)
{
    if (!add_ends(s, c, s->generation_path, json_get(s->generation, "eos_token_id")) ||
        !add_ends(s, c, s->path, json_get(s->config, "eos_token_id")))
        return false;
    const char *eos = token_text(json_get(s->tokenizer, "eos_token"));
    int64_t id = *eos != '\0' ? token_id(s, eos) : -1;
    if (id >= 0 && !config_add_end(c, s->tokenizer_path, "eos_token", id, s->err))
        return false;
    const struct json *added = json_get(s->tokens, "added_tokens");
    for (size_t i = 0; i < json_count(added); i++) {
        const struct json *text = json_get(json_at(added, i), "content");
        int64_t named = json_int(json_get(json_at(added, i), "id"));
        // A token beyond the model's vocabulary is never produced, and ends nothing.
        if (config_ends_by_name(json_text(text), json_text_length(text)) && named < c->vocab &&
            !config_add_end(c, s->tokens_path, "added_tokens", named, s->err))
            return false;
    }
    return true;
}

// The token that tokenizer.json's template puts first; NULL: it puts none.
static const char *first_of_template(const struct json *post)
{
    if (strcmp(json_text(json_get(post, "type")), "TemplateProcessing") == 0) {
        const struct json *first = json_at(json_get(post, "single"), 0);
        const char *id = json_text(json_get(json_get(first, "SpecialToken"), "id"));
        return *id != '\0' ? id : NULL;
    }
    const struct json *steps = json_get(post, "processors");
    for (size_t i = 0; i < json_count(steps); i++)
        if (strcmp(json_text(json_get(json_at(steps, i), "type")), "TemplateProcessing") == 0)
            return first_of_template(json_at(steps, i));
    return NULL;
}

static bool read_beginning(struct source *s, struct model_config *c)
{
    const char *first = first_of_template(json_get(s->tokens, "post_processor"));
    const char *named = token_text(json_get(s->tokenizer, "bos_token"));
    const struct json *add = json_get(s->tokenizer, "add_bos_token");
    c->add_bos = json_is_bool(add) ? json_bool(add) : first != NULL;

    const struct json *id = json_get(s->config, "bos_token_id");
    int64_t bos = json_is_int(id) ? json_int(id) : -1;
    const char *text = c->add_bos && first != NULL ? first : named;
    if (*text != '\0' && token_id(s, text) >= 0)
        bos = token_id(s, text);
    if (bos < -1 || bos >= c->vocab)
        return fail(s->err, "%s: bos_token_id: expected a token id from 0 to %d, found %" PRId64, s->path, c->vocab - 1,
                    bos);
    c->bos = (int)bos;
    return true;
}

static bool read_template(struct source *s, const char *directory, struct model_config *c)
{
    char *path = xformat("%s/chat_template.jinja", directory);
    bool there = file_exists(path);
    if (there)
        c->chat_template = file_text(path, NULL, s->err);
    free(path);
    if (there)
        return c->chat_template != NULL;

    const struct json *v = json_get(s->tokenizer, "chat_template");
    for (size_t i = 0; json_is_array(v) && i < json_count(v); i++)
        if (strcmp(json_text(json_get(json_at(v, i), "name")), "default") == 0) {
            v = json_get(json_at(v, i), "template");
            break;
        }
    if (json_is_text(v))
        c->chat_template = xstrndup(json_text(v), json_text_length(v));
    return true;
}

static bool read_mark(struct source *s, const char *key, char **to)
{
    const struct json *v = json_get(s->config, key);
    if (json_is_text(v))
        *to = xstrdup(json_text(v));
    return *to != NULL || json_is_null(v) || refuse(s, key, "a text", v);
}

static bool read_file(const char *directory, const char *name, bool needed, char **path, struct json **to,
                      struct error *err)
{
    *path = xformat("%s/%s", directory, name);
    if (!file_exists(*path) && needed)
        return fail(err, "%s: there is no %s: not a model directory", directory, name);
    if (!file_exists(*path))
        return true;
    *to = json_read(*path, err);
    if (*to != NULL && !json_is_object(*to))
        return fail(err, "%s: expected a JSON object", *path);
    return *to != NULL;
}

bool config_from_directory(const char *directory, struct model_config *to, struct error *err)
{
    struct source s = { .err = err };
    bool ok = read_file(directory, "config.json", true, &s.path, &s.config, err) &&
              read_file(directory, "generation_config.json", false, &s.generation_path, &s.generation, err) &&
              read_file(directory, "tokenizer_config.json", false, &s.tokenizer_path, &s.tokenizer, err) &&
              read_file(directory, "tokenizer.json", false, &s.tokens_path, &s.tokens, err) &&
              read_architecture(&s, to) && refuse_what_we_do_not_compute(&s) && read_sizes(&s, to) &&
              read_rope(&s, to) && read_ends(&s, to) && read_beginning(&s, to) && read_template(&s, directory, to) &&
              read_mark(&s, CONFIG_INFLATED_HF, &to->inflated) && read_mark(&s, CONFIG_QUANTISED_HF, &to->quantised);
    json_free(s.config);
    json_free(s.generation);
    json_free(s.tokenizer);
    json_free(s.tokens);
    free(s.path);
    free(s.generation_path);
    free(s.tokenizer_path);
    free(s.tokens_path);
    return ok;
}
