// pattern.h - the regular expressions of pre-tokenizers, with the semantics of Hugging Face tokenizers.
//
// Those are written for Oniguruma with Unicode 16. They run here on PCRE2, which has the Unicode version of its release
// (14 in 10.42) and different semantics for some of the syntax. So a pattern is rewritten first: \s and properties such
// as \p{L} become classes of exactly the same characters; syntax that the two interpret differently is an error.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct pattern;
struct search;

struct pattern *pattern_compile(const char *text, size_t n, struct error *err);
struct pattern *pattern_literal(const char *text, size_t n, struct error *err); // matches the text literally
void pattern_free(struct pattern *p);

// Workspace of a search; one per thread. A pattern is immutable and may be shared.
struct search *search_begin(const struct pattern *p);
void search_end(struct search *s);
enum found { FOUND_ERROR = -1, FOUND_NONE, FOUND_MATCH };
// Finds the first match in UTF-8 text (n) that begins at `from` or later. It may be empty.
enum found search_next(struct search *s, const char *text, size_t n, size_t from, size_t *start, size_t *stop,
                       struct error *err);

// The matches of a text one after another. An empty one directly after another match is not one, and the search continues after the
// next character (as in Oniguruma's binding for Rust).
struct matches { // start with { .search, .s, .n }
    struct search *search;
    const char *s;
    size_t n, from, last;
    bool any; // a match was found, which ended at `last`
};
enum found matches_next(struct matches *m, size_t *start, size_t *stop, struct error *err);

// Characters added in Unicode 15 and 16, by general category; PCRE2 may be older.
struct unicode_range {
    unsigned first, last;
    char category[3];
};
extern const struct unicode_range unicode_additions[]; // zero-terminated
