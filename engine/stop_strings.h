// stop_strings.h - words that end a text, found among tokens: the string of struct stops (decode/decode.h).
//
// A stop string may begin in one token and end in another, so bytes are compared, not tokens. Nothing is remembered
// between calls: one struct serves any number of sequences.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

struct stop_strings {
    const struct tokenizer *tokenizer;
    int n;
    const char *const *string; // (n) borrowed; none of them empty
};

// struct stops.string: self is a struct stop_strings. The token that completes a stop string is the last that stays.
int stop_strings_find(void *self, const int32_t *token, int n, int fresh);
// Bytes of the text before the first stop string, n if there is none. partial: a stop string that may be under way at
// the end counts too; what comes before it can be shown while the text still grows.
size_t stop_strings_cut(const struct stop_strings *s, const char *text, size_t n, bool partial);
