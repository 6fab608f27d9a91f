// tokenizer_json_text.c - what a tokenizer.json does to text before and after its model: normalizer, pre-tokenizer, decoder.
#include <stdlib.h>
#include <string.h>

#include "core/base64.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tokenizers/character_map.h"
#include "tokenizers/pattern.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_json_parts.h"
#include "tokenizers/tokenizer_parts.h"

bool json_is_not(const struct tokenizer *t, const char *where, const char *wanted, struct error *err)
{
    return fail(err, "%s: %s is not %s", t->name, where, wanted);
}

// An unknown value in a message: quoted, shortened, no control characters.
static bool found_value(const struct tokenizer *t, const char *what, const struct json *value, struct error *err)
{
    char *written = value != NULL && !json_is_text(value) ? json_write(value) : NULL;
    char *shown = value == NULL     ? xstrdup("nothing")
                  : written != NULL ? xstrndup(written, strlen(written) < 48 ? strlen(written) : 48)
                                    : printable_text(json_text(value), json_text_length(value));
    fail(err, "%s: %s: found %s", t->name, what, shown);
    free(written);
    free(shown);
    return false;
}

const char *json_type(const struct json *j)
{
    const struct json *type = json_get(j, "type");
    return json_is_text(type) ? json_text(type) : json_is_null(j) ? "null" : "without a type";
}

bool json_is_type(const struct json *j, const char *type)
{
    return strcmp(json_type(j), type) == 0;
}

bool json_unknown_type(const struct tokenizer *t, const char *what, const struct json *j, const char *known,
                       struct error *err)
{
    const char *type = json_type(j);
    char *shown = json_is_text(json_get(j, "type")) ? printable_text(type, strlen(type)) : xstrdup(type);
    fail(err, "%s: the %s %s is not known (%s)", t->name, what, shown, known);
    free(shown);
    return false;
}

bool json_switch(const struct tokenizer *t, const struct json *j, const char *key, bool default_value, bool *to,
                 struct error *err)
{
    const struct json *v = json_get(j, key);
    *to = json_is_null(v) ? default_value : json_bool(v);
    return json_is_null(v) || json_is_bool(v) || json_is_not(t, key, "true or false", err);
}

// ---- normalizer -------------------------------------------------------------------------------------------------

static bool add_step(struct tokenizer *t, struct normal_step step, struct error *err)
{
    struct error why;
    return normalizer_add(&t->normalizer, step, &why) || fail(err, "%s: %s", t->name, why.text);
}

// {"String": ".."} or {"Regex": ".."}. Returns NULL and sets err on failure.
static struct pattern *read_pattern(const struct tokenizer *t, const struct json *j, const char *of, struct error *err)
{
    const struct json *regex = json_get(j, "Regex"), *string = json_get(j, "String");
    const struct json *text = json_is_text(regex) ? regex : string;
    struct pattern *p = NULL;
    struct error why;
    if (!json_is_text(text) || json_text_length(text) == 0) {
        char *where = xformat("the pattern of a %s", of);
        json_is_not(t, where, "a Regex or a String that is not empty", err);
        free(where);
        return NULL;
    }
    p = text == regex ? pattern_compile(json_text(text), json_text_length(text), &why)
                      : pattern_literal(json_text(text), json_text_length(text), &why);
    if (p == NULL)
        fail(err, "%s: %s", t->name, why.text);
    return p;
}

static bool read_replace(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *content = json_get(j, "content");
    if (!json_is_text(content))
        return json_is_not(t, "the content of a Replace", "text", err);
    struct pattern *pattern = read_pattern(t, json_get(j, "pattern"), "Replace", err);
    if (pattern == NULL)
        return false;
    const size_t n = json_text_length(content);
    return add_step(t,
                    (struct normal_step){
                        .kind = NORMAL_REPLACE, .pattern = pattern, .with = xstrndup(json_text(content), n), .n = n },
                    err);
}

static bool read_prepend(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *text = json_get(j, "prepend");
    if (!json_is_text(text))
        return json_is_not(t, "the prepend of a Prepend", "text", err);
    const size_t n = json_text_length(text);
    return add_step(t, (struct normal_step){ .kind = NORMAL_PREPEND, .with = xstrndup(json_text(text), n), .n = n },
                    err);
}

static bool read_precompiled(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *map = json_get(j, "precompiled_charsmap");
    if (json_is_null(map) || (json_is_text(map) && json_text_length(map) == 0))
        return true;
    size_t n;
    struct error why;
    void *bytes = json_is_text(map) ? base64_decode(json_text(map), json_text_length(map), &n) : NULL;
    if (bytes == NULL)
        return json_is_not(t, "the precompiled_charsmap", "base64", err);
    struct character_map *m = character_map_open(bytes, n, &why);
    free(bytes);
    return m != NULL ? add_step(t, (struct normal_step){ .kind = NORMAL_CLUSTERS, .map = m }, err)
                     : fail(err, "%s: %s", t->name, why.text);
}

bool json_read_normalizer(struct tokenizer *t, const struct json *j, struct error *err)
{
    static const char *const forms[] = {
        [NORMAL_NFC] = "NFC", [NORMAL_NFD] = "NFD", [NORMAL_NFKC] = "NFKC", [NORMAL_NFKD] = "NFKD"
    };
    if (json_is_null(j))
        return true;
    for (int i = NORMAL_NFC; i <= NORMAL_NFKD; i++)
        if (json_is_type(j, forms[i]))
            return add_step(t, (struct normal_step){ .kind = (enum normal_kind)i }, err);
    if (json_is_type(j, "Replace"))
        return read_replace(t, j, err);
    if (json_is_type(j, "Prepend"))
        return read_prepend(t, j, err);
    if (json_is_type(j, "Precompiled"))
        return read_precompiled(t, j, err);
    if (json_is_type(j, "Strip")) {
        struct normal_step step = { .kind = NORMAL_STRIP };
        return json_switch(t, j, "strip_left", true, &step.left, err) &&
               json_switch(t, j, "strip_right", true, &step.right, err) && add_step(t, step, err);
    }
    if (!json_is_type(j, "Sequence"))
        return json_unknown_type(t, "normalizer", j,
                                 "NFC, NFD, NFKC, NFKD, Replace, Prepend, Precompiled, Strip, Sequence, null", err);
    const struct json *list = json_get(j, "normalizers");
    if (!json_is_array(list))
        return json_is_not(t, "the normalizers of a Sequence", "a list", err);
    for (size_t i = 0; i < json_count(list); i++)
        if (!json_read_normalizer(t, json_at(list, i), err))
            return false;
    return true;
}

// ---- pre-tokenizer ----------------------------------------------------------------------------------------------

static bool read_behavior(const struct tokenizer *t, const struct json *j, const char *default_value, bool invert,
                          enum keep *to, struct error *err)
{
    static const struct {
        const char *name;
        enum keep keep, inverted;
    } known[] = {
        { "Isolated", KEEP_ALL, KEEP_ALL },
        { "Removed", KEEP_GAPS, KEEP_MATCHES },
        { "Contiguous", KEEP_RUNS, KEEP_RUNS },
        { "MergedWithPrevious", KEEP_WITH_PREVIOUS, KEEP_WITH_PREVIOUS },
        { "MergedWithNext", KEEP_WITH_NEXT, KEEP_WITH_NEXT },
    };
    const struct json *v = json_get(j, "behavior");
    const char *name = json_is_null(v) ? default_value : json_text(v);
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strcmp(known[i].name, name) == 0) {
            *to = invert ? known[i].inverted : known[i].keep;
            return !invert || *to < KEEP_WITH_PREVIOUS || *to == KEEP_RUNS ||
                   fail(err, "%s: invert of a Split with the behavior %s is not supported", t->name, name);
        }
    return found_value(t,
                       "the behavior of a Split or Punctuation (Isolated, Removed, Contiguous, MergedWithPrevious, "
                       "MergedWithNext)",
                       v, err);
}

static bool read_split(struct tokenizer *t, const struct json *j, struct error *err)
{
    bool invert;
    enum keep keep;
    struct error why;
    struct pattern *p = NULL;
    if (!json_switch(t, j, "invert", false, &invert, err) ||
        (p = read_pattern(t, json_get(j, "pattern"), "Split", err)) == NULL)
        return false;
    if (!read_behavior(t, j, "", invert, &keep, err)) {
        pattern_free(p);
        return false;
    }
    return pretokenizer_pattern(&t->cut, p, keep, &why) || fail(err, "%s: %s", t->name, why.text);
}

static bool read_digits(struct tokenizer *t, const struct json *j, struct error *err)
{
    bool individually;
    struct error why;
    if (!json_switch(t, j, "individual_digits", false, &individually, err))
        return false;
    return pretokenizer_digits(&t->cut, individually, &why) || fail(err, "%s: %s", t->name, why.text);
}

static bool read_punctuation(struct tokenizer *t, const struct json *j, struct error *err)
{
    enum keep keep;
    struct error why;
    return read_behavior(t, j, "Isolated", false, &keep, err) &&
           (pretokenizer_punctuation(&t->cut, keep, &why) || fail(err, "%s: %s", t->name, why.text));
}

static bool read_byte_level(struct tokenizer *t, const struct json *j, struct error *err)
{
    bool space_first, regex;
    struct error why;
    if (!json_switch(t, j, "add_prefix_space", true, &space_first, err) ||
        !json_switch(t, j, "use_regex", true, &regex, err))
        return false;
    return pretokenizer_byte_level(&t->cut, space_first, regex, &why) || fail(err, "%s: %s", t->name, why.text);
}

// prepend_scheme, or add_prefix_space of older files.
static bool read_prefix(const struct tokenizer *t, const struct json *j, enum prefix *to, struct error *err)
{
    static const char *const schemes[] = {
        [PREFIX_NEVER] = "never", [PREFIX_FIRST] = "first", [PREFIX_ALWAYS] = "always"
    };
    const struct json *scheme = json_get(j, "prepend_scheme");
    const char *replacement = json_text(json_get(j, "replacement"));
    bool add;
    if (!json_switch(t, j, "add_prefix_space", true, &add, err))
        return false;
    if (strcmp(replacement, METASPACE) != 0 && !json_is_null(json_get(j, "replacement")))
        return found_value(t, "the replacement of a Metaspace (only U+2581 is supported)", json_get(j, "replacement"),
                           err);
    *to = add ? PREFIX_ALWAYS : PREFIX_NEVER;
    if (json_is_null(scheme))
        return true;
    for (int i = PREFIX_NEVER; i <= PREFIX_ALWAYS; i++)
        if (strcmp(json_text(scheme), schemes[i]) == 0) {
            *to = (enum prefix)i;
            return true;
        }
    return found_value(t, "the prepend_scheme of a Metaspace (always, first, never)", scheme, err);
}

static bool read_metaspace(struct tokenizer *t, const struct json *j, struct error *err)
{
    enum prefix prefix;
    bool split;
    struct error why;
    return read_prefix(t, j, &prefix, err) && json_switch(t, j, "split", true, &split, err) &&
           (pretokenizer_metaspace(&t->cut, prefix, split, &why) || fail(err, "%s: %s", t->name, why.text));
}

static bool read_whitespace(struct tokenizer *t, const char *pattern, enum keep keep, struct error *err)
{
    struct error why;
    return pretokenizer_split(&t->cut, pattern, strlen(pattern), keep, &why) || fail(err, "%s: %s", t->name, why.text);
}

bool json_read_pre_tokenizer(struct tokenizer *t, const struct json *j, bool *bytes, struct error *err)
{
    if (json_is_null(j))
        return true;
    if (json_is_type(j, "Sequence")) {
        const struct json *list = json_get(j, "pretokenizers");
        if (!json_is_array(list))
            return json_is_not(t, "the pretokenizers of a Sequence", "a list", err);
        for (size_t i = 0; i < json_count(list); i++)
            if (!json_read_pre_tokenizer(t, json_at(list, i), bytes, err))
                return false;
        return true;
    }
    if (*bytes && json_is_type(j, "Metaspace"))
        return fail(err, "%s: a Metaspace after ByteLevel is not supported", t->name);
    if (*bytes && !t->cut.letters)
        pretokenizer_letters(&t->cut);
    if (json_is_type(j, "Split"))
        return read_split(t, j, err);
    if (json_is_type(j, "Digits"))
        return read_digits(t, j, err);
    if (json_is_type(j, "Punctuation"))
        return read_punctuation(t, j, err);
    if (json_is_type(j, "Metaspace"))
        return read_metaspace(t, j, err);
    if (json_is_type(j, "WhitespaceSplit"))
        return read_whitespace(t, "\\s", KEEP_GAPS, err);
    if (!json_is_type(j, "ByteLevel"))
        return json_unknown_type(t, "pre-tokenizer", j,
                                 "ByteLevel, Split, Digits, Punctuation, Metaspace, WhitespaceSplit, Sequence", err);
    if (*bytes)
        return fail(err, "%s: ByteLevel occurs twice among its pre-tokenizers", t->name);
    *bytes = true;
    return read_byte_level(t, j, err);
}

// ---- decoder ----------------------------------------------------------------------------------------------------

// Replace of U+2581 by a space, Strip of one leading space: SentencePiece's form.
static bool read_decoder_replace(const struct tokenizer *t, const struct json *j, struct token_form *form,
                                 struct error *err)
{
    const struct json *pattern = json_get(json_get(j, "pattern"), "String");
    form->pieces = true;
    return (strcmp(json_text(pattern), METASPACE) == 0 && strcmp(json_text(json_get(j, "content")), " ") == 0) ||
           found_value(t, "the pattern of a decoder Replace (only U+2581 by a space is supported)", pattern, err);
}

static bool read_decoder_strip(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *start = json_get(j, "start"), *stop = json_get(j, "stop");
    const bool ok = strcmp(json_text(json_get(j, "content")), " ") == 0 && json_is_int(start) && json_int(start) <= 1 &&
                    json_int(start) >= 0 && json_is_int(stop) && json_int(stop) == 0;
    if (ok && json_int(start) == 1)
        t->drops = DROPS_SPACE;
    return ok || fail(err, "%s: a decoder Strip of other than one leading space is not supported", t->name);
}

bool json_read_decoder(struct tokenizer *t, const struct json *j, struct token_form *form, struct error *err)
{
    if (json_is_null(j) || json_is_type(j, "ByteLevel") || json_is_type(j, "Fuse"))
        return true;
    if (json_is_type(j, "ByteFallback")) {
        form->bytes = true;
        return true;
    }
    if (json_is_type(j, "Replace"))
        return read_decoder_replace(t, j, form, err);
    if (json_is_type(j, "Strip"))
        return read_decoder_strip(t, j, err);
    if (json_is_type(j, "Metaspace")) {
        enum prefix prefix;
        form->pieces = true;
        if (!read_prefix(t, j, &prefix, err))
            return false;
        t->drops = prefix != PREFIX_NEVER ? DROPS_FIRST_TOKEN : t->drops;
        return true;
    }
    if (!json_is_type(j, "Sequence"))
        return json_unknown_type(t, "decoder", j, "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence",
                                 err);
    const struct json *list = json_get(j, "decoders");
    if (!json_is_array(list))
        return json_is_not(t, "the decoders of a Sequence", "a list", err);
    for (size_t i = 0; i < json_count(list); i++)
        if (!json_read_decoder(t, json_at(list, i), form, err))
            return false;
    return true;
}
