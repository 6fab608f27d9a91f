// pattern.h - the regular expressions that cut text, with the meaning they have for Hugging Face tokenizers.
//
// Those are written for Oniguruma with Unicode 16; we run them with PCRE2, which knows the Unicode of its release (14
// in 10.42) and means other things by some of the same signs. So a pattern is rewritten first: \s and the properties
// \p{L} ... become classes that hold exactly the same characters, and whatever the two read differently is refused.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct pattern;
struct search;

struct pattern *pattern_compile(const char *text, size_t n, struct error *err);
struct pattern *pattern_literal(const char *text, size_t n, struct error *err); // these very characters
void pattern_free(struct pattern *p);

// Memory for looking; one for each thread. A pattern is immutable and may be shared.
struct search *search_begin(const struct pattern *p);
void search_end(struct search *s);
enum found { FOUND_ERROR = -1, FOUND_NONE, FOUND_MATCH };
// The first match in text (n), which is UTF-8, that begins at `from` or later. It may be empty.
enum found search_next(struct search *s, const char *text, size_t n, size_t from, size_t *start, size_t *stop,
                       struct error *err);

// Characters that came with Unicode 15 and 16, by general category; PCRE2 may not know them yet.
struct newer {
    unsigned first, last;
    char category[3];
};
extern const struct newer unicode_additions[]; // ends with a zero
