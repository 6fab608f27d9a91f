#include "tokenizers/vocabulary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/utf8.h"
#include "tokenizers/byte_alphabet.h"

void vocabulary_init(struct vocabulary *v, int size, size_t tokens)
{
    assert(size >= 0 && size <= VOCABULARY_MAX);
    size_t capacity = 64;
    while (capacity < 2 * tokens)
        capacity *= 2;
    *v = (struct vocabulary){ .size = size, .capacity = capacity };
    v->token = xcalloc((size_t)size + 1, sizeof(*v->token));
    v->slot = xmalloc(capacity * sizeof(*v->slot));
    memset(v->slot, 0xFF, capacity * sizeof(*v->slot)); // all -1
}

void vocabulary_free(struct vocabulary *v)
{
    free(v->token);
    free(v->slot);
    free(v->strings.s);
}

static size_t hash(const char *s, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u; // FNV-1a
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    return (size_t)(h ^ h >> 29);
}

// The slot of this text, or the free slot for it. The table is at most half full.
static int32_t *slot_of(const struct vocabulary *v, const char *text, size_t n)
{
    for (size_t i = hash(text, n) & (v->capacity - 1);; i = (i + 1) & (v->capacity - 1)) {
        int32_t id = v->slot[i];
        if (id < 0)
            return &v->slot[i];
        const struct token *t = &v->token[id];
        if (t->text_n == n && memcmp(v->strings.s + t->text, text, n) == 0)
            return &v->slot[i];
    }
}

static bool insert(struct vocabulary *v, int32_t id, const char *text, size_t n, bool literal, enum token_kind kind,
                   struct error *err)
{
    assert(id >= 0 && id < v->size);
    struct token *t = &v->token[id];
    if (t->kind != TOKEN_NONE) {
        char *one = printable_text(v->strings.s + t->text, t->text_n), *other = printable_text(text, n);
        fail(err, "id %d belongs to two tokens, %s and %s", (int)id, one, other);
        free(one);
        free(other);
        return false;
    }
    if (v->strings.n + 2 * n > UINT32_MAX)
        return fail(err, "the vocabulary is larger than 4 GiB");
    t->kind = (uint8_t)kind;
    t->literal = literal;
    t->text = (uint32_t)v->strings.n;
    t->text_n = (uint32_t)n;
    text_add(&v->strings, text, n);
    t->bytes = (uint32_t)v->strings.n;
    t->bytes_n = (uint32_t)n;
    if (!literal && letters_to_bytes(text, n, &v->strings))
        t->bytes_n = (uint32_t)(v->strings.n - t->bytes);
    else
        t->bytes = t->text;
    *slot_of(v, text, n) = id;
    return true;
}

bool vocabulary_add(struct vocabulary *v, int32_t id, const char *text, size_t n, struct error *err)
{
    return insert(v, id, text, n, false, TOKEN_PLAIN, err);
}

bool vocabulary_add_literal(struct vocabulary *v, int32_t id, const char *text, size_t n, enum token_kind kind,
                            struct error *err)
{
    int32_t found = *slot_of(v, text, n);
    if (found < 0)
        return insert(v, id, text, n, true, kind, err);
    if (found != id) {
        char *shown = printable_text(text, n);
        fail(err, "the token %s has two ids, %d and %d", shown, (int)found, (int)id);
        free(shown);
        return false;
    }
    struct token *t = &v->token[id];
    if (t->kind < kind)
        t->kind = (uint8_t)kind;
    t->bytes = t->text;
    t->bytes_n = t->text_n;
    return true;
}

int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t n)
{
    return *slot_of(v, text, n);
}

const struct token *vocabulary_token(const struct vocabulary *v, int32_t id)
{
    return id >= 0 && id < v->size && v->token[id].kind != TOKEN_NONE ? &v->token[id] : NULL;
}

char *printable_text(const char *s, size_t n)
{
    enum { MAX_BYTES = 48 };
    const size_t shown = utf8_cut(s, n, MAX_BYTES);
    struct json *j = json_new_text_n(s, shown);
    char *quoted = json_write(j);
    json_free(j);
    if (shown == n)
        return quoted;
    char *cut = xformat("%s...", quoted);
    free(quoted);
    return cut;
}
