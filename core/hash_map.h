// hash_map.h - hash tables with open addressing, to which elements are only added: one of indices, for keys of any kind
// (struct hash_table), and on it a map from hashes of 128 bits to integers (struct hash_map).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"

// Finds which element of an array of the caller's has a key. The table knows indices only: the caller hashes a key and
// compares it with the elements whose indices it is given, until one has the key or a place is free:
//
//     int32_t *at = hash_table_first(&t, hash);
//     while (*at >= 0 && !has_key(&element[*at], key))
//         at = hash_table_next(&t, at);
struct hash_table {
    int32_t *place;  // (capacity) indices; -1: free
    size_t capacity; // a power of two
};

void hash_table_begin(struct hash_table *t, size_t n); // n: elements that it has room for
void hash_table_clear(struct hash_table *t);
void hash_table_free(struct hash_table *t);
// Doubles and clears the table if n elements would fill more than half of it. Returns whether it did: the caller puts
// all elements into it again.
bool hash_table_enlarge(struct hash_table *t, size_t n);

// The low bits of a hash choose the place.
static inline int32_t *hash_table_first(const struct hash_table *t, uint64_t hash)
{
    return &t->place[hash & (t->capacity - 1)];
}

static inline int32_t *hash_table_next(const struct hash_table *t, int32_t *at)
{
    return ++at < t->place + t->capacity ? at : t->place;
}

static inline uint64_t hash_of_pair(int32_t a, int32_t b) // Fibonacci hashing
{
    return (((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9E3779B97F4A7C15u) >> 32;
}

struct hash_map { // start with { 0 }
    struct hash_table table;
    size_t n, capacity;
    struct hash *key; // (n)
    int64_t *value;   // (n)
};
// Returns the value of a key, borrowed until the next hash_map_add; NULL: none.
int64_t *hash_map_find(const struct hash_map *m, struct hash key);
// Returns the value of a key. A missing key is added with `value`.
int64_t *hash_map_add(struct hash_map *m, struct hash key, int64_t value);
void hash_map_free(struct hash_map *m);
