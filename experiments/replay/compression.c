// compression.c - the only file that includes zlib.h.
#include "experiments/replay/compression.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/memory.h"

void bytes_compress(const void *bytes, size_t n, struct text *to)
{
    uLongf size = compressBound((uLong)n);
    char *packed = xmalloc(size);
    const int code = compress2((Bytef *)packed, &size, bytes, (uLong)n, 6);
    assert(code == Z_OK && n < (size_t)1 << 30);
    (void)code;
    text_add(to, packed, size);
    free(packed);
}

bool bytes_expand(const void *compressed, size_t bytes, void *to, size_t n)
{
    uLongf size = (uLongf)n;
    return uncompress(to, &size, compressed, (uLong)bytes) == Z_OK && size == n;
}

bool gzip_begins(const void *bytes, size_t n)
{
    return n >= 2 && memcmp(bytes, "\x1F\x8B", 2) == 0;
}

enum gzip_result gzip_expand(const void *bytes, size_t n, size_t most, struct text *to)
{
    enum { CHUNK = 1 << 16, GZIP_ONLY = 16 + MAX_WBITS, MOST_INPUT = 1 << 30 };
    z_stream z = { .next_in = (Bytef *)(uintptr_t)bytes };
    char *chunk = xmalloc(CHUNK);
    enum gzip_result result = GZIP_WHOLE;
    size_t left = n;
    int code = inflateInit2(&z, GZIP_ONLY);
    while (code == Z_OK || (code == Z_STREAM_END && left + z.avail_in > 0)) {
        if (code == Z_STREAM_END)
            inflateReset(&z);
        if (z.avail_in == 0) {
            z.avail_in = left < MOST_INPUT ? (uInt)left : MOST_INPUT;
            left -= z.avail_in;
        }
        z.next_out = (Bytef *)chunk;
        z.avail_out = CHUNK;
        code = inflate(&z, Z_NO_FLUSH); // Z_BUF_ERROR: the bytes end within a member
        text_add(to, chunk, CHUNK - z.avail_out);
        if (to->n > most) {
            result = GZIP_TOO_LARGE;
            break;
        }
    }
    if (result == GZIP_WHOLE && code != Z_STREAM_END)
        result = GZIP_DAMAGED;
    inflateEnd(&z);
    free(chunk);
    return result;
}
