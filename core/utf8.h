// utf8.h - UTF-8 validation, decoding and encoding.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Returns the length in bytes (1 to 4) of the well-formed character at s; 0 if it is malformed (truncated, overlong, a
// surrogate, beyond U+10FFFF).
size_t utf8_character(const char *s, size_t n);
// Returns the length of the longest well-formed prefix; n if the whole text is well-formed.
size_t utf8_valid(const char *s, size_t n);
// Returns whether b may be byte i (0, 1, ...) of a character whose first i bytes
// are `before`, which are well-formed so far.
int utf8_continues(const unsigned char *before, int i, unsigned char b);
// Returns the length in bytes of a character whose first byte is b; 0 if b cannot be a first byte.
int utf8_length(unsigned char b);
// Decodes a well-formed character; encodes a code point and returns the number of bytes written, 1 to 4.
unsigned utf8_code(const char *s);
int utf8_put(unsigned code, char *to);
// Returns the offset of the first byte of the character before `at`, in well-formed text.
size_t utf8_before(const char *s, size_t at);
// Returns the number of bytes of s (n) to show if at most `max` may be shown: no character is cut.
size_t utf8_cut(const char *s, size_t n, size_t max);
bool utf8_is_space(unsigned code); // Unicode's White_Space
