#include "tokenizers/pretokenize.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tokenizers/pattern.h"
#include "core/utf8.h"

// ---- stages and families -----------------------------------------------------------------------------------------

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3_WITH(NUMBERS) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" NUMBERS \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 LLAMA3_WITH("\\p{N}{1,3}")
#define QWEN2 LLAMA3_WITH("\\p{N}")
// The pre-tokenizer Digits uses Rust's Unicode 17, which has thirteen more numbers than Oniguruma's 16.
#define DIGIT "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]"

static const struct family {
    const char *name;
    bool digits; // single digits are split off first
    const char *pattern;
    bool ignore_merges;
} families[] = {
    { "gpt-2", false, GPT2, false },       { "gpt2", false, GPT2, false },
    { "mpt", false, GPT2, false },         { "olmo", false, GPT2, false },
    { "jais", false, GPT2, false },        { "smollm", true, GPT2, false },
    { "starcoder", true, GPT2, false },    { "refact", true, GPT2, false },
    { "command-r", true, GPT2, false },    { "codeshell", true, GPT2, false },
    { "exaone", true, GPT2, false },       { "llama-bpe", false, LLAMA3, true },
    { "llama3", false, LLAMA3, true },     { "llama-v3", false, LLAMA3, true },
    { "falcon3", false, LLAMA3, true },    { "dbrx", false, LLAMA3, false },
    { "smaug-bpe", false, LLAMA3, false }, { "qwen2", false, QWEN2, false },
    { "stablelm2", false, QWEN2, false },  { "deepseek-r1-qwen", false, QWEN2, false },
    { "megrez", false, QWEN2, false },
};

static bool append(struct pretokenizer *p, struct stage stage, struct error *err)
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
    struct pattern *compiled = pattern_compile(pattern, n, err);
    return compiled != NULL && append(p, (struct stage){ compiled, keep, false }, err);
}

bool pretokenizer_split_literal(struct pretokenizer *p, const char *text, size_t n, enum keep keep, struct error *err)
{
    struct pattern *compiled = pattern_literal(text, n, err);
    return compiled != NULL && append(p, (struct stage){ compiled, keep, false }, err);
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
    return append(p, (struct stage){ compiled, KEEP_ALL, space_first }, err);
}

bool pretokenizer_family(struct pretokenizer *p, const char *name, size_t n, bool *ignore_merges, struct error *err)
{
    struct text known = { 0 };
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        const struct family *f = &families[i];
        if (strlen(f->name) == n && memcmp(f->name, name, n) == 0) {
            free(known.s);
            *ignore_merges = f->ignore_merges;
            return (!f->digits || pretokenizer_digits(p, true, err)) &&
                   pretokenizer_split(p, f->pattern, strlen(f->pattern), KEEP_ALL, err);
        }
        text_printf(&known, "%s%s", i > 0 ? ", " : "", f->name);
    }
    fail(err, "the pre-tokenizer \"%.*s\" is not known (%s)", n < 64 ? (int)n : 64, name, known.s);
    free(known.s);
    return false;
}

const char *pretokenizer_family_of(bool digits, const char *pattern, bool ignore_merges)
{
    const char *wanted = pattern != NULL ? pattern : GPT2;
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
        if (families[i].digits == digits && families[i].ignore_merges == ignore_merges &&
            strcmp(families[i].pattern, wanted) == 0)
            return families[i].name;
    return NULL;
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

static bool stage_from(struct splitter *c, int stage, const char *s, size_t n, struct error *err);

// Passes matches and gaps to the next stage. An empty match splits at its position; one directly after another match is
// ignored, and the search continues after the next character.
static bool split(struct splitter *c, int stage, const char *s, size_t n, struct error *err)
{
    enum keep keep = c->p->stage[stage].keep;
    size_t done = 0, from = 0, last = SIZE_MAX;
    while (from <= n) {
        size_t start, stop;
        enum found found = search_next(c->search[stage], s, n, from, &start, &stop, err);
        if (found == FOUND_ERROR)
            return false;
        if (found == FOUND_NONE)
            break;
        if (start == stop && stop == last) {
            from += from < n ? utf8_character(s + from, n - from) : 1;
            continue;
        }
        if (keep != KEEP_MATCHES && !stage_from(c, stage + 1, s + done, start - done, err))
            return false;
        if (keep != KEEP_GAPS && !stage_from(c, stage + 1, s + start, stop - start, err))
            return false;
        done = from = last = stop;
    }
    return keep == KEEP_MATCHES || stage_from(c, stage + 1, s + done, n - done, err);
}

static bool stage_from(struct splitter *c, int stage, const char *s, size_t n, struct error *err)
{
    if (n == 0)
        return true;
    if (stage == c->p->n) {
        c->piece(c->to, s, n);
        return true;
    }
    struct text spaced = { 0 };
    if (c->p->stage[stage].space_first && s[0] != ' ') {
        text_add(&spaced, " ", 1);
        text_add(&spaced, s, n);
        s = spaced.s;
        n = spaced.n;
    }
    bool ok = c->search[stage] != NULL ? split(c, stage, s, n, err) : stage_from(c, stage + 1, s, n, err);
    free(spaced.s);
    return ok;
}

bool splitter_text(struct splitter *c, const char *s, size_t n, struct error *err)
{
    return stage_from(c, 0, s, n, err);
}
