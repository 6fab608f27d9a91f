#include "tokenizers/vocabulary_map.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tokenizers/tokenizer.h"

struct by_bytes { // ids by the bytes that they decode to; of equal ones the lowest
    const struct tokenizer *t;
    int32_t *slot; // (capacity) -1: free
    size_t capacity, longest;
};

static size_t hash(const char *s, size_t n, bool special)
{
    uint64_t h = special ? 0x9E3779B97F4A7C15u : 0xCBF29CE484222325u; // FNV-1a
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    return (size_t)(h ^ h >> 29);
}

static int32_t *slot_of(const struct by_bytes *b, const char *s, size_t n, bool special)
{
    for (size_t i = hash(s, n, special) & (b->capacity - 1);; i = (i + 1) & (b->capacity - 1)) {
        const int32_t id = b->slot[i];
        size_t have;
        if (id < 0)
            return &b->slot[i];
        const char *bytes = tokenizer_token(b->t, id, &have);
        if (have == n && memcmp(bytes, s, n) == 0 && tokenizer_is_special(b->t, id) == special)
            return &b->slot[i];
    }
}

static struct by_bytes index_tokens(const struct tokenizer *t, int vocab)
{
    const int size = tokenizer_size(t) < vocab ? tokenizer_size(t) : vocab;
    struct by_bytes b = { .t = t, .capacity = 64 };
    while (b.capacity < 2 * (size_t)size)
        b.capacity *= 2;
    b.slot = xmalloc(b.capacity * sizeof(*b.slot));
    memset(b.slot, 0xFF, b.capacity * sizeof(*b.slot)); // all -1
    for (int32_t id = 0; id < size; id++) {
        size_t n;
        const char *s = tokenizer_token(t, id, &n);
        int32_t *slot = s != NULL && n > 0 ? slot_of(&b, s, n, tokenizer_is_special(t, id)) : NULL;
        if (slot == NULL || *slot >= 0)
            continue;
        *slot = id;
        b.longest = !tokenizer_is_special(t, id) && n > b.longest ? n : b.longest;
    }
    return b;
}

// Adds the longest tokens one after the other. Returns false and sets *byte if one has no token.
static bool add_bytes(const struct by_bytes *b, const char *s, size_t n, struct ids *to, unsigned *byte)
{
    for (size_t at = 0; at < n;) {
        size_t length = n - at < b->longest ? n - at : b->longest;
        while (length > 0 && *slot_of(b, s + at, length, false) < 0)
            length--;
        if (length == 0) {
            *byte = (unsigned char)s[at];
            return false;
        }
        ids_add(to, *slot_of(b, s + at, length, false));
        at += length;
    }
    return true;
}

bool vocabulary_map_create(struct vocabulary_map *m, const struct tokenizer *target, int used,
                           const struct tokenizer *draft, int draft_vocab, struct error *err)
{
    struct by_bytes of_draft = index_tokens(draft, draft_vocab), of_target = index_tokens(target, used);
    struct ids all = { 0 };
    unsigned byte = 0;
    bool ok = true;
    *m = (struct vocabulary_map){ .tokens = used,
                                  .target_id = xcalloc((size_t)used + 1, sizeof(int32_t)),
                                  .draft_id = xcalloc((size_t)used + 1, sizeof(int32_t)),
                                  .first = xcalloc((size_t)used + 1, sizeof(int32_t)) };
    for (int32_t t = 0; t < used && ok; t++) {
        size_t n;
        const char *s = tokenizer_token(target, t, &n);
        const bool special = tokenizer_is_special(target, t), named = s != NULL && n > 0;
        const int32_t same = named ? *slot_of(&of_draft, s, n, special) : -1;
        m->first[t] = (int32_t)all.n;
        if (same >= 0)
            ids_add(&all, same);
        else if (named)
            ok = add_bytes(&of_draft, s, n, &all, &byte);
        else
            ids_add(&all, 0);                                        // an unused id
        if (same >= 0 && *slot_of(&of_target, s, n, special) == t) { // of equal tokens of the target the first
            m->target_id[m->common] = t;
            m->draft_id[m->common++] = same;
        }
        const int length = (int)all.n - m->first[t];
        m->longest = length > m->longest ? length : m->longest;
    }
    m->first[used] = (int32_t)all.n;
    m->id = all.id;
    free(of_draft.slot);
    free(of_target.slot);
    if (ok && m->common > 0)
        return true;
    vocabulary_map_free(m);
    return ok ? fail(err, "the two vocabularies have no token in common")
              : fail(err, "the draft model's vocabulary has no token for the byte 0x%02X", byte);
}

bool vocabulary_map_shares(const struct vocabulary_map *m, int32_t token)
{
    int low = 0, high = m->common;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (m->target_id[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->common && m->target_id[low] == token;
}

void vocabulary_map_free(struct vocabulary_map *m)
{
    free(m->target_id);
    free(m->draft_id);
    free(m->first);
    free(m->id);
    *m = (struct vocabulary_map){ 0 };
}
