// compression.c - the only file that includes zlib.h.
#include "experiments/replay/compression.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/memory.h"

static void end_on(int code)
{
    if (code == Z_MEM_ERROR)
        memory_out(0);
}

void bytes_compress(const void *bytes, size_t n, struct text *to)
{
    uLongf size = compressBound((uLong)n);
    char *packed = xmalloc(size);
    const int code = compress2((Bytef *)packed, &size, bytes, (uLong)n, 6);
    end_on(code);
    assert(code == Z_OK && n < (size_t)1 << 30);
    text_add(to, packed, size);
    free(packed);
}

bool bytes_expand(const void *compressed, size_t bytes, void *to, size_t n)
{
    uLongf size = (uLongf)n;
    const int code = uncompress(to, &size, compressed, (uLong)bytes);
    end_on(code);
    return code == Z_OK && size == n;
}
