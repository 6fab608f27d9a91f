// tokenizer_write.c - writes the tokenizer of a tokenizer.json as GGUF metadata.
//
// GGUF stores tokens, their kinds, merges, and the name of a family for everything else: how text is split, and whether
// pieces that are tokens skip merging. Anything that would not survive the round trip is an error that names it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/gguf.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_parts.h"

// ---- the family

static bool is_type(const struct json *j, const char *type)
{
    return strcmp(json_text(json_get(j, "type")), type) == 0;
}

static bool is_on(const struct json *j, const char *key, bool default_value)
{
    const struct json *v = json_get(j, key);
    return json_is_null(v) ? default_value : json_bool(v);
}

// The families consist of Digits or a Split or neither, then ByteLevel. tokenizer_from_json has validated the JSON.
static const char *family(const struct json *pre, bool ignore_merges)
{
    const struct json *list = json_get(pre, "pretokenizers");
    bool alone = !is_type(pre, "Sequence");
    size_t n = alone ? 1 : json_count(list);
    const struct json *first = alone ? pre : json_at(list, 0), *last = alone ? pre : json_at(list, n - 1);
    if (n < 1 || n > 2 || !is_type(last, "ByteLevel") || is_on(last, "add_prefix_space", true))
        return NULL;
    bool regex = is_on(last, "use_regex", true);
    if (n == 1)
        return regex ? pretokenizer_family_of(false, NULL, ignore_merges) : NULL;
    if (is_type(first, "Digits"))
        return regex && is_on(first, "individual_digits", false) ? pretokenizer_family_of(true, NULL, ignore_merges)
                                                                 : NULL;
    const struct json *pattern = json_get(json_get(first, "pattern"), "Regex");
    bool plain = is_type(first, "Split") && strcmp(json_text(json_get(first, "behavior")), "Isolated") == 0;
    return plain && !regex && json_is_text(pattern) ? pretokenizer_family_of(false, json_text(pattern), ignore_merges)
                                                    : NULL;
}

// ---- whether GGUF can represent it

static bool added_fit(const struct tokenizer *t, struct error *err)
{
    if (t->raw.n > 0 && t->normal.n > 0)
        return fail(err, "%s: some added tokens are normalized and some are not, which GGUF cannot represent", t->name);
    const struct added *a = t->raw.n > 0 ? &t->raw : &t->normal;
    for (size_t i = 0; i < a->n; i++)
        if (a->token[i].single_word || a->token[i].lstrip || a->token[i].rstrip)
            return fail(err, "%s: the added token %.64s has single_word, lstrip or rstrip, which GGUF cannot represent",
                        t->name, a->token[i].text);
    return true;
}

static const char *text_of(const struct tokenizer *t, int32_t id, size_t *n)
{
    const struct token *token = vocabulary_token(&t->vocabulary, id);
    *n = token->text_n;
    return t->vocabulary.strings.s + token->text;
}

static int by_rank(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static struct merge *merges_of(const struct tokenizer *t, size_t *n) // (*n) sorted by rank; free() it
{
    struct merge *m = xmalloc(t->bpe.capacity * sizeof(*m));
    *n = 0;
    for (size_t i = 0; i < t->bpe.capacity; i++)
        if (t->bpe.merge[i].left >= 0)
            m[(*n)++] = t->bpe.merge[i];
    qsort(m, *n, sizeof(*m), by_rank);
    return m;
}

// A merge is written "a b": its first token must not contain a space.
static bool merges_fit(const struct tokenizer *t, struct error *err)
{
    for (size_t i = 0; i < t->bpe.capacity; i++) {
        size_t n;
        const char *s = t->bpe.merge[i].left >= 0 ? text_of(t, t->bpe.merge[i].left, &n) : NULL;
        if (s != NULL && n > 1 && memchr(s + 1, ' ', n - 1) != NULL)
            return fail(err, "%s: merge %u has a token that contains a space, which GGUF cannot represent", t->name,
                        (unsigned)t->bpe.merge[i].rank);
    }
    return true;
}

bool tokenizer_fits_gguf(const struct tokenizer *t, const struct json *file, const char **pre, struct error *err)
{
    if (t->normalizer.n > 0)
        return fail(err, "%s: it normalizes texts, which GGUF cannot represent", t->name);
    if (t->unigram_model || t->bpe.characters != NULL)
        return fail(err, "%s: only byte-level tokenizers can be written to GGUF", t->name);
    if (t->bpe.unknown >= 0)
        return fail(err, "%s: it has a token for unknown bytes, which GGUF cannot represent", t->name);
    *pre = family(json_get(file, "pre_tokenizer"), t->ignore_merges);
    if (*pre == NULL)
        return fail(err, "%s: its pre_tokenizer belongs to no family that GGUF can name", t->name);
    return added_fit(t, err) && merges_fit(t, err);
}

// ---- writing

void tokenizer_write_gguf(const struct tokenizer *t, const char *pre, struct gguf_writer *w)
{
    size_t size = (size_t)tokenizer_size(t), n;
    char **text = xcalloc(size, sizeof(*text));
    int32_t *kind = xcalloc(size, sizeof(*kind));
    for (int32_t id = 0; id < (int32_t)size; id++) {
        const struct token *token = vocabulary_token(&t->vocabulary, id);
        const char *s = token != NULL ? text_of(t, id, &n) : NULL;
        text[id] = s != NULL ? xstrndup(s, n) : xformat("[PAD%d]", (int)id); // as llama.cpp's converter fills holes
        kind[id] = token == NULL                  ? PIECE_UNUSED
                   : token->kind == TOKEN_SPECIAL ? PIECE_CONTROL
                   : token->kind == TOKEN_ADDED   ? PIECE_USER_DEFINED
                                                  : PIECE_NORMAL;
    }
    gguf_write_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_text(w, "tokenizer.ggml.pre", pre);
    gguf_write_texts(w, "tokenizer.ggml.tokens", (const char *const *)text, size);
    gguf_write_ints(w, "tokenizer.ggml.token_type", kind, size);
    for (size_t id = 0; id < size; id++)
        free(text[id]);
    free(text);
    free(kind);

    struct merge *m = merges_of(t, &n);
    char **line = xcalloc(n, sizeof(*line));
    for (size_t i = 0; i < n; i++) {
        size_t left_n, right_n;
        const char *left = text_of(t, m[i].left, &left_n), *right = text_of(t, m[i].right, &right_n);
        line[i] = xformat("%.*s %.*s", (int)left_n, left, (int)right_n, right);
    }
    gguf_write_texts(w, "tokenizer.ggml.merges", (const char *const *)line, n);
    for (size_t i = 0; i < n; i++)
        free(line[i]);
    free(line);
    free(m);
}

// ---- comparing

static bool same_token(const struct tokenizer *a, const struct tokenizer *b, int32_t id)
{
    const struct token *x = vocabulary_token(&a->vocabulary, id), *y = vocabulary_token(&b->vocabulary, id);
    if (x == NULL || y == NULL) // an unused id in a; in b it may be a filler that no text encodes to
        return x == NULL;
    size_t n, m;
    const char *s = text_of(a, id, &n), *r = text_of(b, id, &m);
    // Whether a token is outside the model's vocabulary matters only if pieces are looked up in it.
    return n == m && memcmp(s, r, n) == 0 && x->kind == y->kind && x->bytes_n == y->bytes_n &&
           memcmp(a->vocabulary.strings.s + x->bytes, b->vocabulary.strings.s + y->bytes, x->bytes_n) == 0 &&
           (!a->ignore_merges || x->literal == y->literal);
}

static bool same_added(const struct tokenizer *a, const struct tokenizer *b)
{
    const struct added *x = a->raw.n > 0 ? &a->raw : &a->normal, *y = b->raw.n > 0 ? &b->raw : &b->normal;
    bool same = x->n == y->n;
    for (size_t i = 0; i < x->n && same; i++)
        same = x->token[i].id == y->token[i].id && x->token[i].n == y->token[i].n &&
               memcmp(x->token[i].text, y->token[i].text, x->token[i].n) == 0 &&
               x->token[i].special == y->token[i].special;
    return same;
}

static bool same_merges(const struct tokenizer *a, const struct tokenizer *b)
{
    size_t n, m;
    struct merge *x = merges_of(a, &n), *y = merges_of(b, &m);
    bool same = n == m;
    for (size_t i = 0; i < n && same; i++)
        same = x[i].left == y[i].left && x[i].right == y[i].right && x[i].merged == y[i].merged;
    free(x);
    free(y);
    return same;
}

bool tokenizer_equal(const struct tokenizer *a, const struct tokenizer *b)
{
    bool same = tokenizer_size(a) == tokenizer_size(b) && a->ignore_merges == b->ignore_merges &&
                a->normalizer.n == b->normalizer.n && a->bpe.unknown == b->bpe.unknown &&
                memcmp(a->bpe.byte, b->bpe.byte, sizeof(a->bpe.byte)) == 0;
    for (int32_t id = 0; id < tokenizer_size(a) && same; id++)
        same = same_token(a, b, id);
    return same && same_added(a, b) && same_merges(a, b);
}
