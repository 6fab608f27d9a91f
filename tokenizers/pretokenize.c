#include "tokenizers/pretokenize.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tokenizers/byte_alphabet.h"
#include "tokenizers/pattern.h"
#include "core/utf8.h"

// The pre-tokenizers Digits and Punctuation use Rust's Unicode 17, which has thirteen more numbers than Oniguruma's 16.
#define DIGIT "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]"
// Punctuation uses an older Unicode: these are not punctuation there. Found by comparing both on every code point.
#define NOT_YET_PUNCTUATION \
    "\\x{61d}\\x{9fd}\\x{a76}\\x{c77}\\x{c84}\\x{1b4e}-\\x{1b4f}\\x{1b7d}-\\x{1b7f}\\x{2e43}-\\x{2e4f}" \
    "\\x{2e52}-\\x{2e5d}\\x{10d6e}\\x{10ead}\\x{10f55}-\\x{10f59}\\x{10f86}-\\x{10f89}\\x{113d4}-\\x{113d5}" \
    "\\x{113d7}-\\x{113d8}\\x{1144b}-\\x{1144f}\\x{1145a}-\\x{1145b}\\x{1145d}\\x{11660}-\\x{1166c}\\x{116b9}\\x{1183b}" \
    "\\x{11944}-\\x{11946}\\x{119e2}\\x{11a3f}-\\x{11a46}\\x{11a9a}-\\x{11a9c}\\x{11a9e}-\\x{11aa2}\\x{11b00}-\\x{11b09}" \
    "\\x{11be1}\\x{11c41}-\\x{11c45}\\x{11c70}-\\x{11c71}\\x{11ef7}-\\x{11ef8}\\x{11f43}-\\x{11f4f}\\x{11fff}" \
    "\\x{12ff1}-\\x{12ff2}\\x{16d6d}-\\x{16d6f}\\x{16e97}-\\x{16e9a}\\x{16fe2}\\x{1e5ff}\\x{1e95e}-\\x{1e95f}"
#define PUNCTUATION \
    "(?![" NOT_YET_PUNCTUATION "])[\\p{P}\\x{166d}\\x{111c9}$+<=>^`|~]" // Unicode's, two former ones, and ASCII's

// ---- stages ------------------------------------------------------------------------------------------------------

static bool append(struct pretokenizer *p, struct stage stage, struct error *err)
{
    if (p->n == MAX_STAGES) {
        pattern_free(stage.pattern);
        return fail(err, "more than %d pre-tokenizers in a row", MAX_STAGES);
    }
    p->stage[p->n++] = stage;
    return true;
}

bool pretokenizer_pattern(struct pretokenizer *p, struct pattern *pattern, enum keep keep, struct error *err)
{
    return append(p, (struct stage){ .pattern = pattern, .keep = keep }, err);
}

bool pretokenizer_split(struct pretokenizer *p, const char *pattern, size_t n, enum keep keep, struct error *err)
{
    struct pattern *compiled = pattern_compile(pattern, n, err);
    return compiled != NULL && append(p, (struct stage){ .pattern = compiled, .keep = keep }, err);
}

bool pretokenizer_digits(struct pretokenizer *p, bool individually, struct error *err)
{
    const char *pattern = individually ? DIGIT : DIGIT "+";
    return pretokenizer_split(p, pattern, strlen(pattern), KEEP_ALL, err);
}

bool pretokenizer_byte_level(struct pretokenizer *p, bool space_first, bool gpt2, struct error *err)
{
    struct pattern *compiled = NULL;
    if (gpt2 && (compiled = pattern_compile(GPT2, strlen(GPT2), err)) == NULL)
        return false;
    return append(p, (struct stage){ .pattern = compiled, .prefix = space_first ? PREFIX_ALWAYS : PREFIX_NEVER }, err);
}

bool pretokenizer_punctuation(struct pretokenizer *p, enum keep keep, struct error *err)
{
    return pretokenizer_split(p, PUNCTUATION, strlen(PUNCTUATION), keep, err);
}

void pretokenizer_letters(struct pretokenizer *p)
{
    p->stage[p->n - 1].letters = p->letters = true;
}

bool pretokenizer_metaspace(struct pretokenizer *p, enum prefix prefix, bool split, struct error *err)
{
    struct pattern *compiled = NULL;
    if (split && (compiled = pattern_literal(METASPACE, strlen(METASPACE), err)) == NULL)
        return false;
    const struct stage stage = { .pattern = compiled, .keep = KEEP_WITH_NEXT, .prefix = prefix, .metaspace = true };
    return append(p, stage, err);
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

struct cutting { // of one piece by one stage
    struct splitter *c;
    int stage;
    const char *s;
    bool first;         // the piece begins the text
    bool held, match;   // a segment that waits for the next one, and whether it is a match
    size_t start, stop; // of it
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

// The next segment of the piece, a match or a gap between matches.
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
    struct matches matches = { .search = k->c->search[k->stage], .s = k->s, .n = n };
    size_t done = 0;
    enum found found;
    for (size_t start, stop; (found = matches_next(&matches, &start, &stop, err)) == FOUND_MATCH; done = stop)
        if (!segment(k, done, start, false, err) || !segment(k, start, stop, true, err))
            return false;
    return found != FOUND_ERROR && segment(k, done, n, false, err) && let_go(k, err);
}

// The piece with a space in front if the stage adds one, and with U+2581 for spaces if it says so.
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
