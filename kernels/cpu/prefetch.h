// prefetch.h - software prefetch into L2.
#pragma once
#include <stddef.h>

static inline void prefetch_lines(const void *p, size_t bytes) // p NULL: no prefetch
{
    for (size_t i = 0; p != NULL && i < bytes; i += 64)
        __builtin_prefetch((const char *)p + i, 0, 2);
}
