#include "kernels/backend.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"

// Memory that the device needs in addition: contexts, code, rounding of allocations.
enum { RESERVED = 64 << 20 };

bool memory_check(struct backend *b, size_t bytes, const char *what, struct error *err)
{
    size_t free_bytes, all;
    if (!b->memory(b, &free_bytes, &all) || bytes + RESERVED <= free_bytes)
        return true;
    return fail(err, "%s: not enough memory for %s: %zu MB are needed, and %zu of %zu MB are free", b->name, what,
                (bytes + RESERVED + (1 << 20) - 1) >> 20, free_bytes >> 20, all >> 20);
}

bool float_rows(struct backend *b, struct tensor w, int64_t first, int64_t n, float *to, struct error *err)
{
    const size_t row_bytes = type_row_bytes(w.type, w.width);
    const struct tensor stored = tensor_of(b->alloc(b, (size_t)n * row_bytes), w.type, n, w.width);
    const struct tensor rows = rows_on(b, n, w.width);
    int32_t *id = xmalloc((size_t)n * sizeof(*id));
    for (int64_t i = 0; i < n; i++)
        id[i] = (int32_t)i;
    bool ok = (stored.data != NULL && rows.data != NULL) ||
              fail(err, "%s: not enough memory for %lld rows", b->name, (long long)n);
    if (ok) {
        b->upload(b, stored.data, (const uint8_t *)w.data + (size_t)first * row_bytes, (size_t)n * row_bytes);
        b->take(b, rows, stored, id);
        ok = b->sync(b, err);
    }
    if (ok) {
        b->download(b, to, rows.data, tensor_bytes(rows));
        ok = b->sync(b, err);
    }
    free(id);
    b->release(b, stored.data);
    b->release(b, rows.data);
    return ok;
}

float *rows_read(struct backend *b, struct tensor rows, float **copy, struct error *err)
{
    float *host = b->host(b, rows.data);
    if (host == NULL) {
        host = *copy = xrealloc(*copy, tensor_bytes(rows));
        b->download(b, host, rows.data, tensor_bytes(rows));
    }
    return b->sync(b, err) ? host : NULL;
}
