// hash_map.h - integers by hash: open addressing.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"

struct hash_map { // start with { 0 }
    size_t n, capacity;
    struct hash *key; // (capacity) { 0 }: free
    int64_t *value;
};
// The value of a key, borrowed until the next hash_map_add; NULL: none.
int64_t *hash_map_find(const struct hash_map *m, struct hash key);
// The value of a key, which is added with `value` if it is missing.
int64_t *hash_map_add(struct hash_map *m, struct hash key, int64_t value);
void hash_map_free(struct hash_map *m);
