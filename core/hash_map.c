#include "core/hash_map.h"

#include <stdlib.h>

#include "core/memory.h"

// Returns the index of the key, or of the free entry where it would be added.
static size_t place(const struct hash_map *m, struct hash key)
{
    size_t i = key.low & (m->capacity - 1);
    while (!hash_is_none(m->key[i]) && !hash_equal(m->key[i], key))
        i = (i + 1) & (m->capacity - 1);
    return i;
}

static void enlarge(struct hash_map *m)
{
    struct hash_map old = *m;
    m->capacity = old.capacity > 0 ? 2 * old.capacity : 1024;
    m->key = xcalloc(m->capacity, sizeof(*m->key));
    m->value = xcalloc(m->capacity, sizeof(*m->value));
    for (size_t i = 0; i < old.capacity; i++) {
        if (hash_is_none(old.key[i]))
            continue;
        const size_t to = place(m, old.key[i]);
        m->key[to] = old.key[i];
        m->value[to] = old.value[i];
    }
    hash_map_free(&old);
}

int64_t *hash_map_find(const struct hash_map *m, struct hash key)
{
    if (m->n == 0)
        return NULL;
    const size_t i = place(m, key);
    return hash_is_none(m->key[i]) ? NULL : &m->value[i];
}

int64_t *hash_map_add(struct hash_map *m, struct hash key, int64_t value)
{
    if (2 * (m->n + 1) > m->capacity)
        enlarge(m);
    const size_t i = place(m, key);
    if (hash_is_none(m->key[i])) {
        m->key[i] = key;
        m->value[i] = value;
        m->n++;
    }
    return &m->value[i];
}

void hash_map_free(struct hash_map *m)
{
    free(m->key);
    free(m->value);
    *m = (struct hash_map){ 0 };
}
