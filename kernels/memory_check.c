#include "kernels/memory_check.h"

#include "core/error.h"
#include "kernels/backend.h"

// Memory that the device needs besides: contexts, code, rounding of allocations.
enum { RESERVED = 64 << 20 };

bool memory_check(struct backend *b, size_t bytes, const char *what, struct error *err)
{
    size_t free_bytes, all;
    if (!b->memory(b, &free_bytes, &all) || bytes + RESERVED <= free_bytes)
        return true;
    return fail(err, "%s: not enough memory for %s: %zu MB are needed, and %zu of %zu MB are free", b->name, what,
                (bytes + RESERVED + (1 << 20) - 1) >> 20, free_bytes >> 20, all >> 20);
}
