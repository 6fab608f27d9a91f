// words.h - the words of a text, for comparing texts: runs of letters and digits, ASCII in lower case. Punctuation, ASCII's and
// that of U+2000 to U+207F, only separates words; every other character is a letter.
#pragma once
#include <stddef.h>
#include "core/digest.h"
#include "core/memory.h"

struct words {        // start with { 0 }
    struct text text; // the words, separated by single spaces
    size_t n, capacity;
    size_t *at; // (n) where each word begins
};
void words_read(struct words *w, const char *text);                         // replaces the words
struct hash words_hash(const struct words *w, size_t first, size_t length); // of these words; length at least 1
void words_free(struct words *w);
