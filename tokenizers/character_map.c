#include "tokenizers/character_map.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "tokenizers/normal_form.h"

enum { CLUSTER = 5 }; // longest cluster that is looked up as a whole, in bytes

struct character_map {
    uint32_t *unit; // (units) the trie
    size_t units;
    char *target; // (targets) its last byte is 0
    size_t targets;
};

static uint32_t read_u32(const unsigned char *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

struct character_map *character_map_open(const void *data, size_t n, struct error *err)
{
    const unsigned char *b = data;
    const size_t trie = n >= 4 ? read_u32(b) : 0;
    if (n < 4 || trie == 0 || trie % 4 != 0 || trie > n - 4 || n - 4 - trie == 0 || b[n - 1] != 0) {
        fail(err, "the precompiled map of characters is damaged: expected a trie and texts, found %zu bytes", n);
        return NULL;
    }
    const char *targets = (const char *)b + 4 + trie;
    if (!utf8_require(targets, n - 4 - trie, "the precompiled map of characters", err))
        return NULL;
    struct character_map *m = xcalloc(1, sizeof(*m));
    m->units = trie / 4;
    m->unit = xmalloc(trie);
    for (size_t i = 0; i < m->units; i++)
        m->unit[i] = read_u32(b + 4 + 4 * i);
    m->targets = n - 4 - trie;
    m->target = xmalloc(m->targets);
    memcpy(m->target, targets, m->targets);
    return m;
}

void character_map_close(struct character_map *m)
{
    if (m == NULL)
        return;
    free(m->unit);
    free(m->target);
    free(m);
}

// Walks the trie along s (n). Returns the length of the first (or longest) source string that it ends at; 0: none.
static size_t walk(const struct character_map *m, const char *s, size_t n, bool first, const char **to)
{
    size_t at = 0, found = 0;
    uint32_t unit = m->unit[0];
    for (size_t i = 0; i < n; i++) {
        const uint32_t byte = (unsigned char)s[i];
        at ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6) ^ byte;
        if (at >= m->units)
            break;
        unit = m->unit[at];
        if ((unit & (1u << 31 | 0xFF)) != byte)
            break;
        const size_t leaf = at ^ (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if ((unit >> 8 & 1) == 0 || leaf >= m->units)
            continue;
        const size_t target = m->unit[leaf] & 0x7FFFFFFF;
        const bool inside = i + 1 < n && ((unsigned char)s[i + 1] & 0xC0) == 0x80; // a character goes on
        if (inside || target >= m->targets || (target > 0 && m->target[target - 1] != '\0'))
            continue;
        *to = m->target + target;
        found = i + 1;
        if (first)
            break;
    }
    return found;
}

size_t character_map_longest(const struct character_map *m, const char *s, size_t n, const char **to)
{
    return walk(m, s, n, false, to);
}

bool character_map_clusters(const struct character_map *m, const char *s, size_t n, size_t most, struct text *to)
{
    for (size_t at = 0, stop; at < n && to->n <= most; at = stop) {
        const char *target;
        stop = grapheme_cluster(s, n, at);
        if (stop - at <= CLUSTER && walk(m, s + at, stop - at, true, &target) > 0) {
            text_puts(to, target);
            continue;
        }
        for (size_t i = at, length; i < stop && to->n <= most; i += length) {
            length = utf8_character(s + i, stop - i);
            if (walk(m, s + i, length, true, &target) > 0)
                text_puts(to, target);
            else
                text_add(to, s + i, length);
        }
    }
    return to->n <= most;
}
