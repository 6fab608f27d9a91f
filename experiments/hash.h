// hash.h - FNV-1a, 64 bits: names for what is long (Fowler, Noll, Vo). Not against an adversary, only against mistakes.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xCBF29CE484222325)

static inline uint64_t hash_more(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001B3);
    return h;
}
