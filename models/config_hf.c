// config_hf.c - a model's configuration from a Hugging Face directory (transformers' LlamaConfig): config.json, and, if
// they exist, generation_config.json, tokenizer_config.json, tokenizer.json, chat_template.jinja and the files of
// models/formats/directory/declared_tokens.h.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config_readers.h"
#include "models/formats/directory/declared_tokens.h"
#include "models/formats/json_fields.h"
#include "core/files/input.h"
#include "models/formats/identity.h"

enum { CONFIG, GENERATION, TOKENIZER, TOKENS, FILES };

struct source {
    char *path[FILES];
    struct json *json[FILES];  // NULL: the file does not exist
    struct fields whole, text; // whole: fields of config.json; text: those of its text_config in a model of texts and
                               // images, otherwise whole
    struct error *err;
};

// code: "modeling_phi3.Phi3ForCausalLM", the model's class in a module of the checkpoint that is known to be a copy of
// transformers'.
static bool is_known_copy(const struct architecture *a, const char *code)
{
    const size_t n = a->own_code != NULL ? strlen(a->own_code) : 0;
    return n > 0 && strncmp(code, a->own_code, n) == 0 && code[n] == '.' && architecture_has_class(a, code + n + 1);
}

// A checkpoint that comes with code may compute anything under Llama's names, such as another RoPE.
static bool reject_own_code(const struct source *s, const struct architecture *a)
{
    const struct json *map = json_get(s->json[CONFIG], "auto_map");
    if (!json_is_null(map) && !json_is_object(map))
        return fields_refuse(&s->whole, "auto_map", "no code of its own", map);
    const struct fields classes = { s->path[CONFIG], "auto_map", map, s->err };
    for (void *at = json_is_object(map) ? json_first(map) : NULL; at != NULL; at = json_next(map, at))
        if (strncmp(json_key(at), "AutoModel", 9) == 0 && !json_is_null(json_value(at)) &&
            !is_known_copy(a, json_text(json_value(at))))
            return fields_refuse(&classes, json_key(at), "no code of its own", json_value(at));
    return true;
}

// transformers would load the adapter, and the model that it names instead of the one in the directory.
static bool reject_adapter(const char *directory, struct error *err)
{
    char *path = xformat("%s/adapter_config.json", directory);
    const bool ok = !file_exists(path) || fail(err, "%s: adapters are not supported; merge it into its model", path);
    free(path);
    return ok;
}

static bool read_architecture(struct source *s, struct model_config *c)
{
    const struct json *classes = json_get(s->json[CONFIG], "architectures");
    const struct wrapper *w = wrapper_of_model_type(json_text(json_get(s->json[CONFIG], "model_type")));
    s->text = s->whole;
    if (!(w != NULL ? config_read_wrapper(&s->whole, w, &s->text, c) : config_read_family(&s->whole, true, c)) ||
        !reject_own_code(s, c->architecture))
        return false;
    const char *class = json_text(json_at(classes, 0));
    const bool known = w != NULL ? strcmp(class, w->class) == 0 : architecture_has_class(c->architecture, class);
    if (json_is_null(classes) || (json_count(classes) == 1 && known))
        return true;
    char *expected = xformat("[\"%s\"]", w != NULL ? w->class : c->architecture->classes[0]);
    fields_refuse(&s->whole, "architectures", expected, classes);
    free(expected);
    return false;
}

static bool read_layers(struct source *s, struct model_config *c)
{
    bool tied = false;
    if (!config_from_json(&s->text, c))
        return false;
    // transformers ties the head if the whole model's configuration says so.
    const struct json *whole = json_get(s->json[CONFIG], "tie_word_embeddings"),
                      *own = json_get(s->text.object, "tie_word_embeddings");
    if (c->wrapper == NULL || json_is_null(whole))
        return true;
    if (!fields_bool(&s->whole, "tie_word_embeddings", &tied))
        return false;
    if (!json_is_null(own) && json_bool(own) != tied)
        return fields_refuse(&s->text, "tie_word_embeddings", "the same as tie_word_embeddings of the whole model",
                             own);
    c->tied = tied;
    return true;
}

// Returns the value in config.json, or in its text model's configuration.
static const struct json *own_or_texts(const struct source *s, const char *key)
{
    const struct json *own = json_get(s->json[CONFIG], key);
    return json_is_null(own) ? json_get(s->text.object, key) : own;
}

// Returns the id of a token by its text; -1: not in tokenizer.json.
static int64_t token_id(const struct source *s, const char *text)
{
    const struct json *added = json_get(s->json[TOKENS], "added_tokens");
    for (size_t i = 0; i < json_count(added); i++)
        if (strcmp(json_text(json_get(json_at(added, i), "content")), text) == 0 &&
            json_is_int(json_get(json_at(added, i), "id")))
            return json_int(json_get(json_at(added, i), "id"));
    const struct json *id = json_get(json_get(json_get(s->json[TOKENS], "model"), "vocab"), text);
    return json_is_int(id) ? json_int(id) : -1;
}

// In tokenizer_config.json a token is its text or an object that contains it.
static const char *token_text(const struct json *v)
{
    return json_text(json_is_object(v) ? json_get(v, "content") : v);
}

static bool add_end(struct source *s, struct model_config *c, const char *file, const char *key, int64_t id)
{
    struct error why;
    return config_add_end_token(c, key, id, &why) || fail(s->err, "%s: %s", file, why.text);
}

// eos_token_id: null, an id or a list of them.
static bool add_ends(struct source *s, struct model_config *c, const char *file, const struct json *v)
{
    if (json_is_int(v))
        return add_end(s, c, file, "eos_token_id", json_int(v));
    if (!json_is_null(v) && !json_is_array(v))
        return fail(s->err, "%s: eos_token_id: expected a token id or a list of them", file);
    for (size_t i = 0; i < json_count(v); i++) {
        if (!json_is_int(json_at(v, i)))
            return fail(s->err, "%s: eos_token_id: expected a list of token ids", file);
        if (!add_end(s, c, file, "eos_token_id", json_int(json_at(v, i))))
            return false;
    }
    return true;
}

static bool read_ends(struct source *s, struct model_config *c)
{
    if (!add_ends(s, c, s->path[GENERATION], json_get(s->json[GENERATION], "eos_token_id")) ||
        !add_ends(s, c, s->path[CONFIG], own_or_texts(s, "eos_token_id")))
        return false;
    const char *eos = token_text(json_get(s->json[TOKENIZER], "eos_token"));
    int64_t id = *eos != '\0' ? token_id(s, eos) : -1;
    // A token outside the model's vocabulary is never produced.
    if (id >= 0 && id < c->vocab && !add_end(s, c, s->path[TOKENIZER], "eos_token", id))
        return false;
    const struct json *added = json_get(s->json[TOKENS], "added_tokens");
    for (size_t i = 0; i < json_count(added); i++) {
        const struct json *text = json_get(json_at(added, i), "content");
        int64_t named = json_int(json_get(json_at(added, i), "id"));
        if (config_is_end_token(json_text(text), json_text_length(text)) && named < c->vocab &&
            !add_end(s, c, s->path[TOKENS], "added_tokens", named))
            return false;
    }
    return true;
}

// Returns the token that tokenizer.json's template puts first; NULL: none.
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

static void read_special_tokens(const struct source *s, struct model_config *c)
{
    static const char *const names[] = { "bos_token", "eos_token", "unk_token", "pad_token" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *text = token_text(json_get(s->json[TOKENIZER], names[i]));
        if (*text != '\0')
            json_set(c->special_tokens, names[i], json_new_text(text));
    }
}

static bool read_beginning(struct source *s, struct model_config *c)
{
    const char *first = first_of_template(json_get(s->json[TOKENS], "post_processor"));
    const char *named = token_text(json_get(s->json[TOKENIZER], "bos_token"));
    const struct json *add = json_get(s->json[TOKENIZER], "add_bos_token");
    // transformers 5 follows the template alone. Without a template, earlier versions and llama.cpp's converter follow
    // the key, and models were published so (DeepSeek's).
    c->add_bos = first != NULL || json_bool(add);

    const struct json *id = own_or_texts(s, "bos_token_id");
    int64_t bos = json_is_int(id) ? json_int(id) : -1;
    const char *text = c->add_bos && first != NULL ? first : named;
    const int64_t named_id = *text != '\0' ? token_id(s, text) : -1;
    if (named_id >= 0 && (named_id < c->vocab || c->add_bos))
        bos = named_id;
    if (bos < -1 || bos >= c->vocab)
        return fail(s->err, "%s: bos_token_id: expected a token id from 0 to %d, found %" PRId64, s->path[CONFIG],
                    c->vocab - 1, bos);
    c->bos = (int)bos;
    read_special_tokens(s, c);
    return true;
}

static bool read_template(struct source *s, const char *directory, struct digest *d, struct model_config *c)
{
    char *path = xformat("%s/chat_template.jinja", directory);
    bool has_file = file_exists(path);
    if (has_file)
        c->chat_template = file_text(path, NULL, s->err);
    digest_text(d, c->chat_template);
    free(path);
    if (has_file)
        return c->chat_template != NULL;

    const struct json *v = json_get(s->json[TOKENIZER], "chat_template");
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
    const struct json *v = json_get(s->json[CONFIG], key);
    if (json_is_text(v))
        *to = xstrdup(json_text(v));
    return *to != NULL || json_is_null(v) || fields_refuse(&s->whole, key, "a text", v);
}

// Only config.json must exist, and no file for the text.
static bool read_files(struct source *s, const char *directory, bool text, struct digest *d)
{
    static const char *const names[] = { "config.json", "generation_config.json", "tokenizer_config.json",
                                         "tokenizer.json" };
    for (int i = 0; i < FILES; i++) {
        s->path[i] = xformat("%s/%s", directory, names[i]);
        if (file_exists(s->path[i])) {
            s->json[i] = identity_json(s->path[i], d, s->err);
            if (s->json[i] == NULL)
                return false;
        } else if (i == CONFIG && !text)
            return fail(s->err, "%s: there is no %s: not a model directory", directory, names[i]);
    }
    s->whole = (struct fields){ s->path[CONFIG], "", s->json[CONFIG], s->err };
    return declared_tokens_merge(directory, &s->json[TOKENIZER], d, s->err) &&
           (s->json[TOKENS] == NULL || declared_tokens_complete(directory, s->json[TOKENS], d, s->err));
}

bool config_from_directory(const char *directory, bool text, struct digest *d, struct model_config *to,
                           struct error *err)
{
    struct source s = { .err = err };
    if (text)
        to->vocab = LIMIT_VOCAB;
    const bool ok = reject_adapter(directory, err) && read_files(&s, directory, text, d) &&
                    (text || (read_architecture(&s, to) && read_layers(&s, to))) && read_ends(&s, to) &&
                    read_beginning(&s, to) && read_template(&s, directory, d, to) &&
                    read_mark(&s, CONFIG_INFLATED_HF, &to->inflated) &&
                    read_mark(&s, CONFIG_QUANTIZED_HF, &to->quantized);
    for (int i = 0; i < FILES; i++) {
        free(s.path[i]);
        json_free(s.json[i]);
    }
    return ok;
}
