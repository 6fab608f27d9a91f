// suffix_array.c - by libdivsufsort, which sorts suffixes of bytes (Yuta Mori; algorithm: Fischer, Kurpicz 2017, arXiv 1710.01896).
//
// A token is 2 or 3 bytes, the most significant first, so that the order of bytes is that of tokens. Suffixes that begin within a token
// are dropped afterwards.
#include "commands/datastore/suffix_array.h"

#include <divsufsort.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"

bool suffix_array(const int32_t *token, size_t n, int32_t most, uint32_t *to, struct error *err)
{
    const size_t width = most <= UINT16_MAX ? 2 : 3;
    if (n > (size_t)INT32_MAX / width)
        return fail(err, "%zu tokens are more than a datastore can have, %zu", n, (size_t)INT32_MAX / width);
    unsigned char *bytes = xmalloc(n * width);
    saidx_t *order = xmalloc(n * width * sizeof(*order));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++)
            bytes[i * width + k] = (unsigned char)((uint32_t)token[i] >> 8 * (width - 1 - k));
    const bool ok = divsufsort(bytes, order, (saidx_t)(n * width)) == 0 ||
                    fail(err, "the suffix array cannot be made: not enough memory");
    for (size_t i = 0, at = 0; ok && i < n * width; i++)
        if ((size_t)order[i] % width == 0)
            to[at++] = (uint32_t)((size_t)order[i] / width);
    free(bytes);
    free(order);
    return ok;
}
