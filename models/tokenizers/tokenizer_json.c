// tokenizer_json.c - reads a tokenizer from the tokenizer.json of Hugging Face's `tokenizers`.
//
// Everything in the file that changes ids is either implemented or an error that names it. Added tokens have the ids of
// the file (`tokenizers` renumbers, with a warning, those that leave a gap). Truncation, padding and post-processing
// are ignored: the model's configuration decides about a leading BOS token.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/tokenizers/base64.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "models/tokenizers/pattern.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/readers.h"

struct reading {
    struct tokenizer *t;
    bool byte_level;    // tokens are in byte letters; otherwise the next fields decode them
    bool pieces, bytes; // U+2581 is a space; "<0x0A>" is a byte
};

// Fails for an unknown value, which the message shows shortened.
static bool found_value(const char *what, const struct json *value, struct error *err)
{
    char *text = value != NULL ? json_write(value) : xstrdup("nothing");
    fail(err, "%s: found %.*s", what, (int)utf8_cut(text, strlen(text), 48), text);
    free(text);
    return false;
}

static const char *type_of(const struct json *j) // the type of a component: "ByteLevel"; "null", "without a type" if it
                                                 // has none
{
    const struct json *type = json_get(j, "type");
    return json_is_text(type) ? json_text(type) : json_is_null(j) ? "null" : "without a type";
}

static bool is_type(const struct json *j, const char *type)
{
    return strcmp(type_of(j), type) == 0;
}

static bool unknown_type(const char *what, const struct json *j, const char *known, struct error *err)
{
    const char *type = type_of(j);
    char *shown = json_is_text(json_get(j, "type")) ? printable_text(type, strlen(type)) : xstrdup(type);
    fail(err, "the %s %s is not known (%s)", what, shown, known);
    free(shown);
    return false;
}

// Reads an optional boolean.
static bool read_switch(const struct json *j, const char *key, bool default_value, bool *to, struct error *err)
{
    const struct json *v = json_get(j, key);
    *to = json_is_null(v) ? default_value : json_bool(v);
    return json_is_null(v) || json_is_bool(v) || fail(err, "%s is not true or false", key);
}

// ---- components: the steps before and after the model

struct component {
    const char *type;
    bool (*read)(struct reading *r, const struct json *j, struct error *err); // NULL: there is nothing to do
};

struct components {
    const char *what, *list; // "normalizer"; the key of the list that a Sequence has
    const char *known;       // the supported ones, for messages
    struct component component[10];
};

static bool read_components(struct reading *r, const struct json *j, const struct components *c, struct error *err)
{
    if (json_is_null(j))
        return true;
    for (const struct component *one = c->component; one->type != NULL; one++)
        if (is_type(j, one->type))
            return one->read == NULL || one->read(r, j, err);
    if (!is_type(j, "Sequence"))
        return unknown_type(c->what, j, c->known, err);
    const struct json *list = json_get(j, c->list);
    if (!json_is_array(list))
        return fail(err, "the %s of a Sequence is not a list", c->list);
    for (size_t i = 0; i < json_count(list); i++)
        if (!read_components(r, json_at(list, i), c, err))
            return false;
    return true;
}

// ---- normalizer

// Reads {"String": ".."} or {"Regex": ".."}. Returns NULL and sets err on failure.
static struct pattern *read_pattern(const struct json *j, const char *of, struct error *err)
{
    const struct json *regex = json_get(j, "Regex"), *string = json_get(j, "String");
    const struct json *text = json_is_text(regex) ? regex : string;
    if (!json_is_text(text) || json_text_length(text) == 0) {
        fail(err, "the pattern of a %s is not a Regex or a String that is not empty", of);
        return NULL;
    }
    return (text == regex ? pattern_compile : pattern_literal)(json_text(text), json_text_length(text), err);
}

static bool read_form(struct reading *r, const struct json *j, struct error *err)
{
    static const char *const forms[] = { [NFC] = "NFC", [NFD] = "NFD", [NFKC] = "NFKC", [NFKD] = "NFKD" };
    struct normal_step step = { .kind = NORMAL_FORM };
    while (!is_type(j, forms[step.form]))
        step.form++;
    return normalizer_add(&r->t->normalizer, step, err);
}

static bool add_text_step(struct reading *r, enum normal_kind kind, struct pattern *pattern, const struct json *with,
                          struct error *err)
{
    const size_t n = json_text_length(with);
    const struct normal_step step = { .kind = kind, .pattern = pattern, .with = xstrndup(json_text(with), n), .n = n };
    return normalizer_add(&r->t->normalizer, step, err);
}

static bool read_replace(struct reading *r, const struct json *j, struct error *err)
{
    const struct json *content = json_get(j, "content");
    if (!json_is_text(content))
        return fail(err, "the content of a Replace is not text");
    struct pattern *pattern = read_pattern(json_get(j, "pattern"), "Replace", err);
    return pattern != NULL && add_text_step(r, NORMAL_REPLACE, pattern, content, err);
}

static bool read_prepend(struct reading *r, const struct json *j, struct error *err)
{
    const struct json *text = json_get(j, "prepend");
    return json_is_text(text) ? add_text_step(r, NORMAL_PREPEND, NULL, text, err)
                              : fail(err, "the prepend of a Prepend is not text");
}

static bool read_precompiled(struct reading *r, const struct json *j, struct error *err)
{
    const struct json *map = json_get(j, "precompiled_charsmap");
    if (json_is_null(map) || (json_is_text(map) && json_text_length(map) == 0))
        return true;
    size_t n;
    void *bytes = json_is_text(map) ? base64_decode(json_text(map), json_text_length(map), &n) : NULL;
    if (bytes == NULL)
        return fail(err, "the precompiled_charsmap is not base64");
    struct character_map *m = character_map_open(bytes, n, err);
    free(bytes);
    return m != NULL &&
           normalizer_add(&r->t->normalizer, (struct normal_step){ .kind = NORMAL_CLUSTERS, .map = m }, err);
}

static bool read_strip(struct reading *r, const struct json *j, struct error *err)
{
    struct normal_step step = { .kind = NORMAL_STRIP };
    return read_switch(j, "strip_left", true, &step.left, err) &&
           read_switch(j, "strip_right", true, &step.right, err) && normalizer_add(&r->t->normalizer, step, err);
}

static const struct components normalizers = {
    "normalizer",
    "normalizers",
    "NFC, NFD, NFKC, NFKD, Replace, Prepend, Precompiled, Strip, Sequence, null",
    { { "NFC", read_form },
      { "NFD", read_form },
      { "NFKC", read_form },
      { "NFKD", read_form },
      { "Replace", read_replace },
      { "Prepend", read_prepend },
      { "Precompiled", read_precompiled },
      { "Strip", read_strip } },
};

// ---- pre-tokenizer

static bool read_behavior(const struct json *j, const char *default_value, bool invert, enum keep *to,
                          struct error *err)
{
    static const char *const known[] = { [KEEP_ALL] = "Isolated",
                                         [KEEP_GAPS] = "Removed",
                                         [KEEP_RUNS] = "Contiguous",
                                         [KEEP_WITH_PREVIOUS] = "MergedWithPrevious",
                                         [KEEP_WITH_NEXT] = "MergedWithNext" };
    const struct json *v = json_get(j, "behavior");
    const char *name = json_is_null(v) ? default_value : json_text(v);
    for (enum keep k = KEEP_ALL; k <= KEEP_RUNS; k++)
        if (known[k] != NULL && strcmp(known[k], name) == 0) {
            *to = invert && k == KEEP_GAPS ? KEEP_MATCHES : k;
            return !invert || (k != KEEP_WITH_PREVIOUS && k != KEEP_WITH_NEXT) ||
                   fail(err, "invert of a Split with the behavior %s is not supported", name);
        }
    return found_value(
        "the behavior of a Split or Punctuation (Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext)", v,
        err);
}

// Appends a stage, which splits the pieces of the stages before it. After ByteLevel stages see byte letters.
static bool add_stage(struct reading *r, struct stage stage, struct error *err)
{
    if (r->byte_level && !r->t->cut.letters)
        pretokenizer_letters(&r->t->cut);
    return pretokenizer_add(&r->t->cut, stage, err);
}

static bool add_split(struct reading *r, const char *pattern, enum keep keep, struct error *err)
{
    const struct stage stage = { .pattern = pattern_compile(pattern, strlen(pattern), err), .keep = keep };
    return stage.pattern != NULL && add_stage(r, stage, err);
}

static bool read_split(struct reading *r, const struct json *j, struct error *err)
{
    struct stage stage = { 0 };
    bool invert;
    if (!read_switch(j, "invert", false, &invert, err) ||
        (stage.pattern = read_pattern(json_get(j, "pattern"), "Split", err)) == NULL)
        return false;
    if (read_behavior(j, "", invert, &stage.keep, err))
        return add_stage(r, stage, err);
    pattern_free(stage.pattern);
    return false;
}

static bool read_digits(struct reading *r, const struct json *j, struct error *err)
{
    bool individually;
    return read_switch(j, "individual_digits", false, &individually, err) &&
           add_split(r, individually ? DIGIT : DIGITS, KEEP_ALL, err);
}

static bool read_punctuation(struct reading *r, const struct json *j, struct error *err)
{
    enum keep keep;
    return read_behavior(j, "Isolated", false, &keep, err) && add_split(r, PUNCTUATION, keep, err);
}

static bool read_whitespace_split(struct reading *r, const struct json *j, struct error *err)
{
    (void)j;
    return add_split(r, "\\s", KEEP_GAPS, err);
}

// Reads prepend_scheme, or add_prefix_space of older files.
static bool read_prefix(const struct json *j, enum prefix *to, struct error *err)
{
    static const char *const schemes[] = {
        [PREFIX_NEVER] = "never", [PREFIX_FIRST] = "first", [PREFIX_ALWAYS] = "always"
    };
    const struct json *scheme = json_get(j, "prepend_scheme"), *replacement = json_get(j, "replacement");
    bool add;
    if (!read_switch(j, "add_prefix_space", true, &add, err))
        return false;
    if (strcmp(json_text(replacement), METASPACE) != 0 && !json_is_null(replacement))
        return found_value("the replacement of a Metaspace (only U+2581 is supported)", replacement, err);
    *to = add ? PREFIX_ALWAYS : PREFIX_NEVER;
    if (json_is_null(scheme))
        return true;
    for (int i = PREFIX_NEVER; i <= PREFIX_ALWAYS; i++)
        if (strcmp(json_text(scheme), schemes[i]) == 0) {
            *to = (enum prefix)i;
            return true;
        }
    return found_value("the prepend_scheme of a Metaspace (always, first, never)", scheme, err);
}

static bool read_metaspace(struct reading *r, const struct json *j, struct error *err)
{
    struct stage stage = { .keep = KEEP_WITH_NEXT, .metaspace = true };
    bool split;
    if (r->byte_level)
        return fail(err, "a Metaspace after ByteLevel is not supported");
    if (!read_prefix(j, &stage.prefix, err) || !read_switch(j, "split", true, &split, err))
        return false;
    stage.pattern = split ? pattern_literal(METASPACE, strlen(METASPACE), err) : NULL;
    return (stage.pattern != NULL || !split) && add_stage(r, stage, err);
}

static bool read_byte_level(struct reading *r, const struct json *j, struct error *err)
{
    struct stage stage = { 0 };
    bool space_first, regex;
    if (r->byte_level)
        return fail(err, "ByteLevel occurs twice among its pre-tokenizers");
    if (!read_switch(j, "add_prefix_space", true, &space_first, err) || !read_switch(j, "use_regex", true, &regex, err))
        return false;
    stage.prefix = space_first ? PREFIX_ALWAYS : PREFIX_NEVER;
    stage.pattern = regex ? pattern_compile(GPT2, strlen(GPT2), err) : NULL;
    const bool ok = (stage.pattern != NULL || !regex) && add_stage(r, stage, err);
    r->byte_level = true;
    return ok;
}

static const struct components pre_tokenizers = {
    "pre-tokenizer",
    "pretokenizers",
    "ByteLevel, Split, Digits, Punctuation, Metaspace, WhitespaceSplit, Sequence",
    { { "ByteLevel", read_byte_level },
      { "Split", read_split },
      { "Digits", read_digits },
      { "Punctuation", read_punctuation },
      { "Metaspace", read_metaspace },
      { "WhitespaceSplit", read_whitespace_split } },
};

// ---- decoder

static bool read_byte_fallback(struct reading *r, const struct json *j, struct error *err)
{
    (void)j, (void)err;
    r->bytes = true;
    return true;
}

// Reads SentencePiece's form: Replace of U+2581 by a space, Strip of one leading space.
static bool read_decoder_replace(struct reading *r, const struct json *j, struct error *err)
{
    const struct json *pattern = json_get(json_get(j, "pattern"), "String");
    r->pieces = true;
    return (strcmp(json_text(pattern), METASPACE) == 0 && strcmp(json_text(json_get(j, "content")), " ") == 0) ||
           found_value("the pattern of a decoder Replace (only U+2581 by a space is supported)", pattern, err);
}

static bool read_decoder_strip(struct reading *r, const struct json *j, struct error *err)
{
    const struct json *start = json_get(j, "start"), *stop = json_get(j, "stop");
    const bool ok = strcmp(json_text(json_get(j, "content")), " ") == 0 && json_is_int(start) && json_int(start) <= 1 &&
                    json_int(start) >= 0 && json_is_int(stop) && json_int(stop) == 0;
    if (ok && json_int(start) == 1)
        r->t->drops = DROPS_SPACE;
    return ok || fail(err, "a decoder Strip of other than one leading space is not supported");
}

static bool read_decoder_metaspace(struct reading *r, const struct json *j, struct error *err)
{
    enum prefix prefix;
    r->pieces = true;
    if (!read_prefix(j, &prefix, err))
        return false;
    r->t->drops = prefix != PREFIX_NEVER ? DROPS_FIRST_TOKEN : r->t->drops;
    return true;
}

static const struct components decoders = {
    "decoder",
    "decoders",
    "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence",
    { { "ByteLevel", NULL },
      { "Fuse", NULL },
      { "ByteFallback", read_byte_fallback },
      { "Replace", read_decoder_replace },
      { "Strip", read_decoder_strip },
      { "Metaspace", read_decoder_metaspace } },
};

// ---- vocabulary

static bool check_model(const struct json *model, struct error *err)
{
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    bool typed = !json_is_null(json_get(model, "type")); // old files have no type
    if (is_type(model, "Unigram"))
        return true;
    if (typed ? !is_type(model, "BPE") : !json_is_array(json_get(model, "merges")))
        return unknown_type("model", model, "BPE, Unigram", err);
    for (size_t i = 0; i < sizeof(affixes) / sizeof(*affixes); i++) {
        const struct json *v = json_get(model, affixes[i]);
        if (!json_is_null(v) && !(json_is_text(v) && json_text_length(v) == 0))
            return fail(err, "a %s is not supported", affixes[i]);
    }
    const struct json *dropout = json_get(model, "dropout");
    return json_is_null(dropout) || (json_is_number(dropout) && json_number(dropout) == 0) ||
           fail(err, "dropout makes ids random and is not supported");
}

// Checks an id and raises *size above it.
static bool check_id(const struct json *id, const char *of, int *size, struct error *err)
{
    if (!json_is_int(id) || json_int(id) < 0 || json_int(id) >= VOCABULARY_MAX) {
        char *shown = printable_text(of, strlen(of));
        fail(err, "the id of %s is not an integer from 0 to %d", shown, VOCABULARY_MAX - 1);
        free(shown);
        return false;
    }
    if (json_int(id) >= *size)
        *size = (int)json_int(id) + 1;
    return true;
}

// Raises *size above all ids of added tokens, and makes a vocabulary of that size.
static bool begin_vocabulary(struct reading *r, const struct json *vocabulary, const struct json *added, int *size,
                             struct error *err)
{
    if (!json_is_null(added) && !json_is_array(added))
        return fail(err, "added_tokens is not a list");
    for (size_t i = 0; i < json_count(added); i++) {
        const struct json *content = json_get(json_at(added, i), "content");
        if (!json_is_text(content))
            return fail(err, "the content of an added token is not text");
        if (json_text_length(content) > 0 &&
            !check_id(json_get(json_at(added, i), "id"), json_text(content), size, err))
            return false;
    }
    vocabulary_init(&r->t->vocabulary, *size, json_count(vocabulary) + json_count(added));
    return true;
}

static bool add_token(const struct reading *r, int32_t id, const char *text, size_t n, struct error *err)
{
    const enum token_form form = r->byte_level                             ? FORM_LETTERS
                                 : r->bytes && byte_of_token(text, n) >= 0 ? FORM_BYTE
                                 : r->pieces                               ? FORM_SPACES
                                                                           : FORM_TEXT;
    return vocabulary_add(&r->t->vocabulary, id, text, n, form, err);
}

static bool read_vocabulary(struct reading *r, const struct json *vocabulary, const struct json *added,
                            struct error *err)
{
    int size = 0;
    if (!json_is_object(vocabulary))
        return fail(err, "the model's vocab is not a mapping from tokens to ids");
    for (void *at = json_first(vocabulary); at != NULL; at = json_next(vocabulary, at))
        if (!check_id(json_value(at), json_key(at), &size, err))
            return false;
    if (!begin_vocabulary(r, vocabulary, added, &size, err))
        return false;
    for (void *at = json_first(vocabulary); at != NULL; at = json_next(vocabulary, at))
        if (!add_token(r, (int32_t)json_int(json_value(at)), json_key(at), strlen(json_key(at)), err))
            return false;
    return true;
}

// ---- unigram

static bool read_scores(const struct reading *r, const struct json *pieces, double *score, struct error *err)
{
    for (size_t i = 0; i < json_count(pieces); i++) {
        const struct json *piece = json_at(pieces, i), *text = json_at(piece, 0), *value = json_at(piece, 1);
        if (json_count(piece) != 2 || !json_is_text(text) || !json_is_number(value))
            return fail(err, "piece %zu of the model's vocab is not [\"text\", score]", i);
        if (!add_token(r, (int32_t)i, json_text(text), json_text_length(text), err))
            return false;
        score[i] = json_number(value);
    }
    return true;
}

static bool read_unigram(struct reading *r, const struct json *model, const struct json *added, struct error *err)
{
    struct tokenizer *t = r->t;
    const struct json *pieces = json_get(model, "vocab"), *unknown = json_get(model, "unk_id");
    bool fallback;
    if (!json_is_array(pieces) || json_count(pieces) == 0 || json_count(pieces) >= VOCABULARY_MAX)
        return fail(err, "the model's vocab is not a list of pieces with scores");
    if (!read_switch(model, "byte_fallback", false, &fallback, err))
        return false;
    if (!json_is_null(unknown) &&
        (!json_is_int(unknown) || json_int(unknown) < 0 || json_int(unknown) >= (long long)json_count(pieces)))
        return fail(err, "the model's unk_id is not the number of a piece");
    int size = (int)json_count(pieces);
    if (!begin_vocabulary(r, pieces, added, &size, err))
        return false;
    double *score = xmalloc((size_t)size * sizeof(*score));
    for (int i = 0; i < size; i++)
        score[i] = NAN;
    t->unigram_model = true;
    t->unigram.score = score;
    r->byte_level = false; // pieces are stored unchanged
    if (!read_scores(r, pieces, score, err))
        return false;
    unigram_init(&t->unigram, &t->vocabulary, score);
    t->unigram.unknown = json_is_null(unknown) ? -1 : (int32_t)json_int(unknown);
    if (fallback)
        tokenizer_find_bytes(t, false, t->unigram.byte);
    return true;
}

// ---- BPE

// Reads "Ġ t", or ["Ġ", "t"] in newer files, since a token may contain a space.
static bool read_merge(struct tokenizer *t, const struct json *j, size_t rank, struct error *err)
{
    const struct json *left = json_at(j, 0), *right = json_at(j, 1);
    if (json_count(j) == 2 && json_is_text(left) && json_is_text(right))
        return tokenizer_merge(t, rank, json_text(left), json_text_length(left), json_text(right),
                               json_text_length(right), err);
    const char *s = json_text(j), *space = memchr(s, ' ', json_text_length(j)), *end = s + json_text_length(j);
    if (space == NULL || memchr(space + 1, ' ', (size_t)(end - space - 1)) != NULL)
        return fail(err, "merge %zu is neither \"a b\" nor [\"a\", \"b\"]", rank);
    return tokenizer_merge(t, rank, s, (size_t)(space - s), space + 1, (size_t)(end - space - 1), err);
}

static bool read_merges(const struct reading *r, const struct json *merges, struct error *err)
{
    struct tokenizer *t = r->t;
    if (!json_is_array(merges))
        return fail(err, "the model's merges is not a list");
    bpe_init(&t->bpe, json_count(merges));
    if (r->byte_level)
        tokenizer_find_bytes(t, true, t->bpe.byte);
    else
        t->bpe.characters = &t->vocabulary;
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

// Reads how bytes, or characters, without a token are encoded. Most byte-level vocabularies have a token for every
// byte.
static bool read_unknown(struct tokenizer *t, const struct json *model, struct error *err)
{
    const struct json *unknown = json_get(model, "unk_token");
    bool fallback, every_byte = true;
    if (!read_switch(model, "fuse_unk", false, &t->bpe.fuse_unknown, err) ||
        !read_switch(model, "byte_fallback", false, &fallback, err))
        return false;
    for (int b = 0; b < 256; b++)
        every_byte &= t->bpe.byte[b] >= 0;
    if (t->bpe.characters == NULL && every_byte)
        return true;
    if (fallback && t->bpe.characters != NULL)
        tokenizer_find_bytes(t, false, t->bpe.byte);
    else if (fallback)
        return fail(err, "byte_fallback is not supported if some bytes have no token");
    if (json_is_null(unknown))
        return true; // such text is dropped
    t->bpe.unknown = vocabulary_find(&t->vocabulary, json_text(unknown), json_text_length(unknown));
    return t->bpe.unknown >= 0 || fail(err, "some %s have no token, and the vocabulary has no unk_token",
                                       t->bpe.characters != NULL ? "characters" : "bytes");
}

// ---- added tokens

static bool read_added_token(const struct reading *r, const struct json *j, struct error *err)
{
    struct tokenizer *t = r->t;
    const struct json *content = json_get(j, "content");
    const char *text = json_text(content);
    size_t n = json_text_length(content);
    struct added_token flags = { .id = (int32_t)json_int(json_get(j, "id")) };
    bool normalized;
    if (!read_switch(j, "special", false, &flags.special, err) ||
        !read_switch(j, "single_word", false, &flags.single_word, err) ||
        !read_switch(j, "lstrip", false, &flags.lstrip, err) || !read_switch(j, "rstrip", false, &flags.rstrip, err) ||
        !read_switch(j, "normalized", !flags.special, &normalized, err))
        return false;
    if (n == 0)
        return true;
    if (!vocabulary_add_literal(&t->vocabulary, flags.id, text, n, flags.special ? TOKEN_SPECIAL : TOKEN_ADDED, err))
        return false;
    if (r->pieces) // decodes like tokens of the vocabulary
        vocabulary_decode_spaces(&t->vocabulary, flags.id);
    flags.special = tokenizer_is_special(t, flags.id); // once special, always special
    if (!normalized) {
        added_add(&t->raw, text, n, flags);
        return true;
    }
    struct text normal = { 0 };
    const bool ok = normalizer_run(&t->normalizer, text, n, NULL, &normal, NULL, err);
    if (ok && normal.n > 0)
        added_add(&t->normal, normal.s, normal.n, flags);
    free(normal.s);
    return ok;
}

bool tokenizer_read_json(struct tokenizer *t, const struct tokenizer_source *s, struct error *err)
{
    const struct json *model = json_get(s->json, "model"), *added = json_get(s->json, "added_tokens");
    struct reading r = { .t = t };
    if (!json_is_object(model))
        return fail(err, "not a tokenizer.json (no model)");
    if (!read_components(&r, json_get(s->json, "normalizer"), &normalizers, err) || !check_model(model, err) ||
        !read_components(&r, json_get(s->json, "pre_tokenizer"), &pre_tokenizers, err) ||
        !read_components(&r, json_get(s->json, "decoder"), &decoders, err))
        return false;
    if (is_type(model, "Unigram")
            ? !read_unigram(&r, model, added, err)
            : !read_vocabulary(&r, json_get(model, "vocab"), added, err) ||
                  !read_merges(&r, json_get(model, "merges"), err) || !read_unknown(t, model, err) ||
                  !read_switch(model, "ignore_merges", false, &t->ignore_merges, err))
        return false;
    for (size_t i = 0; i < json_count(added); i++)
        if (!read_added_token(&r, json_at(added, i), err))
            return false;
    return true;
}
