#include "core/utf8.h"

#include <stdint.h>
#include <string.h>

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
    const unsigned char *const bytes = (const unsigned char *)s;
    const size_t length = n > 0 ? (size_t)utf8_length(bytes[0]) : 0;
    if (length > n)
        return 0;
    for (size_t i = 1; i < length; i++)
        if (!utf8_continues(bytes, (int)i, bytes[i]))
            return 0;
    return length;
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

unsigned utf8_code(const char *s)
{
    const unsigned char *const bytes = (const unsigned char *)s;
    const int length = utf8_length(bytes[0]);
    unsigned code = length <= 1 ? bytes[0] : bytes[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3Fu);
    return code;
}

int utf8_put(unsigned code, char *to)
{
    const int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)(length == 1 ? code : (0xF00u >> length & 0xFF) | code);
    return length;
}

static bool continues(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
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

bool utf8_is_space(unsigned c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
