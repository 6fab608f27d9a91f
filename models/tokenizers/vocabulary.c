#include "models/tokenizers/vocabulary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/utf8.h"

void vocabulary_init(struct vocabulary *v, int size, size_t tokens)
{
    assert(size >= 0 && size <= VOCABULARY_MAX);
    *v = (struct vocabulary){ .size = size, .token = xcalloc((size_t)size + 1, sizeof(*v->token)) };
    hash_table_begin(&v->by_text, tokens);
}

void vocabulary_free(struct vocabulary *v)
{
    free(v->token);
    hash_table_free(&v->by_text);
    free(v->strings.s);
}

static bool has_text(const struct vocabulary *v, int32_t id, const char *text, size_t n)
{
    const struct token *t = &v->token[id];
    return t->text_n == n && memcmp(v->strings.s + t->text, text, n) == 0;
}

// Returns the place of this text, or the free place for it. hash: fnv of the text
static int32_t *place_of(const struct vocabulary *v, const char *text, size_t n, uint64_t hash)
{
    int32_t *at = hash_table_first(&v->by_text, hash ^ hash >> 29);
    while (*at >= 0 && !has_text(v, *at, text, n))
        at = hash_table_next(&v->by_text, at);
    return at;
}

// The token decodes to its text; the caller may set other bytes.
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
    if (v->strings.n + 2 * n + 1 > UINT32_MAX)
        return fail(err, "the vocabulary is larger than 4 GiB");
    t->kind = (uint8_t)kind;
    t->literal = literal;
    t->text = (uint32_t)v->strings.n;
    t->text_n = t->bytes_n = (uint32_t)n;
    t->bytes = t->text;
    text_add(&v->strings, text, n);
    *place_of(v, text, n, fnv(FNV_EMPTY, text, n)) = id;
    return true;
}

static void set_bytes(struct vocabulary *v, int32_t id, size_t from)
{
    v->token[id].bytes = (uint32_t)from;
    v->token[id].bytes_n = (uint32_t)(v->strings.n - from);
}

int byte_of_token(const char *text, size_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high != NULL && low != NULL ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

void vocabulary_decode_spaces(struct vocabulary *v, int32_t id)
{
    static const char metaspace[] = METASPACE;
    const size_t length = sizeof(metaspace) - 1, n = v->token[id].text_n, from = v->strings.n;
    char *text = xstrndup(v->strings.s + v->token[id].text, n); // the strings may move
    for (size_t i = 0; i < n;) {
        const bool space = n - i >= length && memcmp(text + i, metaspace, length) == 0;
        text_add(&v->strings, space ? " " : text + i, 1);
        i += space ? length : 1;
    }
    free(text);
    set_bytes(v, id, from);
}

bool vocabulary_add(struct vocabulary *v, int32_t id, const char *text, size_t n, enum token_form form,
                    struct error *err)
{
    if (!insert(v, id, text, n, false, TOKEN_PLAIN, err))
        return false;
    const size_t from = v->strings.n;
    if (form == FORM_SPACES)
        vocabulary_decode_spaces(v, id);
    if (form == FORM_BYTE)
        text_add(&v->strings, &(char){ (char)byte_of_token(text, n) }, 1);
    if (form == FORM_BYTE || (form == FORM_LETTERS && letters_to_bytes(text, n, &v->strings)))
        set_bytes(v, id, from);
    return true;
}

bool vocabulary_add_literal(struct vocabulary *v, int32_t id, const char *text, size_t n, enum token_kind kind,
                            struct error *err)
{
    const int32_t found = vocabulary_find(v, text, n);
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
    return *place_of(v, text, n, fnv(FNV_EMPTY, text, n));
}

int32_t vocabulary_find_hashed(const struct vocabulary *v, const char *text, size_t n, uint64_t hash)
{
    return *place_of(v, text, n, hash);
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

// ---- byte letters

enum { SHIFTED = 0x100, LETTERS = 0x144 }; // the first code point of a shifted byte, and one past the last

static bool maps_to_itself(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

// The 68 shifted bytes are three ranges: 00..20, 7F..A0 and AD.
static unsigned shifted(unsigned byte)
{
    return SHIFTED + (byte <= 0x20 ? byte : byte <= 0xA0 ? 0x21 + byte - 0x7F : 0x43);
}

static int byte_of_code(unsigned code)
{
    if (code < SHIFTED)
        return maps_to_itself(code) ? (int)code : -1;
    if (code >= LETTERS)
        return -1;
    unsigned i = code - SHIFTED;
    return (int)(i <= 0x20 ? i : i <= 0x42 ? 0x7F + i - 0x21 : 0xAD);
}

int byte_to_letter(unsigned char byte, char to[2])
{
    return utf8_put(maps_to_itself(byte) ? byte : shifted(byte), to);
}

void bytes_to_letters(const char *bytes, size_t n, struct text *to)
{
    for (size_t i = 0; i < n; i++) {
        char letter[2];
        int length = byte_to_letter((unsigned char)bytes[i], letter);
        text_add(to, letter, (size_t)length);
    }
}

bool letters_to_bytes(const char *s, size_t n, struct text *to)
{
    size_t before = to->n;
    for (size_t i = 0; i < n;) {
        size_t length = utf8_character(s + i, n - i);
        int byte = length == 1 || length == 2 ? byte_of_code(utf8_code(s + i)) : -1;
        if (byte < 0) {
            to->n = before;
            return false;
        }
        text_add(to, &(char){ (char)byte }, 1);
        i += length;
    }
    return true;
}
