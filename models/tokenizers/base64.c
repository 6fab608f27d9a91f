#include "models/tokenizers/base64.h"

#include <stdlib.h>

#include "core/memory.h"

static int value_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

void *base64_decode(const char *s, size_t n, size_t *to_n)
{
    size_t padding = 0;
    while (padding < 2 && padding < n && s[n - 1 - padding] == '=')
        padding++;
    if (n % 4 != 0)
        return NULL;
    unsigned char *to = xmalloc(n / 4 * 3 + 1);
    *to_n = 0;
    for (size_t i = 0; i < n; i += 4) {
        unsigned bits = 0;
        for (size_t k = i; k < i + 4; k++) {
            const int v = k < n - padding ? value_of(s[k]) : 0;
            if (v < 0) {
                free(to);
                return NULL;
            }
            bits = bits << 6 | (unsigned)v;
        }
        for (int k = 2; k >= 0; k--)
            to[(*to_n)++] = (unsigned char)(bits >> 8 * k);
    }
    *to_n -= padding;
    return to;
}
