// arena.h - memory for packed weights: a few large mappings, on huge pages where the system allows them. A pass reads
// all of this memory; with pages of 4 KiB it would miss the TLB on every page.
#pragma once
#include <stddef.h>

struct arena;

// Returns `bytes` zeroed bytes, aligned to 64; NULL if memory is exhausted. *arena is initialised to NULL.
void *arena_alloc(struct arena **arena, size_t bytes);
void arena_free(struct arena **arena, void *data); // unmaps a mapping when its last piece is freed
