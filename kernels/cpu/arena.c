#include "kernels/cpu/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/memory.h"

struct arena {
    struct arena *next;
    uint8_t *map, *base; // the mapping; its first multiple of HUGE_PAGE
    size_t mapped, size, used;
    int n_pieces;
};

enum { HUGE_PAGE = 2 << 20, MIN_MAPPING = 64 << 20 };

static struct arena *arena_map(size_t bytes)
{
    size_t size = bytes > MIN_MAPPING ? (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : MIN_MAPPING;
    void *map =
        mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    struct arena *a = xcalloc(1, sizeof(*a));
    a->map = map;
    a->mapped = size + HUGE_PAGE;
    a->base = a->map + (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
    a->size = size;
    madvise(a->base, size, MADV_HUGEPAGE); // a hint whose failure is harmless
    return a;
}

void *arena_alloc(struct arena **arena, size_t bytes)
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
    a->n_pieces++;
    return data;
}

void arena_free(struct arena **arena, void *data)
{
    for (struct arena **at = arena; *at != NULL; at = &(*at)->next) {
        struct arena *a = *at;
        if ((uint8_t *)data < a->base || (uint8_t *)data >= a->base + a->size)
            continue;
        if (--a->n_pieces == 0) {
            *at = a->next;
            munmap(a->map, a->mapped);
            free(a);
        }
        return;
    }
}
