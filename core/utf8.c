// utf8.c - utf8.h by utf8proc, whose one includer this is; what decoding in parts needs is added.
#include "core/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/error.h"
#include "core/memory.h"

int utf8_length(unsigned char b)
{
    return b < 0x80 ? 1 : b < 0xC2 ? 0 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : b < 0xF5 ? 4 : 0;
}

// Table 3-7 of the Unicode standard: only the second byte has ranges narrower than 80..BF.
int utf8_continues(const unsigned char *before, int i, unsigned char b)
{
    if (i == 0)
        return utf8_length(b) != 0;
    unsigned char min = 0x80, max = 0xBF;
    if (i == 1) {
        min = before[0] == 0xE0 ? 0xA0 : before[0] == 0xF0 ? 0x90 : 0x80;
        max = before[0] == 0xED ? 0x9F : before[0] == 0xF4 ? 0x8F : 0xBF;
    }
    return b >= min && b <= max;
}

size_t utf8_character(const char *s, size_t n)
{
    utf8proc_int32_t code;
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &code);
    return length > 0 ? (size_t)length : 0;
}

size_t utf8_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof(eight)) { // fast path: eight ASCII bytes
            memcpy(&eight, s + i, sizeof(eight));
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof(eight);
                continue;
            }
        }
        size_t length = utf8_character(s + i, n - i);
        if (length == 0)
            return i;
        i += length;
    }
    return n;
}

bool utf8_require(const char *s, size_t n, const char *what, struct error *err)
{
    const size_t valid = utf8_valid(s, n);
    return valid == n || fail(err, "%s is not UTF-8: byte 0x%02X at offset %zu", what, (unsigned char)s[valid], valid);
}

unsigned utf8_code(const char *s)
{
    utf8proc_int32_t code;
    utf8proc_iterate((const utf8proc_uint8_t *)s, -1, &code);
    return (unsigned)code;
}

int utf8_put(unsigned code, char *to)
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)to);
}

static bool continues(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

size_t utf8_count(const char *s, size_t n)
{
    size_t characters = 0;
    for (size_t i = 0; i < n; i++)
        characters += !continues(s[i]);
    return characters;
}

size_t utf8_first(const char *s, size_t n, size_t characters)
{
    size_t i = 0;
    for (; i < n; i++)
        if (!continues(s[i]) && characters-- == 0)
            break;
    return i;
}

size_t utf8_before(const char *s, size_t at)
{
    do
        at--;
    while (at > 0 && continues(s[at]));
    return at;
}

size_t utf8_cut(const char *s, size_t n, size_t max)
{
    return n <= max ? n : utf8_before(s, max + 1);
}

void utf8_normalize(struct text *to, const char *s, size_t n, enum utf8_form form)
{
    static const int options[] = { [UTF8_NFC] = UTF8PROC_COMPOSE,
                                   [UTF8_NFD] = UTF8PROC_DECOMPOSE,
                                   [UTF8_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                   [UTF8_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT };
    utf8proc_uint8_t *normal = NULL;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &normal,
                                           (utf8proc_option_t)(UTF8PROC_STABLE | options[form]));
    if (length < 0) // for valid text: out of memory
        abort();
    text_add(to, (const char *)normal, (size_t)length);
    free(normal);
}

bool utf8_is_space(unsigned c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t utf8_cluster(const char *s, size_t n, size_t at)
{
    utf8proc_int32_t state = 0;
    unsigned last = utf8_code(s + at);
    for (at += utf8_character(s + at, n - at); at < n; at += utf8_character(s + at, n - at)) {
        const unsigned next = utf8_code(s + at);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)next, &state))
            break;
        last = next;
    }
    return at;
}
