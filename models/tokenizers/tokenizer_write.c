// tokenizer_write.c - checks whether GGUF can represent the tokenizer of a tokenizer.json, and gives the tokenizer as
// JSON to programs that write one.
//
// GGUF stores tokens, their kinds, merges, and the name of a family for everything else: how text is split, and whether
// pieces that are tokens skip merging. Anything that would not survive the round trip is an error that names it.
#include "models/tokenizers/tokenizer_write.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/readers.h"

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

static struct merge *merges_of(const struct tokenizer *t, size_t *n) // (*n) merges sorted by rank; free() it
{
    *n = (size_t)t->bpe.merges;
    struct merge *m = xmalloc((*n + 1) * sizeof(*m));
    memcpy(m, t->bpe.merge, *n * sizeof(*m));
    qsort(m, *n, sizeof(*m), by_rank);
    return m;
}

// A merge is written "a b": its first token must not contain a space.
static bool merges_fit(const struct tokenizer *t, struct error *err)
{
    for (const struct merge *m = t->bpe.merge; m < t->bpe.merge + t->bpe.merges; m++) {
        size_t n;
        const char *s = text_of(t, m->left, &n);
        if (n > 1 && memchr(s + 1, ' ', n - 1) != NULL)
            return fail(err, "%s: merge %u has a token that contains a space, which GGUF cannot represent", t->name,
                        (unsigned)m->rank);
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

static struct json *text_of_pair(const struct tokenizer *t, const struct merge *m)
{
    size_t left_n, right_n;
    const char *left = text_of(t, m->left, &left_n), *right = text_of(t, m->right, &right_n);
    char *pair = xformat("%.*s %.*s", (int)left_n, left, (int)right_n, right);
    struct json *j = json_new_text(pair);
    free(pair);
    return j;
}

struct json *tokenizer_json(const struct tokenizer *t)
{
    struct json *j = json_new_object(), *tokens = json_new_array(), *kinds = json_new_array(),
                *merges = json_new_array();
    size_t n;
    for (int32_t id = 0; id < tokenizer_size(t); id++) {
        const struct token *token = vocabulary_token(&t->vocabulary, id);
        const char *s = token != NULL ? text_of(t, id, &n) : NULL;
        char *text = s != NULL ? xstrndup(s, n) : NULL;
        json_push(tokens, text != NULL ? json_new_text(text) : json_new_null());
        json_push(kinds, json_new_int(token == NULL                  ? PIECE_UNUSED
                                      : token->kind == TOKEN_SPECIAL ? PIECE_CONTROL
                                      : token->kind == TOKEN_ADDED   ? PIECE_USER_DEFINED
                                                                     : PIECE_NORMAL));
        free(text);
    }
    struct merge *m = merges_of(t, &n);
    for (size_t i = 0; i < n; i++)
        json_push(merges, text_of_pair(t, &m[i]));
    free(m);
    json_add(j, JSON("tokens", tokens), JSON("kinds", kinds), JSON("merges", merges),
             JSON("ignore_merges", t->ignore_merges));
    return j;
}
