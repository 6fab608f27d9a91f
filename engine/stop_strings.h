// stop_strings.h - finds stop strings in tokens: the callback `string` of struct stops (engine/engine.h).
//
// A stop string may start in one token and end in another, so bytes are compared, not tokens: the tokens' own bytes,
// not decoded text, in which U+FFFD replaces malformed ones. Calls share no state: one struct serves any number of
// sequences.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text;
struct tokenizer;

struct stop_strings {
    const struct tokenizer *tokenizer;
    int n;
    const char *const *string; // (n) borrowed; not empty
};

// The function for struct stops.string; self: a struct stop_strings. The token that completes a stop string is the last
// that is kept.
int stop_strings_find(void *self, const int32_t *token, int n, int fresh);
// Appends the bytes of a token that are compared: none for a special token.
void stop_strings_add(const struct stop_strings *s, int32_t id, struct text *to);
// Returns the number of these bytes (text, n) before the first stop string; n: none found. partial: an incomplete stop
// string at the end counts as well, so the bytes before it can be printed while decoding continues.
size_t stop_strings_cut(const struct stop_strings *s, const char *text, size_t n, bool partial);
// Returns the text of the tokens of a sequence that a stop string has ended, up to the stop string: NUL-terminated,
// free() it.
char *stop_strings_text(const struct stop_strings *s, const int32_t *token, int n, size_t *bytes);
