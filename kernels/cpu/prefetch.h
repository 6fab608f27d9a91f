// prefetch.h - software prefetch into L2, and the addresses of packed weights to prefetch.
#pragma once
#include <stddef.h>
#include "kernels/cpu/matmul_kernels.h"

static inline void prefetch_lines(const void *p, size_t bytes) // p NULL: no prefetch
{
    for (size_t i = 0; p != NULL && i < bytes; i += 64)
        __builtin_prefetch((const char *)p + i, 0, 2);
}

enum { OUTPUT_PREFETCH = 16 }; // prefetch distance of outputs, in rows

enum { PREFETCH = 8192 }; // distance in bytes, into L2 (docs/notes/performance_log.md lists what was tried)

// Returns the address to prefetch when number `k` of a panel is about to be multiplied: `distance` bytes beyond the
// same fraction of the panel (scales included), in this panel or in the next. NULL: unknown.
static inline const uint8_t *prefetch_address(const struct packed *w, const struct panel *p, int64_t k, size_t distance)
{
    size_t from = w->group_stride * (size_t)(k / GROUP) + distance;
    return from < w->panel ? p->data + from : p->next == NULL ? NULL : p->next + (from - w->panel);
}
