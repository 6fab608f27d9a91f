#include "models/tokenizers/normalizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "models/tokenizers/added_tokens.h"
#include "models/tokenizers/normal_form.h"
#include "models/tokenizers/pattern.h"
#include "models/tokenizers/vocabulary.h"

// ---- SentencePiece's map of characters

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
    if (!require_utf8(targets, n - 4 - trie, "the precompiled map of characters", err))
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

// Walks the trie along s (n). Returns the length of the first (or longest) source string where it ends; 0: none.
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
        const bool inside = i + 1 < n && ((unsigned char)s[i + 1] & 0xC0) == 0x80; // a character continues
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

// Appends UTF-8 text (n) as Hugging Face's Precompiled maps it: grapheme clusters of up to 5 bytes, otherwise
// characters, each by the shortest source string that it begins with. Returns false once `to` is longer than `most`
// bytes.
static bool clusters(const struct character_map *m, const char *s, size_t n, size_t most, struct text *to)
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

// ---- steps

static void free_step(struct normal_step *s)
{
    pattern_free(s->pattern);
    character_map_close(s->map);
    free(s->with);
}

bool normalizer_add(struct normalizer *z, struct normal_step step, struct error *err)
{
    if (z->n == MAX_NORMAL_STEPS) {
        free_step(&step);
        return fail(err, "more than %d normalizers in a row", MAX_NORMAL_STEPS);
    }
    z->step[z->n++] = step;
    return true;
}

void normalizer_free(struct normalizer *z)
{
    for (int i = 0; i < z->n; i++)
        free_step(&z->step[i]);
    z->n = 0;
}

static bool replace(const struct normal_step *g, const char *s, size_t n, struct text *to, bool *shifted,
                    struct error *err)
{
    struct search *search = search_begin(g->pattern);
    size_t done = 0;
    enum found found = FOUND_NONE;
    search_text(search, s, n);
    for (size_t start, stop; to->n <= NORMAL_MAX; done = stop) {
        found = search_next(search, &start, &stop, err);
        if (found != FOUND_MATCH)
            break;
        *shifted |= start == 0 && stop > 0 && g->n == 0;
        text_add(to, s + done, start - done);
        text_add(to, g->with, g->n);
    }
    text_add(to, s + done, n - done);
    search_end(search);
    return found != FOUND_ERROR;
}

static void strip(const struct normal_step *g, const char *s, size_t n, struct text *to, bool *shifted)
{
    size_t start = 0;
    while (g->left && start < n && utf8_is_space(utf8_code(s + start)))
        start += utf8_character(s + start, n - start);
    *shifted |= start > 0;
    while (g->right && n > start && utf8_is_space(utf8_code(s + utf8_before(s, n))))
        n = utf8_before(s, n);
    text_add(to, s + start, n - start);
}

// ---- SentencePiece (Normalizer::Normalize in its source)

// Appends the next part of the text: a user-defined token, the target of a source string, or a character. Returns its
// length in the text.
static size_t next_part(const struct normal_step *g, const struct added *keep, const char *s, size_t n,
                        const char **part, size_t *part_n)
{
    const struct added_token *kept = keep != NULL ? added_longest(keep, s, n) : NULL;
    const size_t length = kept != NULL ? kept->n : utf8_character(s, n);
    const size_t source = kept == NULL && g->map != NULL ? character_map_longest(g->map, s, n, part) : 0;
    *part = source > 0 ? *part : s;
    *part_n = source > 0 ? strlen(*part) : length;
    return source > 0 ? source : length;
}

static void pieces(const struct normal_step *g, const char *s, size_t n, const struct added *keep, struct text *to)
{
    static const size_t space = sizeof(METASPACE) - 1;
    const char *part;
    size_t at = 0, part_n, length;
    while (g->collapse && at < n && (length = next_part(g, keep, s + at, n - at, &part, &part_n)) > 0 && part_n == 1 &&
           part[0] == ' ')
        at += length;
    if (at == n)
        return;
    if (g->prefix)
        text_puts(to, METASPACE);
    for (bool after_space = g->collapse; at < n && to->n <= NORMAL_MAX; at += length) {
        length = next_part(g, keep, s + at, n - at, &part, &part_n);
        size_t from = 0;
        while (after_space && from < part_n && part[from] == ' ')
            from++;
        for (size_t i = from; i < part_n; i++)
            text_add(to, part[i] == ' ' ? METASPACE : part + i, part[i] == ' ' ? space : 1);
        if (from < part_n)
            after_space = g->collapse && part[part_n - 1] == ' ';
    }
    while (g->collapse && to->n >= space && memcmp(to->s + to->n - space, METASPACE, space) == 0)
        to->n -= space;
}

// ---- all steps

static bool too_long(struct error *err)
{
    return fail(err, "a normalizer makes a text of more than %d bytes", (int)NORMAL_MAX);
}

static bool run_step(const struct normal_step *g, const char *s, size_t n, const struct added *keep, struct text *to,
                     bool *shifted, struct error *err)
{
    switch (g->kind) {
    case NORMAL_FORM:
        normal_form_add(to, s, n, g->form);
        return true;
    case NORMAL_REPLACE:
        return replace(g, s, n, to, shifted, err);
    case NORMAL_STRIP:
        strip(g, s, n, to, shifted);
        return true;
    case NORMAL_CLUSTERS:
        return clusters(g->map, s, n, NORMAL_MAX, to) || too_long(err);
    case NORMAL_PIECES:
        pieces(g, s, n, keep, to);
        return true;
    case NORMAL_PREPEND:
        if (n > 0)
            text_add(to, g->with, g->n);
        text_add(to, s, n);
        return true;
    }
    return false;
}

bool normalizer_run(const struct normalizer *z, const char *s, size_t n, const struct added *keep, struct text *to,
                    bool *shifted, struct error *err)
{
    bool ignored;
    shifted = shifted != NULL ? shifted : &ignored;
    *shifted = false;
    struct text part[2] = { { 0 }, { 0 } };
    bool ok = true;
    for (int i = 0; i < z->n && ok; i++) {
        struct text *next = &part[i % 2];
        next->n = 0;
        text_puts(next, ""); // allocated even if it remains empty
        ok = run_step(&z->step[i], s, n, keep, next, shifted, err) && (next->n <= NORMAL_MAX || too_long(err));
        s = next->s;
        n = next->n;
    }
    if (ok)
        text_add(to, s, n);
    free(part[0].s);
    free(part[1].s);
    return ok;
}
