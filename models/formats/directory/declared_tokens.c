#include "models/formats/directory/declared_tokens.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/files/input.h"

static const char *const names[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token" };
enum { NAMES = sizeof(names) / sizeof(*names) };

static bool is_named(const char *key)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(names[i], key) == 0)
            return true;
    return false;
}

// A token is a text, or an object with the text and its flags.
static const struct json *content_of(const struct json *v)
{
    return json_is_object(v) ? json_get(v, "content") : v;
}

static bool is_token(const struct json *v)
{
    return json_is_text(content_of(v));
}

// Returns NULL if there is no such file, or if err is set and *ok is false.
static struct json *read_file(const char *directory, const char *name, bool *ok, struct error *err)
{
    char *path = xformat("%s/%s", directory, name);
    struct json *j = *ok && file_exists(path) ? json_read(path, err) : NULL;
    if (*ok && file_exists(path) && !json_is_object(j)) {
        *ok = false;
        if (j != NULL)
            fail(err, "%s: expected a JSON object", path);
        json_free(j);
        j = NULL;
    }
    free(path);
    return j;
}

// Returns both lists as one.
static struct json *joined(const struct json *one, const struct json *other)
{
    struct json *both = json_clone(one);
    for (size_t i = 0; i < json_count(other); i++)
        json_push(both, json_clone(json_at(other, i)));
    return both;
}

// The digest of the tokens covers what a token adds to tokenizer.json. This function adds which token has a name.
bool declared_tokens_merge(const char *directory, struct json **config, struct digest *d, struct error *err)
{
    static const char *const extra = "extra_special_tokens", *const before = "additional_special_tokens";
    bool ok = true;
    if (json_get(*config, before) != NULL && json_count(json_get(*config, extra)) == 0) {
        json_set(*config, extra, json_clone(json_get(*config, before)));
        json_drop(*config, before);
    }
    if (json_get(*config, "added_tokens_decoder") != NULL)
        return true;
    struct json *map = read_file(directory, "special_tokens_map.json", &ok, err);
    if (map != NULL && *config == NULL)
        *config = json_new_object();
    for (void *at = map != NULL ? json_first(map) : NULL; at != NULL; at = json_next(map, at)) {
        const char *key = json_key(at);
        const struct json *old = json_get(*config, key), *new = json_value(at);
        if (d != NULL && is_named(key) && strcmp(json_text(content_of(old)), json_text(content_of(new))) != 0) {
            digest_text(d, key);
            digest_text(d, json_text(content_of(new)));
        }
        const bool lists = strcmp(key, extra) == 0 && json_is_array(old) && json_is_array(new);
        json_set(*config, key, lists ? joined(old, new) : json_clone(new));
    }
    json_free(map);
    return ok;
}

// ---- what the files declare

struct declaring {
    const char *directory, *file;
    struct json *named; // {text: true}: tokens that have a name
    bool marks;         // there is no added_tokens_decoder: the tokens become special
    struct declared_tokens *to;
    struct error *err;
};

static bool refuse(const struct declaring *g, const char *key, const char *expected, const struct json *found)
{
    char *text = found != NULL ? json_write(found) : xstrdup("nothing");
    fail(g->err, "%s/%s: %s: expected %s, found %.200s", g->directory, g->file, key, expected, text);
    free(text);
    return false;
}

static bool flag(const struct declaring *g, const char *key, const struct json *of, const char *name, bool *to)
{
    const struct json *v = json_get(of, name);
    if (v != NULL && !json_is_bool(v))
        return refuse(g, key, "true or false for each flag of a token", of);
    *to = v != NULL ? json_bool(v) : *to;
    return true;
}

// v: the token's text, or an object. special: the kind if the object does not give it.
static bool declare(const struct declaring *g, const char *key, int64_t id, const struct json *v, bool special)
{
    const struct json *text = content_of(v);
    if (!json_is_text(text) || strlen(json_text(text)) != json_text_length(text))
        return refuse(g, key, "the text of a token, or an object with its content", v);
    struct declared_token t = { .id = id, .special = special };
    if (!flag(g, key, v, "special", &t.special) || !flag(g, key, v, "lstrip", &t.lstrip) ||
        !flag(g, key, v, "rstrip", &t.rstrip) || !flag(g, key, v, "single_word", &t.single_word))
        return false;
    t.normalized = !t.special;
    if (!flag(g, key, v, "normalized", &t.normalized))
        return false;
    t.special |= json_get(g->named, json_text(text)) != NULL;
    if (json_text_length(text) == 0)
        return true;
    char *shown = json_write(text);
    t.text = xstrdup(json_text(text));
    t.key = xformat("%s/%s: %s%s%s", g->directory, g->file, key, *key != '\0' ? ": " : "", shown);
    free(shown);
    t.overrides = json_is_object(v) && id >= 0;
    g->to->token = xrealloc(g->to->token, (size_t)(g->to->n + 1) * sizeof(*g->to->token));
    g->to->token[g->to->n++] = t;
    return true;
}

static int by_id(const void *one, const void *other)
{
    const struct declared_token *a = one, *b = other;
    return (a->id > b->id) - (a->id < b->id);
}

static bool declare_decoder(const struct declaring *g, const struct json *decoder)
{
    if (!json_is_object(decoder))
        return refuse(g, "added_tokens_decoder", "an object", decoder);
    for (void *at = json_first(decoder); at != NULL; at = json_next(decoder, at)) {
        char *end;
        const long long id = strtoll(json_key(at), &end, 10);
        if (*json_key(at) == '\0' || *end != '\0' || id < 0 || id > INT_MAX)
            return refuse(g, "added_tokens_decoder", "the ids of tokens as keys", decoder);
        if (!json_is_object(json_value(at)))
            return refuse(g, "added_tokens_decoder", "an object for each token", json_value(at));
        if (!declare(g, "added_tokens_decoder", id, json_value(at), false))
            return false;
    }
    return true;
}

// added: {text: id}
static bool declare_added(const struct declaring *g, const struct json *added, const struct json *extra)
{
    for (void *at = added != NULL ? json_first(added) : NULL; at != NULL; at = json_next(added, at)) {
        const struct json *id = json_value(at);
        bool special = json_get(g->named, json_key(at)) != NULL;
        if (!json_is_int(id) || json_int(id) < 0 || json_int(id) > INT_MAX)
            return refuse(g, json_key(at), "an id", id);
        for (size_t i = 0; json_is_array(extra) && i < json_count(extra); i++)
            special |= strcmp(json_text(content_of(json_at(extra, i))), json_key(at)) == 0;
        struct json *text = json_new_text(json_key(at));
        const bool ok = declare(g, "", json_int(id), text, special);
        json_free(text);
        if (!ok)
            return false;
    }
    return true;
}

// Returns extra_special_tokens, or the key that special_tokens_map.json had for it before.
static const struct json *extra_of(const struct json *config, const char **key)
{
    const struct json *extra = json_get(config, *key = "extra_special_tokens");
    if (extra == NULL || (json_is_object(extra) && json_first(extra) == NULL)) // transformers' class takes an empty
                                                                               // object for none
        *key = "additional_special_tokens";
    return json_get(config, *key);
}

// Calls `each` for the tokens that have names: those of every tokenizer, and those of this model.
static bool each_named(struct declaring *g, const struct json *config, const struct json *extra,
                       bool (*each)(struct declaring *g, const char *key, const struct json *v))
{
    for (int i = 0; i < NAMES; i++)
        if (!json_is_null(json_get(config, names[i])) && !each(g, names[i], json_get(config, names[i])))
            return false;
    for (void *at = config != NULL ? json_first(config) : NULL; at != NULL; at = json_next(config, at))
        if (ends_with(json_key(at), "_token") && !is_named(json_key(at)) && is_token(json_value(at)) &&
            !each(g, json_key(at), json_value(at)))
            return false;
    for (void *at = json_is_object(extra) ? json_first(extra) : NULL; at != NULL; at = json_next(extra, at))
        if (!each(g, json_key(at), json_value(at)))
            return false;
    return true;
}

static bool remember_name(struct declaring *g, const char *key, const struct json *v)
{
    if (!is_token(v))
        return refuse(g, key, "the text of a token, or an object with its content", v);
    json_set(g->named, json_text(content_of(v)), json_new_bool(true));
    return true;
}

static bool declare_name(struct declaring *g, const char *key, const struct json *v)
{
    const int before = g->to->n;
    if (!declare(g, key, -1, v, true))
        return false;
    if (g->to->n > before)
        g->to->token[before].marks = g->marks;
    return true;
}

static bool declare_extra(const struct declaring *g, const char *key, const struct json *extra)
{
    if (!json_is_null(extra) && !json_is_array(extra) && !json_is_object(extra))
        return refuse(g, key, "a list of tokens", extra);
    for (size_t i = 0; json_is_array(extra) && i < json_count(extra); i++)
        if (!declare(g, key, -1, json_at(extra, i), true))
            return false;
    return true;
}

static bool declared_tokens_read(const char *directory, const struct json *config, struct declared_tokens *to,
                                 struct error *err)
{
    const struct json *decoder = json_get(config, "added_tokens_decoder");
    struct declaring g = { directory, "tokenizer_config.json", json_new_object(), decoder == NULL, to, err };
    const char *key;
    const struct json *extra = extra_of(config, &key);
    *to = (struct declared_tokens){ 0 };
    bool ok = each_named(&g, config, extra, remember_name) && (decoder == NULL || declare_decoder(&g, decoder));
    if (ok && decoder == NULL) {
        g.file = "added_tokens.json";
        struct json *added = read_file(directory, g.file, &ok, err);
        ok = ok && declare_added(&g, added, extra);
        json_free(added);
        g.file = "tokenizer_config.json";
    }
    if (to->n > 0)
        qsort(to->token, (size_t)to->n, sizeof(*to->token), by_id);
    ok = ok && each_named(&g, config, extra, declare_name) && declare_extra(&g, key, extra);
    json_free(g.named);
    return ok;
}

void declared_tokens_free(struct declared_tokens *t)
{
    for (int i = 0; i < t->n; i++) {
        free(t->token[i].text);
        free(t->token[i].key);
    }
    free(t->token);
    *t = (struct declared_tokens){ 0 };
}

// ---- what the tokens add to tokenizer.json

struct adding {
    const struct json *vocabulary; // the model's vocabulary: an object, or Unigram's list
    struct json **token;           // (n) added tokens
    size_t n, capacity;
    struct json *place; // {text: number of the token}
    int64_t last;       // the highest id of an added token
    bool changed;
    struct error *err;
};

static void put(struct adding *a, struct json *token)
{
    const struct json *text = json_get(token, "content"), *id = json_get(token, "id");
    array_reserve(a->token, a->capacity, a->n + 1);
    if (json_text_length(text) > 0 && json_is_int(id) && json_int(id) < INT_MAX) {
        json_set(a->place, json_text(text), json_new_int((int64_t)a->n));
        a->last = json_int(id) > a->last ? json_int(id) : a->last;
    }
    a->token[a->n++] = token;
}

// Returns -1 if the model has no such token.
static int64_t id_in_model(const struct adding *a, const char *text)
{
    const struct json *id = json_get(a->vocabulary, text);
    if (json_is_int(id))
        return json_int(id);
    for (size_t i = 0; json_is_array(a->vocabulary) && i < json_count(a->vocabulary); i++)
        if (strcmp(json_text(json_at(json_at(a->vocabulary, i), 0)), text) == 0)
            return (int64_t)i;
    return -1;
}

static struct json *token_json(const struct declared_token *t, int64_t id)
{
    return json_object_of(JSON("id", id), JSON("content", t->text), JSON("single_word", t->single_word),
                          JSON("lstrip", t->lstrip), JSON("rstrip", t->rstrip), JSON("normalized", t->normalized),
                          JSON("special", t->special));
}

static bool has_flags(const struct json *token, const struct declared_token *t)
{
    return json_bool(json_get(token, "special")) == t->special &&
           json_bool(json_get(token, "normalized")) == t->normalized &&
           json_bool(json_get(token, "lstrip")) == t->lstrip && json_bool(json_get(token, "rstrip")) == t->rstrip &&
           json_bool(json_get(token, "single_word")) == t->single_word;
}

static bool add(struct adding *a, const struct declared_token *t)
{
    const struct json *place = json_get(a->place, t->text);
    struct json **own = place != NULL ? &a->token[json_int(place)] : NULL;
    const int64_t size = (int64_t)json_count(a->vocabulary), in_model = own == NULL ? id_in_model(a, t->text) : -1;
    const bool known = own != NULL || in_model >= 0;
    const int64_t id = own != NULL       ? json_int(json_get(*own, "id"))
                       : in_model >= 0   ? in_model
                       : a->last >= size ? a->last + 1
                                         : size;
    if (t->id >= 0 && t->id != id)
        return fail(a->err, "%s: expected id %lld, %s, found %lld", t->key, (long long)id,
                    known ? "as in tokenizer.json" : "the next one of tokenizer.json", (long long)t->id);
    if (own == NULL)
        put(a, token_json(t, id));
    else if (t->overrides && !has_flags(*own, t)) {
        json_free(*own);
        *own = token_json(t, id);
    } else if (t->marks && !json_bool(json_get(*own, "special")))
        json_set(*own, "special", json_new_bool(true));
    else
        return true;
    a->changed = true;
    return true;
}

static struct json *list_of(struct adding *a)
{
    struct json *list = json_new_array();
    for (size_t i = 0; i < a->n; i++)
        json_push(list, a->token[i]);
    return list;
}

static bool add_all(const char *directory, const struct json *config, struct json *tokens, struct digest *d,
                    struct error *err)
{
    const struct json *own = json_get(tokens, "added_tokens");
    struct declared_tokens declared;
    struct adding a = {
        .vocabulary = json_get(json_get(tokens, "model"), "vocab"), .place = json_new_object(), .last = -1, .err = err
    };
    // A damaged file, or one of another kind, is refused by its reader.
    const bool readable =
        (json_is_null(own) || json_is_array(own)) && (json_is_object(a.vocabulary) || json_is_array(a.vocabulary));
    bool ok = declared_tokens_read(directory, config, &declared, err);
    for (size_t i = 0; i < json_count(own) && readable; i++)
        put(&a, json_clone(json_at(own, i)));
    for (int i = 0; i < declared.n && ok && readable; i++)
        ok = add(&a, &declared.token[i]);
    struct json *list = list_of(&a);
    if (ok && a.changed && d != NULL)
        json_digest(list, d);
    if (ok && a.changed)
        json_set(tokens, "added_tokens", list);
    else
        json_free(list);
    free(a.token);
    json_free(a.place);
    declared_tokens_free(&declared);
    return ok;
}

// Returns tokenizer_config.json after the merge. Returns NULL if there is none, or if err is set and *ok is false.
static struct json *config_of(const char *directory, bool *ok, struct error *err)
{
    *ok = true;
    struct json *config = read_file(directory, "tokenizer_config.json", ok, err);
    *ok = *ok && declared_tokens_merge(directory, &config, NULL, err);
    return config;
}

bool declared_tokens_complete(const char *directory, struct json *tokens, struct digest *d, struct error *err)
{
    bool ok;
    struct json *config = config_of(directory, &ok, err);
    ok = ok && add_all(directory, config, tokens, d, err);
    json_free(config);
    return ok;
}

bool declared_tokens_of(const char *directory, struct declared_tokens *to, struct error *err)
{
    bool ok;
    struct json *config = config_of(directory, &ok, err);
    *to = (struct declared_tokens){ 0 };
    ok = ok && declared_tokens_read(directory, config, to, err);
    json_free(config);
    return ok;
}
