// pattern.h - the regular expressions of pre-tokenizers, with the semantics of Hugging Face tokenizers.
//
// These are written for Oniguruma with Unicode 16. They run here on PCRE2, which has the Unicode version of its release
// (14 in 10.42) and different semantics for some of the syntax. So a pattern is rewritten first: \s and properties such
// as \p{L} become classes of exactly the same characters. Syntax that the two interpret differently is an error.
#pragma once
#include <stddef.h>

struct error;
struct pattern;
struct search;

struct pattern *pattern_compile(const char *text, size_t n, struct error *err);
struct pattern *pattern_literal(const char *text, size_t n, struct error *err); // matches the text literally
void pattern_free(struct pattern *p);

// The workspace of a search; one per thread. A pattern is immutable and may be shared.
struct search *search_begin(const struct pattern *p);
void search_end(struct search *s);
void search_text(struct search *s, const char *text, size_t n); // begins to search UTF-8 text, which is borrowed
enum found { FOUND_ERROR = -1, FOUND_NONE, FOUND_MATCH };
// Returns the matches of the text one after another. An empty match directly after another one does not count, and the
// search continues after the next character (as in Oniguruma's binding for Rust).
enum found search_next(struct search *s, size_t *start, size_t *stop, struct error *err);
