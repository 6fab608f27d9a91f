// hash_map.h - a map from hashes to integers, with open addressing.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"

struct hash_map { // start with { 0 }
    size_t n, capacity;
    struct hash *key; // (capacity) { 0 }: free
    int64_t *value;
};
// Returns the value of a key, borrowed until the next hash_map_add; NULL: none.
int64_t *hash_map_find(const struct hash_map *m, struct hash key);
// Returns the value of a key. A missing key is added with `value`.
int64_t *hash_map_add(struct hash_map *m, struct hash key, int64_t value);
void hash_map_free(struct hash_map *m);
