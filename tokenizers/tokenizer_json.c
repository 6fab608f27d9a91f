// tokenizer_json.c - reads a tokenizer from the tokenizer.json of Hugging Face's `tokenizers`.
//
// Everything in the file that changes ids is either implemented or an error that names it. Truncation, padding and
// post-processing are ignored: a leading BOS token is decided by the model's configuration.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tokenizers/nfc.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_parts.h"

static bool not_a(const struct tokenizer *t, const char *where, const char *wanted, struct error *err)
{
    return fail(err, "%s: %s is not %s", t->name, where, wanted);
}

// The type of a component, such as "ByteLevel"; "null" or "without a type" if it has none.
static const char *type_of(const struct json *j)
{
    const struct json *type = json_get(j, "type");
    return json_is_text(type) ? json_text(type) : json_is_null(j) ? "null" : "without a type";
}

static bool is_type(const struct json *j, const char *type)
{
    return strcmp(type_of(j), type) == 0;
}

static bool unknown_type(const struct tokenizer *t, const char *what, const struct json *j, const char *known,
                         struct error *err)
{
    return fail(err, "%s: the %s %.64s is not known (%s)", t->name, what, type_of(j), known);
}

// Reads an optional boolean.
static bool read_switch(const struct tokenizer *t, const struct json *j, const char *key, bool default_value, bool *to,
                        struct error *err)
{
    const struct json *v = json_get(j, key);
    *to = json_is_null(v) ? default_value : json_bool(v);
    return json_is_null(v) || json_is_bool(v) || not_a(t, key, "true or false", err);
}

// ---- normalizer -------------------------------------------------------------------------------------------------

static bool read_normalizer(struct tokenizer *t, const struct json *j, struct error *err)
{
    if (json_is_null(j))
        return true;
    if (is_type(j, "NFC")) {
        t->nfc = true;
        return true;
    }
    if (!is_type(j, "Sequence"))
        return unknown_type(t, "normalizer", j, "NFC, Sequence, null", err);
    const struct json *list = json_get(j, "normalizers");
    if (!json_is_array(list))
        return not_a(t, "the normalizers of a Sequence", "a list", err);
    for (size_t i = 0; i < json_count(list); i++)
        if (!read_normalizer(t, json_at(list, i), err))
            return false;
    return true;
}

// ---- pre-tokenizer ----------------------------------------------------------------------------------------------

static bool read_split(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *pattern = json_get(j, "pattern"), *regex = json_get(pattern, "Regex"),
                      *string = json_get(pattern, "String");
    const char *behavior = json_text(json_get(j, "behavior"));
    const struct json *text = json_is_text(regex) ? regex : string;
    bool invert;
    if (!read_switch(t, j, "invert", false, &invert, err))
        return false;
    if (!json_is_text(text) || json_text_length(text) == 0)
        return not_a(t, "the pattern of a Split", "a Regex or a String that is not empty", err);
    enum keep keep = KEEP_ALL;
    if (strcmp(behavior, "Removed") == 0)
        keep = invert ? KEEP_MATCHES : KEEP_GAPS;
    else if (strcmp(behavior, "Isolated") != 0)
        return fail(err, "%s: the behavior \"%.64s\" of a Split is not known (Isolated, Removed)", t->name, behavior);
    struct error why;
    bool ok = text == regex ? pretokenizer_split(&t->cut, json_text(text), json_text_length(text), keep, &why)
                            : pretokenizer_split_literal(&t->cut, json_text(text), json_text_length(text), keep, &why);
    return ok || fail(err, "%s: %s", t->name, why.text);
}

static bool read_digits(struct tokenizer *t, const struct json *j, struct error *err)
{
    bool individually;
    struct error why;
    if (!read_switch(t, j, "individual_digits", false, &individually, err))
        return false;
    return pretokenizer_digits(&t->cut, individually, &why) || fail(err, "%s: %s", t->name, why.text);
}

static bool read_byte_level(struct tokenizer *t, const struct json *j, struct error *err)
{
    bool space_first, regex;
    struct error why;
    if (!read_switch(t, j, "add_prefix_space", true, &space_first, err) ||
        !read_switch(t, j, "use_regex", true, &regex, err))
        return false;
    return pretokenizer_byte_level(&t->cut, space_first, regex, &why) || fail(err, "%s: %s", t->name, why.text);
}

// *bytes: whether ByteLevel has occurred. After it the text is in byte letters, on which no further stage is supported.
static bool read_pre_tokenizer(struct tokenizer *t, const struct json *j, bool *bytes, struct error *err)
{
    if (is_type(j, "Sequence")) {
        const struct json *list = json_get(j, "pretokenizers");
        if (!json_is_array(list))
            return not_a(t, "the pretokenizers of a Sequence", "a list", err);
        for (size_t i = 0; i < json_count(list); i++)
            if (!read_pre_tokenizer(t, json_at(list, i), bytes, err))
                return false;
        return true;
    }
    if (*bytes)
        return fail(err, "%s: the pre-tokenizer %.64s after ByteLevel is not supported", t->name, type_of(j));
    if (is_type(j, "Split"))
        return read_split(t, j, err);
    if (is_type(j, "Digits"))
        return read_digits(t, j, err);
    if (!is_type(j, "ByteLevel"))
        return unknown_type(t, "pre-tokenizer", j, "ByteLevel, Split, Digits, Sequence", err);
    *bytes = true;
    return read_byte_level(t, j, err);
}

static bool read_decoder(const struct tokenizer *t, const struct json *j, struct error *err)
{
    if (json_is_null(j) || is_type(j, "ByteLevel"))
        return true;
    if (!is_type(j, "Sequence"))
        return unknown_type(t, "decoder", j, "ByteLevel", err);
    const struct json *list = json_get(j, "decoders");
    for (size_t i = 0; i < json_count(list); i++)
        if (!read_decoder(t, json_at(list, i), err))
            return false;
    return true;
}

// ---- model ------------------------------------------------------------------------------------------------------

static bool check_model(const struct tokenizer *t, const struct json *model, struct error *err)
{
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    bool typed = !json_is_null(json_get(model, "type")); // old files have no type
    if (!json_is_object(model) || (typed ? !is_type(model, "BPE") : !json_is_array(json_get(model, "merges"))))
        return unknown_type(t, "model", model, "BPE over bytes", err);
    for (size_t i = 0; i < sizeof(affixes) / sizeof(*affixes); i++) {
        const struct json *v = json_get(model, affixes[i]);
        if (!json_is_null(v) && !(json_is_text(v) && json_text_length(v) == 0))
            return fail(err, "%s: a %s is not supported", t->name, affixes[i]);
    }
    const struct json *dropout = json_get(model, "dropout");
    if (!json_is_null(dropout) && !(json_is_number(dropout) && json_number(dropout) == 0))
        return fail(err, "%s: dropout makes ids random and is not supported", t->name);
    return true;
}

// Checks an id and raises *size above it.
static bool check_id(const struct tokenizer *t, const struct json *id, const char *of, int *size, struct error *err)
{
    if (!json_is_int(id) || json_int(id) < 0 || json_int(id) >= VOCABULARY_MAX) {
        char *shown = printable_text(of, strlen(of));
        fail(err, "%s: the id of %s is not an integer from 0 to %d", t->name, shown, VOCABULARY_MAX - 1);
        free(shown);
        return false;
    }
    if (json_int(id) >= *size)
        *size = (int)json_int(id) + 1;
    return true;
}

static bool size_of(const struct tokenizer *t, const struct json *vocabulary, const struct json *added, int *size,
                    struct error *err)
{
    *size = 0;
    for (void *at = json_first(vocabulary); at != NULL; at = json_next(vocabulary, at))
        if (!check_id(t, json_value(at), json_key(at), size, err))
            return false;
    for (size_t i = 0; i < json_count(added); i++) {
        const struct json *content = json_get(json_at(added, i), "content");
        if (!json_is_text(content))
            return not_a(t, "the content of an added token", "text", err);
        if (json_text_length(content) > 0 &&
            !check_id(t, json_get(json_at(added, i), "id"), json_text(content), size, err))
            return false;
    }
    return true;
}

static bool read_vocabulary(struct tokenizer *t, const struct json *vocabulary, const struct json *added,
                            struct error *err)
{
    int size;
    struct error why;
    if (!json_is_object(vocabulary))
        return not_a(t, "the model's vocab", "a mapping from tokens to ids", err);
    if (!json_is_null(added) && !json_is_array(added))
        return not_a(t, "added_tokens", "a list", err);
    if (!size_of(t, vocabulary, added, &size, err))
        return false;
    vocabulary_init(&t->vocabulary, size, json_count(vocabulary) + json_count(added));
    for (void *at = json_first(vocabulary); at != NULL; at = json_next(vocabulary, at)) {
        const char *text = json_key(at);
        if (!vocabulary_add(&t->vocabulary, (int32_t)json_int(json_value(at)), text, strlen(text), &why))
            return fail(err, "%s: %s", t->name, why.text);
    }
    return true;
}

// "Ġ t", or ["Ġ", "t"] in newer files, since a token may contain a space.
static bool read_merge(struct tokenizer *t, const struct json *j, size_t rank, struct error *err)
{
    const struct json *left = json_at(j, 0), *right = json_at(j, 1);
    if (json_count(j) == 2 && json_is_text(left) && json_is_text(right))
        return tokenizer_merge(t, rank, json_text(left), json_text_length(left), json_text(right),
                               json_text_length(right), err);
    const char *s = json_text(j), *space = memchr(s, ' ', json_text_length(j)), *end = s + json_text_length(j);
    if (space == NULL || memchr(space + 1, ' ', (size_t)(end - space - 1)) != NULL)
        return fail(err, "%s: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", t->name, rank);
    return tokenizer_merge(t, rank, s, (size_t)(space - s), space + 1, (size_t)(end - space - 1), err);
}

static bool read_merges(struct tokenizer *t, const struct json *merges, struct error *err)
{
    if (!json_is_array(merges))
        return not_a(t, "the model's merges", "a list", err);
    bpe_init(&t->bpe, json_count(merges));
    tokenizer_bytes(t);
    size_t rank = 0;
    for (size_t i = 0; i < json_count(merges); i++) {
        const struct json *j = json_at(merges, i);
        if (json_is_text(j) && strncmp(json_text(j), "#version", 8) == 0)
            continue; // the first line of a merges.txt
        if (!read_merge(t, j, rank++, err))
            return false;
    }
    return true;
}

static bool every_byte_has_a_token(const struct tokenizer *t)
{
    for (int b = 0; b < 256; b++)
        if (t->bpe.byte[b] < 0)
            return false;
    return true;
}

// Reads how bytes without a token are encoded; most vocabularies have a token for every byte.
static bool read_unknown(struct tokenizer *t, const struct json *model, struct error *err)
{
    const struct json *unknown = json_get(model, "unk_token");
    bool fallback;
    if (!read_switch(t, model, "fuse_unk", false, &t->bpe.fuse_unknown, err) ||
        !read_switch(t, model, "byte_fallback", false, &fallback, err))
        return false;
    if (every_byte_has_a_token(t))
        return true;
    if (fallback)
        return fail(err, "%s: byte_fallback is not supported if some bytes have no token", t->name);
    if (json_is_null(unknown))
        return true; // dropped
    t->bpe.unknown = vocabulary_find(&t->vocabulary, json_text(unknown), json_text_length(unknown));
    return t->bpe.unknown >= 0 ||
           fail(err, "%s: some bytes have no token, and the vocabulary has no unk_token", t->name);
}

// ---- added tokens -----------------------------------------------------------------------------------------------

static bool read_added_token(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *content = json_get(j, "content");
    const char *text = json_text(content);
    size_t n = json_text_length(content);
    struct added_token flags = { .id = (int32_t)json_int(json_get(j, "id")) };
    bool normalized;
    if (!read_switch(t, j, "special", false, &flags.special, err) ||
        !read_switch(t, j, "single_word", false, &flags.single_word, err) ||
        !read_switch(t, j, "lstrip", false, &flags.lstrip, err) ||
        !read_switch(t, j, "rstrip", false, &flags.rstrip, err) ||
        !read_switch(t, j, "normalized", !flags.special, &normalized, err))
        return false;
    if (n == 0)
        return true;
    struct error why;
    if (!vocabulary_add_literal(&t->vocabulary, flags.id, text, n, flags.special ? TOKEN_SPECIAL : TOKEN_ADDED, &why))
        return fail(err, "%s: %s", t->name, why.text);
    flags.special = tokenizer_is_special(t, flags.id); // once special, always special
    if (!normalized) {
        added_add(&t->raw, text, n, flags);
        return true;
    }
    struct text normal = { 0 };
    if (t->nfc)
        nfc_add(&normal, text, n);
    else
        text_add(&normal, text, n);
    added_add(&t->normal, normal.s, normal.n, flags);
    free(normal.s);
    return true;
}

static bool read_added(struct tokenizer *t, const struct json *added, struct error *err)
{
    for (size_t i = 0; i < json_count(added); i++)
        if (!read_added_token(t, json_at(added, i), err))
            return false;
    return true;
}

// -----------------------------------------------------------------------------------------------------------------

static bool read_all(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *model = json_get(j, "model"), *added = json_get(j, "added_tokens");
    bool bytes = false;
    if (!json_is_object(j) || !json_is_object(model))
        return fail(err, "%s: not a tokenizer.json (no model)", t->name);
    if (!read_normalizer(t, json_get(j, "normalizer"), err) || !check_model(t, model, err) ||
        !read_pre_tokenizer(t, json_get(j, "pre_tokenizer"), &bytes, err))
        return false;
    if (!bytes)
        return fail(err, "%s: its pre-tokenizer has no ByteLevel; only byte-level BPE is supported", t->name);
    return read_decoder(t, json_get(j, "decoder"), err) && read_vocabulary(t, json_get(model, "vocab"), added, err) &&
           read_merges(t, json_get(model, "merges"), err) && read_unknown(t, model, err) &&
           read_switch(t, model, "ignore_merges", false, &t->ignore_merges, err) && read_added(t, added, err) &&
           tokenizer_finish(t, err);
}

struct tokenizer *tokenizer_from_json(const struct json *j, const char *name, struct error *err)
{
    struct tokenizer *t = xcalloc(1, sizeof(*t));
    t->name = xstrdup(name);
    if (read_all(t, j, err))
        return t;
    tokenizer_close(t);
    return NULL;
}
