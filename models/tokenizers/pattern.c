#include "models/tokenizers/pattern.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

// White_Space of Unicode. PCRE2's own \s also matches U+180E, which is no longer a space since Unicode 6.3.
static const char *const spaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

// Letters, marks, numbers, punctuation and symbols added in Unicode 15 and 16, by general category: code points that
// Oniguruma, as built into tokenizers 0.23, puts into a category and PCRE2 10.42 (Unicode 14) does not; found by
// comparing both on every code point. With a newer PCRE2 they have no effect.
// clang-format off
static const struct {
    const char *category, *members;
} additions[] = {
    { "Mn", "\\x{897}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113bb}-\\x{113c0}\\x{113ce}"
      "\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f36}-\\x{11f3a}\\x{11f40}\\x{11f42}"
      "\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{16129}\\x{1612d}-\\x{1612f}\\x{1e08f}"
      "\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}" },
    { "Mc", "\\x{cf3}\\x{113b8}-\\x{113ba}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{113cf}"
      "\\x{11f03}\\x{11f34}-\\x{11f35}\\x{11f3e}-\\x{11f3f}\\x{11f41}\\x{1612a}-\\x{1612c}" },
    { "Po", "\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}\\x{11be1}"
      "\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}" },
    { "Lu", "\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}" },
    { "Ll", "\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}" },
    { "So", "\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}-\\x{1ccef}"
      "\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}"
      "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"
      "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}"
      "\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}" },
    { "Lo", "\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}"
      "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}"
      "\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}"
      "\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d43}-\\x{16d6a}\\x{18cff}\\x{1b132}\\x{1b155}"
      "\\x{1e4d0}-\\x{1e4ea}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}" },
    { "Nd", "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"
      "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}"
      "\\x{1e5f1}-\\x{1e5fa}" },
    { "Lm", "\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}\\x{1e030}-\\x{1e06d}\\x{1e4eb}" },
    { "Pd", "\\x{10d6e}" },
    { "Sm", "\\x{10d8e}-\\x{10d8f}" },
    { "No", "\\x{1d2c0}-\\x{1d2d3}" },
};
// clang-format on

// ---- rewriting --------------------------------------------------------------------------------------------------

struct rewriting {
    const char *s;
    size_t n, at;
    bool in_class;
    struct text out;
    struct error *err;
};

static bool refuse(struct rewriting *r, size_t at, const char *what)
{
    return fail(r->err, "%s at offset %zu is not supported in a pattern", what, at);
}

static bool next_is(const struct rewriting *r, const char *s)
{
    size_t n = strlen(s);
    return r->n - r->at >= n && memcmp(r->s + r->at, s, n) == 0;
}

// Writes a shorthand of the pattern (\s, \p{L}) as a class with these members.
static bool put_set(struct rewriting *r, const char *members, bool negated, size_t at)
{
    if (r->in_class) {
        if (negated)
            return refuse(r, at, "a negated shorthand inside [...]");
        text_puts(&r->out, members);
        if (next_is(r, "-") && !(r->at + 1 < r->n && r->s[r->at + 1] == ']')) {
            text_puts(&r->out, "\\-"); // a literal '-', not a range from the set's last member
            r->at++;
        }
    } else {
        text_printf(&r->out, negated ? "[^%s]" : "[%s]", members);
    }
    return true;
}

// Writes \p{L}: PCRE2's characters of the category and those that its Unicode version may lack.
static bool put_category(struct rewriting *r, const char *name, bool negated, size_t at)
{
    static const char *const known =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp ";
    char word[5];
    snprintf(word, sizeof(word), " %.2s ", name);
    if (strlen(name) > 2 || strstr(known, word) == NULL)
        return fail(r->err, "the property \\p{%s} at offset %zu is not supported in a pattern", name, at);
    struct text members = { 0 };
    text_printf(&members, "\\p{%s}", name);
    for (size_t i = 0; i < sizeof(additions) / sizeof(*additions); i++)
        if (strncmp(additions[i].category, name, strlen(name)) == 0)
            text_puts(&members, additions[i].members);
    bool ok = put_set(r, members.s, negated, at);
    free(members.s);
    return ok;
}

static bool property(struct rewriting *r, bool negated, size_t at)
{
    const char *from = r->s + r->at, *close = memchr(from, '}', r->n - r->at);
    if (r->at == r->n || *from != '{' || close == NULL || close - from > 24)
        return refuse(r, at, "a property not written \\p{...}");
    r->at += (size_t)(close - from) + 1;
    from++;
    if (*from == '^') {
        negated = !negated;
        from++;
    }
    char name[32];
    snprintf(name, sizeof(name), "%.*s", (int)(close - from), from);
    return put_category(r, name, negated, at);
}

// Rewrites \x41, \x{3042} and \u0041 as \x{...}.
static bool code_point(struct rewriting *r, char kind, size_t at)
{
    bool braces = kind == 'x' && next_is(r, "{");
    size_t max_digits = kind == 'u' ? 4 : braces ? 8 : 2, n = 0;
    if (braces)
        r->at++;
    const char *hex = r->s + r->at;
    while (r->at < r->n && n < max_digits && isxdigit((unsigned char)r->s[r->at]))
        n++, r->at++;
    if (n == 0 || (kind == 'u' && n != 4) || (braces && !next_is(r, "}")))
        return refuse(r, at, "a code point not written \\xHH, \\x{H...} or \\uHHHH");
    if (braces)
        r->at++;
    text_printf(&r->out, "\\x{%.*s}", (int)n, hex);
    return true;
}

static bool escape(struct rewriting *r)
{
    size_t at = r->at++;
    if (r->at == r->n)
        return refuse(r, at, "a \\ at the end");
    char c = r->s[r->at++];
    switch (c) {
    case 's':
    case 'S':
        return put_set(r, spaces, c == 'S', at);
    case 'd':
    case 'D':
        return put_category(r, "Nd", c == 'D', at);
    case 'p':
    case 'P':
        return property(r, c == 'P', at);
    case 'x':
    case 'u':
        return code_point(r, c, at);
    case 'r':
    case 'n':
    case 't':
    case 'f':
        break;
    default: // escaped letters and digits have different meanings in Oniguruma and PCRE2
        if (isdigit((unsigned char)c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
            char what[16];
            snprintf(what, sizeof(what), "\\%c", c);
            return refuse(r, at, what);
        }
    }
    text_add(&r->out, r->s + at, 2);
    return true;
}

// Rewrites (?: (?= (?! (?<= (?<! (?> (?i: (?-i: and plain groups; Ruby's (?m) is Perl's (?s), and so on.
static bool group(struct rewriting *r)
{
    static const char *const kinds[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:" };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (next_is(r, kinds[i])) {
            text_puts(&r->out, kinds[i]);
            r->at += strlen(kinds[i]);
            return true;
        }
    if (next_is(r, "(?") || next_is(r, "(*"))
        return refuse(r, r->at, "this kind of group");
    text_add(&r->out, "(", 1);
    r->at++;
    return true;
}

// Copies {2}, {2,} and {2,5} unless a quantifier follows that the two interpret differently.
static bool interval(struct rewriting *r)
{
    size_t from = r->at++, digits = r->at;
    while (r->at < r->n && isdigit((unsigned char)r->s[r->at]))
        r->at++;
    bool exact = true, empty = r->at == digits;
    if (next_is(r, ",")) {
        exact = false;
        r->at++;
        while (r->at < r->n && isdigit((unsigned char)r->s[r->at]))
            r->at++;
    }
    if (empty || !next_is(r, "}"))
        return refuse(r, from, "a brace that is not {n}, {n,} or {n,m}");
    r->at++;
    if (next_is(r, "+") || (exact && next_is(r, "?")))
        return refuse(r, r->at, "a quantifier after {...}");
    text_add(&r->out, r->s + from, r->at - from);
    return true;
}

static bool inside_class(struct rewriting *r)
{
    if (r->s[r->at] == '[' || next_is(r, "&&"))
        return refuse(r, r->at, "a class within a class");
    if (r->s[r->at] == ']')
        r->in_class = false;
    text_add(&r->out, r->s + r->at++, 1);
    return true;
}

static bool outside_class(struct rewriting *r)
{
    switch (r->s[r->at]) {
    case '(':
        return group(r);
    case '{':
        return interval(r);
    case '[':
        r->in_class = true;
        text_add(&r->out, r->s + r->at++, 1);
        if (next_is(r, "^"))
            text_add(&r->out, r->s + r->at++, 1);
        return next_is(r, "]") ? refuse(r, r->at, "an empty class") : true;
    default:
        text_add(&r->out, r->s + r->at++, 1);
        return true;
    }
}

static bool rewrite(struct rewriting *r)
{
    while (r->at < r->n) {
        bool ok = r->s[r->at] == '\\' ? escape(r) : r->in_class ? inside_class(r) : outside_class(r);
        if (!ok)
            return false;
    }
    return true;
}

// ---- running ----------------------------------------------------------------------------------------------------

struct pattern {
    pcre2_code *code;
    char *shown; // the beginning of the pattern, for messages
};

struct search {
    const struct pattern *pattern;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    int64_t left;     // number of steps beyond LIGHT that it may still take
    const char *text; // (n) borrowed
    size_t n, from, last;
    bool any; // a match was found, which ended at `last`
};

// A pattern of nested counts may take 20^6 steps at each character, so time is bounded: by the length of a text times a
// constant. The patterns of models take one or two steps for each character of a match. Up to LIGHT steps at one
// position are free. A match that needs more takes them from a store that grows with the texts.
enum { LIGHT = 4096, STEPS_AT_FIRST = 100 * 1000, STEPS_PER_BYTE = 1000, HEAP_KIB = 512 * 1024 };
enum { MAX_PATTERN = 64 << 10, MAX_REWRITTEN = 4 << 20, SHOWN = 80 };

// source: the pattern as the tokenizer has it. options: PCRE2's, in addition to UTF.
static struct pattern *compile(const char *text, size_t n, uint32_t options, const char *source, size_t source_n,
                               struct error *err)
{
    int number;
    size_t offset;
    pcre2_compile_context *reading = pcre2_compile_context_create(NULL);
    if (reading == NULL)
        memory_out(0);
    pcre2_set_newline(reading, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(reading, MAX_REWRITTEN);
    options |= PCRE2_UTF;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, n, options, &number, &offset, reading);
    pcre2_compile_context_free(reading);
    if (code == NULL && number == PCRE2_ERROR_HEAP_FAILED)
        memory_out(0);
    if (code == NULL) {
        char why[128] = "";
        pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof(why));
        size_t shown = offset < n ? n - offset < 24 ? n - offset : 24 : 0;
        fail(err, "a pattern does not compile: %s, before \"%.*s\"", why, (int)shown, text + (shown > 0 ? offset : 0));
        return NULL;
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // a failure only makes matching slower
    struct pattern *p = xcalloc(1, sizeof(*p));
    p->code = code;
    p->shown = xstrndup(source, utf8_cut(source, source_n, SHOWN));
    return p;
}

static bool is_text(const char *text, size_t n, struct error *err)
{
    if (n > MAX_PATTERN)
        return fail(err, "expected a pattern of at most %d bytes, found %zu", MAX_PATTERN, n);
    return utf8_valid(text, n) == n || fail(err, "a pattern is not UTF-8");
}

struct pattern *pattern_compile(const char *text, size_t n, struct error *err)
{
    // and $ match at lines in Oniguruma's Ruby syntax.
    static const uint32_t options = PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    struct rewriting r = { .s = text, .n = n, .err = err };
    const bool ok = is_text(text, n, err) && rewrite(&r);
    struct pattern *p = ok ? compile(r.out.s != NULL ? r.out.s : "", r.out.n, options, text, n, err) : NULL;
    free(r.out.s);
    return p;
}

struct pattern *pattern_literal(const char *text, size_t n, struct error *err)
{
    return is_text(text, n, err) ? compile(text, n, PCRE2_LITERAL, text, n, err) : NULL;
}

void pattern_free(struct pattern *p)
{
    if (p == NULL)
        return;
    pcre2_code_free(p->code);
    free(p->shown);
    free(p);
}

struct search *search_begin(const struct pattern *p)
{
    struct search *s = xcalloc(1, sizeof(*s));
    s->pattern = p;
    s->match = pcre2_match_data_create(1, NULL); // the whole match is needed, but no groups
    s->limits = pcre2_match_context_create(NULL);
    if (s->match == NULL || s->limits == NULL)
        memory_out(0);
    pcre2_set_heap_limit(s->limits, HEAP_KIB);
    s->left = STEPS_AT_FIRST;
    return s;
}

void search_end(struct search *s)
{
    if (s == NULL)
        return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->limits);
    free(s);
}

static int match_within(const struct search *s, const char *text, size_t n, size_t from, uint32_t options,
                        int64_t steps)
{
    pcre2_set_match_limit(s->limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    return pcre2_match(s->pattern->code, (PCRE2_SPTR)text, n, from, options | PCRE2_NO_UTF_CHECK, s->match, s->limits);
}

// Tries one position after another, since PCRE2 does not report how many steps it took. The limit on steps applies to
// each position.
static int match_slowly(struct search *s, const char *text, size_t n, size_t from)
{
    for (size_t at = from; at <= n; at += at < n ? utf8_character(text + at, n - at) : 1) {
        int rc = match_within(s, text, n, at, PCRE2_ANCHORED | PCRE2_NO_JIT, LIGHT);
        for (int64_t steps = 4 * LIGHT; rc == PCRE2_ERROR_MATCHLIMIT && s->left > 0; steps *= 4) {
            rc = match_within(s, text, n, at, PCRE2_ANCHORED | PCRE2_NO_JIT, steps < s->left ? steps : s->left);
            s->left -= steps;
        }
        if (rc != PCRE2_ERROR_NOMATCH)
            return rc;
    }
    return PCRE2_ERROR_NOMATCH;
}

static enum found find(struct search *s, size_t from, size_t *start, size_t *stop, struct error *err)
{
    const char *const text = s->text;
    const size_t n = s->n;
    int rc = match_within(s, text, n, from, 0, LIGHT);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its stack on the heap
        rc = match_within(s, text, n, from, PCRE2_NO_JIT, LIGHT);
    if (rc == PCRE2_ERROR_MATCHLIMIT)
        rc = match_slowly(s, text, n, from);
    if (rc == PCRE2_ERROR_NOMATCH)
        return FOUND_NONE;
    if (rc == PCRE2_ERROR_NOMEMORY)
        memory_out(0);
    if (rc < 0) {
        char why[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
        fail(err, "the pattern %s failed at byte %zu of a text of %zu: %s", s->pattern->shown, from, n, why);
        return FOUND_ERROR;
    }
    const size_t *at = pcre2_get_ovector_pointer(s->match);
    *start = at[0];
    *stop = at[1];
    if (*start < from || *stop < *start) { // \K inside a look-around, which the rewriter refuses
        fail(err, "a pattern of the tokenizer went backwards at byte %zu", from);
        return FOUND_ERROR;
    }
    return FOUND_MATCH;
}

void search_text(struct search *s, const char *text, size_t n)
{
    s->text = text;
    s->n = n;
    s->from = 0;
    s->any = false;
    s->left += STEPS_PER_BYTE * (int64_t)n;
}

enum found search_next(struct search *s, size_t *start, size_t *stop, struct error *err)
{
    while (s->from <= s->n) {
        const enum found found = find(s, s->from, start, stop, err);
        if (found != FOUND_MATCH)
            return found;
        s->from = *stop;
        if (*start < *stop || !s->any || *stop != s->last) {
            s->any = true;
            s->last = *stop;
            return FOUND_MATCH;
        }
        s->from += s->from < s->n ? utf8_character(s->text + s->from, s->n - s->from) : 1;
    }
    return FOUND_NONE;
}
