#include "models/tokenizers/vocabulary_map.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/hash_map.h"
#include "core/memory.h"
#include "models/tokenizers/tokenizer.h"

struct by_bytes { // ids by the bytes that they decode to; the lowest of equal ones
    struct hash_map ids;
    size_t longest; // bytes of the longest token that is not special
};

static struct hash key_of(const char *s, size_t n, bool special)
{
    struct hash h = hash_of(s, n);
    h.high ^= special;
    return h;
}

static int32_t find(const struct by_bytes *b, const char *s, size_t n, bool special) // -1: none
{
    const int64_t *id = hash_map_find(&b->ids, key_of(s, n, special));
    return id != NULL ? (int32_t)*id : -1;
}

static struct by_bytes index_tokens(const struct tokenizer *t, int vocab)
{
    const int size = tokenizer_size(t) < vocab ? tokenizer_size(t) : vocab;
    struct by_bytes b = { 0 };
    for (int32_t id = 0; id < size; id++) {
        size_t n;
        const char *s = tokenizer_token(t, id, &n);
        const bool special = tokenizer_is_special(t, id);
        if (s == NULL || n == 0)
            continue;
        hash_map_add(&b.ids, key_of(s, n, special), id);
        b.longest = !special && n > b.longest ? n : b.longest;
    }
    return b;
}

// Adds the longest tokens one after the other. Returns false and sets *byte if a byte has no token.
static bool add_bytes(const struct by_bytes *b, const char *s, size_t n, struct ids *to, unsigned *byte)
{
    for (size_t at = 0; at < n;) {
        size_t length = n - at < b->longest ? n - at : b->longest;
        int32_t id = -1;
        while (length > 0 && (id = find(b, s + at, length, false)) < 0)
            length--;
        if (length == 0) {
            *byte = (unsigned char)s[at];
            return false;
        }
        ids_add(to, id);
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
        const int32_t same = named ? find(&of_draft, s, n, special) : -1;
        m->first[t] = (int32_t)all.n;
        if (same >= 0)
            ids_add(&all, same);
        else if (named)
            ok = add_bytes(&of_draft, s, n, &all, &byte);
        else
            ids_add(&all, 0);                                    // an unused id
        if (same >= 0 && find(&of_target, s, n, special) == t) { // the first of the target's equal tokens
            m->target_id[m->common] = t;
            m->draft_id[m->common++] = same;
        }
        const int length = (int)all.n - m->first[t];
        m->longest = length > m->longest ? length : m->longest;
    }
    m->first[used] = (int32_t)all.n;
    m->id = all.id;
    hash_map_free(&of_draft.ids);
    hash_map_free(&of_target.ids);
    if (ok && m->common > 0)
        return true;
    vocabulary_map_free(m);
    return ok ? fail(err, "the two vocabularies have no token in common")
              : fail(err, "the draft model's vocabulary has no token for the byte 0x%02X", byte);
}

static int by_id(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b; // ids are not negative
}

bool vocabulary_map_shares(const struct vocabulary_map *m, int32_t token)
{
    return m->common > 0 && bsearch(&token, m->target_id, (size_t)m->common, sizeof(token), by_id) != NULL;
}

void vocabulary_map_free(struct vocabulary_map *m)
{
    free(m->target_id);
    free(m->draft_id);
    free(m->first);
    free(m->id);
    *m = (struct vocabulary_map){ 0 };
}
