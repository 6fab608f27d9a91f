#include "formats/utf8.h"

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
    const unsigned char *u = (const unsigned char *)s;
    int length = n > 0 ? utf8_length(u[0]) : 0;
    if ((size_t)length > n)
        return 0;
    for (int i = 1; i < length; i++)
        if (!utf8_continues(u, i, u[i]))
            return 0;
    return (size_t)length;
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
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80)
        return u[0];
    if (u[0] < 0xE0)
        return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    if (u[0] < 0xF0)
        return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
}

int utf8_put(unsigned code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xE0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3F));
        to[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3F));
    to[2] = (char)(0x80 | (code >> 6 & 0x3F));
    to[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

size_t utf8_before(const char *s, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80);
    return at;
}
