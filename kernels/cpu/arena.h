// arena.h - memory for packed weights: few large mappings, on huge pages where the system allows, since a pass reads all
// of it and would otherwise miss in the page tables every 4 KiB.
#pragma once
#include <stddef.h>

struct arena;

// bytes at a multiple of 64, zeros; *arena starts as NULL. NULL: no room.
void *arena_take(struct arena **arena, size_t bytes);
void arena_give_back(struct arena **arena, void *data); // a mapping goes when its last piece does
