#include "tokenizers/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/character_map.h"
#include "tokenizers/nfc.h"
#include "tokenizers/pattern.h"
#include "tokenizers/vocabulary.h"

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

static bool replace(const struct normal_step *g, const char *s, size_t n, struct text *to, struct error *err)
{
    struct search *search = search_begin(g->pattern);
    size_t done = 0, from = 0;
    enum found found = FOUND_NONE;
    for (size_t start, stop; from <= n;
         from = stop > start ? stop : stop + (stop < n ? utf8_character(s + stop, n - stop) : 1)) {
        found = search_next(search, s, n, from, &start, &stop, err);
        if (found != FOUND_MATCH)
            break;
        text_add(to, s + done, start - done);
        text_add(to, g->with, g->n);
        done = stop;
    }
    text_add(to, s + done, n - done);
    search_end(search);
    return found != FOUND_ERROR;
}

static void strip(const struct normal_step *g, const char *s, size_t n, struct text *to)
{
    size_t start = 0;
    while (g->left && start < n && utf8_is_space(utf8_code(s + start)))
        start += utf8_character(s + start, n - start);
    while (g->right && n > start && utf8_is_space(utf8_code(s + utf8_before(s, n))))
        n = utf8_before(s, n);
    text_add(to, s + start, n - start);
}

// ---- SentencePiece (Normalizer::Normalize in its source)

struct pieces {
    const struct normal_step *g;
    struct text *to;
    size_t begin; // where this text begins in `to`
    bool space;   // the last character written is a space, or none is
};

static void put_piece(struct pieces *p, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ') {
            text_add(p->to, s + i, 1);
            p->space = false;
        } else if (!p->space || !p->g->collapse) {
            text_puts(p->to, METASPACE);
            p->space = true;
        }
    }
}

static void pieces(const struct normal_step *g, const char *s, size_t n, const struct added *keep, struct text *to)
{
    static const size_t space = sizeof(METASPACE) - 1;
    struct pieces p = { g, to, to->n, true };
    bool begun = false;
    for (size_t i = 0, length; i < n; i += length) {
        const struct added_token *kept = keep != NULL ? added_longest(keep, s + i, n - i) : NULL;
        const char *target = s + i;
        size_t target_n = length = kept != NULL ? kept->n : utf8_character(s + i, n - i);
        if (kept == NULL && g->map != NULL) {
            const char *mapped;
            const size_t source = character_map_longest(g->map, s + i, n - i, &mapped);
            if (source > 0) {
                target = mapped;
                target_n = strlen(mapped);
                length = source;
            }
        }
        if (!begun) { // leading spaces go before the prefix is written
            size_t from = 0;
            while (g->collapse && from < target_n && target[from] == ' ')
                from++;
            if (from == target_n)
                continue;
            target += from;
            target_n -= from;
            begun = true;
            if (g->prefix)
                text_puts(to, METASPACE);
            p.space = g->prefix;
        }
        put_piece(&p, target, target_n);
    }
    while (g->collapse && to->n >= p.begin + space && memcmp(to->s + to->n - space, METASPACE, space) == 0)
        to->n -= space;
}

// ---- all steps

static bool run_step(const struct normal_step *g, const char *s, size_t n, const struct added *keep, struct text *to,
                     struct error *err)
{
    switch (g->kind) {
    case NORMAL_NFC:
        nfc_add(to, s, n);
        return true;
    case NORMAL_NFD:
        utf8_normalize(to, s, n, UTF8_NFD);
        return true;
    case NORMAL_NFKC:
        utf8_normalize(to, s, n, UTF8_NFKC);
        return true;
    case NORMAL_NFKD:
        utf8_normalize(to, s, n, UTF8_NFKD);
        return true;
    case NORMAL_REPLACE:
        return replace(g, s, n, to, err);
    case NORMAL_STRIP:
        strip(g, s, n, to);
        return true;
    case NORMAL_CLUSTERS:
        character_map_clusters(g->map, s, n, to);
        return true;
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
                    struct error *err)
{
    struct text part[2] = { { 0 }, { 0 } };
    bool ok = true;
    for (int i = 0; i < z->n && ok; i++) {
        struct text *next = &part[i % 2];
        next->n = 0;
        text_puts(next, ""); // allocated also if it stays empty
        ok = run_step(&z->step[i], s, n, keep, next, err);
        s = next->s;
        n = next->n;
    }
    if (ok)
        text_add(to, s, n);
    free(part[0].s);
    free(part[1].s);
    return ok;
}
