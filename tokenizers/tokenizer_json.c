// tokenizer_json.c - reads a tokenizer from the tokenizer.json of Hugging Face's `tokenizers`: its model and its added tokens.
//
// Everything in the file that changes ids is either implemented or an error that names it. Ids of added tokens are those of the file
// (`tokenizers` renumbers, with a warning, those that leave a gap). Truncation, padding and
// post-processing are ignored: a leading BOS token is decided by the model's configuration.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_json_parts.h"
#include "tokenizers/tokenizer_parts.h"

// ---- model ------------------------------------------------------------------------------------------------------

static bool check_model(const struct tokenizer *t, const struct json *model, struct error *err)
{
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    bool typed = !json_is_null(json_get(model, "type")); // old files have no type
    if (json_is_type(model, "Unigram"))
        return true;
    if (!json_is_object(model) || (typed ? !json_is_type(model, "BPE") : !json_is_array(json_get(model, "merges"))))
        return json_unknown_type(t, "model", model, "BPE, Unigram", err);
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
            return json_is_not(t, "the content of an added token", "text", err);
        if (json_text_length(content) > 0 &&
            !check_id(t, json_get(json_at(added, i), "id"), json_text(content), size, err))
            return false;
    }
    return true;
}

static bool add_token(struct tokenizer *t, int32_t id, const char *text, size_t n, const struct token_form *form,
                      struct error *err)
{
    struct error why;
    const bool ok = form == NULL ? vocabulary_add(&t->vocabulary, id, text, n, &why)
                                 : vocabulary_add_piece(&t->vocabulary, id, text, n, form->pieces,
                                                        form->bytes && byte_of_token(text, n) >= 0, &why);
    return ok || fail(err, "%s: %s", t->name, why.text);
}

// form: of its tokens; NULL: byte letters.
static bool read_vocabulary(struct tokenizer *t, const struct json *vocabulary, const struct json *added,
                            const struct token_form *form, struct error *err)
{
    int size;
    if (!json_is_object(vocabulary))
        return json_is_not(t, "the model's vocab", "a mapping from tokens to ids", err);
    if (!json_is_null(added) && !json_is_array(added))
        return json_is_not(t, "added_tokens", "a list", err);
    if (!size_of(t, vocabulary, added, &size, err))
        return false;
    vocabulary_init(&t->vocabulary, size, json_count(vocabulary) + json_count(added));
    for (void *at = json_first(vocabulary); at != NULL; at = json_next(vocabulary, at))
        if (!add_token(t, (int32_t)json_int(json_value(at)), json_key(at), strlen(json_key(at)), form, err))
            return false;
    return true;
}

// ---- unigram

static bool read_scores(struct tokenizer *t, const struct json *pieces, const struct token_form *form, double *score,
                        struct error *err)
{
    for (size_t i = 0; i < json_count(pieces); i++) {
        const struct json *piece = json_at(pieces, i), *text = json_at(piece, 0), *value = json_at(piece, 1);
        if (json_count(piece) != 2 || !json_is_text(text) || !json_is_number(value))
            return fail(err, "%s: piece %zu of the model's vocab is not [\"text\", score]", t->name, i);
        if (!add_token(t, (int32_t)i, json_text(text), json_text_length(text), form, err))
            return false;
        score[i] = json_number(value);
    }
    return true;
}

static bool read_unigram(struct tokenizer *t, const struct json *model, const struct json *added,
                         const struct token_form *form, struct error *err)
{
    const struct json *pieces = json_get(model, "vocab"), *unknown = json_get(model, "unk_id");
    int size = 0;
    bool fallback;
    if (!json_is_array(pieces) || json_count(pieces) == 0 || json_count(pieces) >= VOCABULARY_MAX)
        return json_is_not(t, "the model's vocab", "a list of pieces with scores", err);
    if (!json_is_null(added) && !json_is_array(added))
        return json_is_not(t, "added_tokens", "a list", err);
    if (!size_of(t, NULL, added, &size, err))
        return false;
    if (!json_switch(t, model, "byte_fallback", false, &fallback, err))
        return false;
    if (!json_is_null(unknown) &&
        (!json_is_int(unknown) || json_int(unknown) < 0 || json_int(unknown) >= (long long)json_count(pieces)))
        return json_is_not(t, "the model's unk_id", "the number of a piece", err);
    size = size > (int)json_count(pieces) ? size : (int)json_count(pieces);
    vocabulary_init(&t->vocabulary, size, (size_t)size + json_count(added));
    double *score = xmalloc((size_t)size * sizeof(*score));
    for (int i = 0; i < size; i++)
        score[i] = NAN;
    t->unigram_model = true;
    t->unigram.score = score;
    if (!read_scores(t, pieces, form, score, err))
        return false;
    unigram_init(&t->unigram, &t->vocabulary, score);
    t->unigram.unknown = json_is_null(unknown) ? -1 : (int32_t)json_int(unknown);
    if (fallback)
        tokenizer_find_bytes(t, t->unigram.byte);
    return true;
}

// ---- BPE

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

static bool read_merges(struct tokenizer *t, const struct json *merges, bool bytes, struct error *err)
{
    if (!json_is_array(merges))
        return json_is_not(t, "the model's merges", "a list", err);
    bpe_init(&t->bpe, json_count(merges));
    if (bytes)
        tokenizer_bytes(t);
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

static bool every_byte_has_a_token(const struct tokenizer *t)
{
    for (int b = 0; b < 256; b++)
        if (t->bpe.byte[b] < 0)
            return false;
    return true;
}

// Reads how bytes, or characters, without a token are encoded; most byte-level vocabularies have a token for every byte.
static bool read_unknown(struct tokenizer *t, const struct json *model, struct error *err)
{
    const struct json *unknown = json_get(model, "unk_token");
    bool fallback;
    if (!json_switch(t, model, "fuse_unk", false, &t->bpe.fuse_unknown, err) ||
        !json_switch(t, model, "byte_fallback", false, &fallback, err))
        return false;
    if (t->bpe.characters == NULL && every_byte_has_a_token(t))
        return true;
    if (fallback && t->bpe.characters != NULL)
        tokenizer_find_bytes(t, t->bpe.byte);
    else if (fallback)
        return fail(err, "%s: byte_fallback is not supported if some bytes have no token", t->name);
    if (json_is_null(unknown))
        return true; // dropped
    t->bpe.unknown = vocabulary_find(&t->vocabulary, json_text(unknown), json_text_length(unknown));
    return t->bpe.unknown >= 0 || fail(err, "%s: some %s have no token, and the vocabulary has no unk_token", t->name,
                                       t->bpe.characters != NULL ? "characters" : "bytes");
}

// ---- added tokens -----------------------------------------------------------------------------------------------

static bool read_added_token(struct tokenizer *t, const struct json *j, bool pieces, struct error *err)
{
    const struct json *content = json_get(j, "content");
    const char *text = json_text(content);
    size_t n = json_text_length(content);
    struct added_token flags = { .id = (int32_t)json_int(json_get(j, "id")) };
    bool normalized;
    if (!json_switch(t, j, "special", false, &flags.special, err) ||
        !json_switch(t, j, "single_word", false, &flags.single_word, err) ||
        !json_switch(t, j, "lstrip", false, &flags.lstrip, err) ||
        !json_switch(t, j, "rstrip", false, &flags.rstrip, err) ||
        !json_switch(t, j, "normalized", !flags.special, &normalized, err))
        return false;
    if (n == 0)
        return true;
    struct error why;
    if (!vocabulary_add_literal(&t->vocabulary, flags.id, text, n, flags.special ? TOKEN_SPECIAL : TOKEN_ADDED, &why))
        return fail(err, "%s: %s", t->name, why.text);
    if (pieces)
        vocabulary_decode_spaces(&t->vocabulary, flags.id);
    flags.special = tokenizer_is_special(t, flags.id); // once special, always special
    if (!normalized) {
        added_add(&t->raw, text, n, flags);
        return true;
    }
    struct text normal = { 0 };
    bool ok = true;
    if (t->normalizer.n > 0)
        ok = normalizer_run(&t->normalizer, text, n, NULL, &normal, NULL, &why) ||
             fail(err, "%s: %s", t->name, why.text);
    else
        text_add(&normal, text, n);
    if (ok && normal.n > 0)
        added_add(&t->normal, normal.s, normal.n, flags);
    free(normal.s);
    return ok;
}

// pieces: their texts are decoded as those of the vocabulary are.
static bool read_added(struct tokenizer *t, const struct json *added, bool pieces, struct error *err)
{
    for (size_t i = 0; i < json_count(added); i++)
        if (!read_added_token(t, json_at(added, i), pieces, err))
            return false;
    return true;
}

// -----------------------------------------------------------------------------------------------------------------

static bool read_all(struct tokenizer *t, const struct json *j, struct error *err)
{
    const struct json *model = json_get(j, "model"), *added = json_get(j, "added_tokens");
    bool bytes = false;
    struct token_form form = { 0 };
    if (!json_is_object(j) || !json_is_object(model))
        return fail(err, "%s: not a tokenizer.json (no model)", t->name);
    if (!json_read_normalizer(t, json_get(j, "normalizer"), err) || !check_model(t, model, err) ||
        !json_read_pre_tokenizer(t, json_get(j, "pre_tokenizer"), &bytes, err) ||
        !json_read_decoder(t, json_get(j, "decoder"), &form, err))
        return false;
    const bool read = json_is_type(model, "Unigram")
                          ? read_unigram(t, model, added, &form, err)
                          : read_vocabulary(t, json_get(model, "vocab"), added, bytes ? NULL : &form, err) &&
                                read_merges(t, json_get(model, "merges"), bytes, err) && read_unknown(t, model, err) &&
                                json_switch(t, model, "ignore_merges", false, &t->ignore_merges, err);
    return read && read_added(t, added, form.pieces, err) && tokenizer_finish(t, err);
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
