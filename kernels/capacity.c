#include "kernels/capacity.h"

#include "core/error.h"
#include "kernels/backend.h"

// What a device takes besides: contexts, code, what an allocation is rounded up to.
enum { SPARE = 64 << 20 };

bool memory_check(struct backend *b, size_t bytes, const char *what, struct error *err)
{
    size_t free_bytes, all;
    if (!b->memory(b, &free_bytes, &all) || bytes + SPARE <= free_bytes)
        return true;
    return fail(err, "%s: no room for %s: %zu MB are needed, and %zu of %zu MB are free", b->name, what,
                (bytes + SPARE + (1 << 20) - 1) >> 20, free_bytes >> 20, all >> 20);
}
