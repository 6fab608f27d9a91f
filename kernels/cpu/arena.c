#include "kernels/cpu/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/memory.h"

struct arena {
    struct arena *next;
    uint8_t *map, *base; // mapped; at a multiple of HUGE
    size_t mapped, size, used;
    int used_vocab;
};

enum { HUGE = 2 << 20, LEAST = 64 << 20 };

static struct arena *arena_map(size_t bytes)
{
    size_t size = bytes > LEAST ? (bytes + HUGE - 1) / HUGE * HUGE : LEAST;
    void *map = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    struct arena *a = xcalloc(1, sizeof(*a));
    a->map = map;
    a->mapped = size + HUGE;
    a->base = a->map + (HUGE - (uintptr_t)map % HUGE) % HUGE;
    a->size = size;
    madvise(a->base, size, MADV_HUGEPAGE); // a wish
    return a;
}

void *arena_take(struct arena **arena, size_t bytes)
{
    bytes = (bytes + 63) / 64 * 64;
    struct arena *a = *arena;
    if (a == NULL || a->size - a->used < bytes) {
        a = arena_map(bytes);
        if (a == NULL)
            return NULL;
        a->next = *arena;
        *arena = a;
    }
    uint8_t *data = a->base + a->used;
    a->used += bytes;
    a->used_vocab++;
    return data;
}

void arena_give_back(struct arena **arena, void *data)
{
    for (struct arena **at = arena; *at != NULL; at = &(*at)->next) {
        struct arena *a = *at;
        if ((uint8_t *)data < a->base || (uint8_t *)data >= a->base + a->size)
            continue;
        if (--a->used_vocab == 0) {
            *at = a->next;
            munmap(a->map, a->mapped);
            free(a);
        }
        return;
    }
}
