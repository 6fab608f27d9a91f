#include "models/tokenizers/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/tokenizers/pattern.h"
#include "core/utf8.h"

// ---- stages ------------------------------------------------------------------------------------------------------

bool pretokenizer_add(struct pretokenizer *p, struct stage stage, struct error *err)
{
    if (p->n == MAX_STAGES) {
        pattern_free(stage.pattern);
        return fail(err, "more than %d pre-tokenizers in a row", MAX_STAGES);
    }
    p->stage[p->n++] = stage;
    return true;
}

bool pretokenizer_split(struct pretokenizer *p, const char *pattern, size_t n, enum keep keep, struct error *err)
{
    const struct stage stage = { .pattern = pattern_compile(pattern, n, err), .keep = keep };
    return stage.pattern != NULL && pretokenizer_add(p, stage, err);
}

void pretokenizer_letters(struct pretokenizer *p)
{
    p->stage[p->n - 1].letters = p->letters = true;
}

void pretokenizer_free(struct pretokenizer *p)
{
    for (int i = 0; i < p->n; i++)
        pattern_free(p->stage[i].pattern);
}

// ---- splitting ---------------------------------------------------------------------------------------------------

struct splitter {
    const struct pretokenizer *p;
    struct search *search[MAX_STAGES]; // one per stage, since the stages are nested
    void (*piece)(void *to, const char *s, size_t n);
    void *to;
};

struct splitter *splitter_begin(const struct pretokenizer *p, void (*piece)(void *to, const char *s, size_t n),
                                void *to)
{
    struct splitter *c = xcalloc(1, sizeof(*c));
    *c = (struct splitter){ .p = p, .piece = piece, .to = to };
    for (int i = 0; i < p->n; i++)
        if (p->stage[i].pattern != NULL)
            c->search[i] = search_begin(p->stage[i].pattern);
    return c;
}

void splitter_end(struct splitter *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < c->p->n; i++)
        search_end(c->search[i]);
    free(c);
}

static bool stage_from(struct splitter *c, int stage, const char *s, size_t n, bool first, struct error *err);

struct cutting { // the state of one piece in one stage
    struct splitter *c;
    int stage;
    const char *s;
    bool first;         // the piece begins the text
    bool held, match;   // a segment is held until the next one; whether it is a match
    size_t start, stop; // bounds of the held segment
};

static bool pass_on(const struct cutting *k, size_t start, size_t stop, struct error *err)
{
    const bool first = k->first && start == 0;
    if (!k->c->p->stage[k->stage].letters)
        return stage_from(k->c, k->stage + 1, k->s + start, stop - start, first, err);
    struct text letters = { 0 };
    bytes_to_letters(k->s + start, stop - start, &letters);
    const bool ok = stage_from(k->c, k->stage + 1, letters.s, letters.n, first, err);
    free(letters.s);
    return ok;
}

static bool let_go(struct cutting *k, struct error *err)
{
    const bool held = k->held;
    k->held = false;
    return !held || pass_on(k, k->start, k->stop, err);
}

// Passes on the next segment of the piece, a match or a gap between matches.
static bool segment(struct cutting *k, size_t start, size_t stop, bool match, struct error *err)
{
    const enum keep keep = k->c->p->stage[k->stage].keep;
    if (start == stop)
        return true;
    if (keep <= KEEP_GAPS)
        return (match ? keep == KEEP_GAPS : keep == KEEP_MATCHES) || pass_on(k, start, stop, err);
    const bool joins = k->held && (keep == KEEP_RUNS            ? k->match == match
                                   : keep == KEEP_WITH_PREVIOUS ? match && !k->match
                                                                : !match && k->match);
    if (!joins) {
        if (!let_go(k, err))
            return false;
        k->held = true;
        k->start = start;
    }
    k->stop = stop;
    k->match = match;
    return true;
}

// An empty match splits at its position.
static bool split(struct cutting *k, size_t n, struct error *err)
{
    struct search *search = k->c->search[k->stage];
    size_t done = 0;
    enum found found;
    search_text(search, k->s, n);
    for (size_t start, stop; (found = search_next(search, &start, &stop, err)) == FOUND_MATCH; done = stop)
        if (!segment(k, done, start, false, err) || !segment(k, start, stop, true, err))
            return false;
    return found != FOUND_ERROR && segment(k, done, n, false, err) && let_go(k, err);
}

// Appends the piece with a space before it if the stage adds one, and with U+2581 for spaces if the stage replaces
// them.
static bool respace(const struct stage *g, const char *s, size_t n, bool first, struct text *to)
{
    const char *const space = g->metaspace ? METASPACE : " ";
    const size_t length = strlen(space);
    const bool begins = s[0] == ' ' || (n >= length && memcmp(s, space, length) == 0);
    const bool adds = !begins && (g->prefix == PREFIX_ALWAYS || (g->prefix == PREFIX_FIRST && first));
    if (!adds && !g->metaspace)
        return false;
    if (adds)
        text_add(to, space, length);
    for (size_t i = 0; i < n; i++)
        text_add(to, s[i] == ' ' ? space : s + i, s[i] == ' ' ? length : 1);
    return true;
}

static bool stage_from(struct splitter *c, int stage, const char *s, size_t n, bool first, struct error *err)
{
    if (n == 0)
        return true;
    if (stage == c->p->n) {
        c->piece(c->to, s, n);
        return true;
    }
    struct text spaced = { 0 };
    if (respace(&c->p->stage[stage], s, n, first, &spaced)) {
        s = spaced.s;
        n = spaced.n;
    }
    struct cutting k = { .c = c, .stage = stage, .s = s, .first = first };
    bool ok = c->search[stage] != NULL ? split(&k, n, err) : pass_on(&k, 0, n, err);
    free(spaced.s);
    return ok;
}

bool splitter_text(struct splitter *c, const char *s, size_t n, bool first, struct error *err)
{
    return stage_from(c, 0, s, n, first, err);
}
