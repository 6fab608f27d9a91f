#include "core/hash_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

void hash_table_begin(struct hash_table *t, size_t n)
{
    *t = (struct hash_table){ .capacity = 64 };
    while (t->capacity < 2 * n)
        t->capacity *= 2;
    t->place = xmalloc(t->capacity * sizeof(*t->place));
    hash_table_clear(t);
}

void hash_table_clear(struct hash_table *t)
{
    memset(t->place, 0xFF, t->capacity * sizeof(*t->place)); // all -1
}

void hash_table_free(struct hash_table *t)
{
    free(t->place);
    *t = (struct hash_table){ 0 };
}

bool hash_table_enlarge(struct hash_table *t, size_t n)
{
    if (2 * n <= t->capacity)
        return false;
    hash_table_free(t);
    hash_table_begin(t, 2 * n);
    return true;
}

// Returns the place of the key, or the free place where it would be added.
static int32_t *place_of(const struct hash_map *m, struct hash key)
{
    int32_t *at = hash_table_first(&m->table, key.low);
    while (*at >= 0 && !hash_equal(m->key[*at], key))
        at = hash_table_next(&m->table, at);
    return at;
}

int64_t *hash_map_find(const struct hash_map *m, struct hash key)
{
    const int32_t i = m->n > 0 ? *place_of(m, key) : -1;
    return i >= 0 ? &m->value[i] : NULL;
}

int64_t *hash_map_add(struct hash_map *m, struct hash key, int64_t value)
{
    if (hash_table_enlarge(&m->table, m->n + 1))
        for (size_t i = 0; i < m->n; i++)
            *place_of(m, m->key[i]) = (int32_t)i;
    int32_t *at = place_of(m, key);
    if (*at < 0) {
        assert(m->n < INT32_MAX);
        if (m->n == m->capacity) {
            m->capacity = next_capacity(m->capacity, m->n + 1);
            m->key = xrealloc(m->key, m->capacity * sizeof(*m->key));
            m->value = xrealloc(m->value, m->capacity * sizeof(*m->value));
        }
        m->key[m->n] = key;
        m->value[m->n] = value;
        *at = (int32_t)m->n++;
    }
    return &m->value[*at];
}

void hash_map_free(struct hash_map *m)
{
    hash_table_free(&m->table);
    free(m->key);
    free(m->value);
    *m = (struct hash_map){ 0 };
}
