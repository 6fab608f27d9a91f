// ids.h - a growing list of token ids.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/memory.h"

struct ids { // start with { 0 }; free() the array
    int32_t *id;
    size_t n, capacity;
};

static inline void ids_add(struct ids *ids, int32_t id)
{
    array_reserve(ids->id, ids->capacity, ids->n + 1);
    ids->id[ids->n++] = id;
}
