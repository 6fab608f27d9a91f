// utf8.h - UTF-8 validation, decoding and encoding.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;

// Length in bytes (1 to 4) of the well-formed character at s; 0 if it is malformed (truncated, overlong, a surrogate,
// beyond U+10FFFF).
size_t utf8_character(const char *s, size_t n);
// Length of the longest well-formed prefix; n if the whole text is well-formed.
size_t utf8_valid(const char *s, size_t n);
// Whether all of s (n) is well-formed. If not, err is "WHAT is not UTF-8" with the byte and its offset.
bool utf8_require(const char *s, size_t n, const char *what, struct error *err);
// Whether b may be byte i (0, 1, ...) of a character whose first i bytes are `before`, which are well-formed so far.
int utf8_continues(const unsigned char *before, int i, unsigned char b);
// Length in bytes of a character whose first byte is b; 0 if b cannot be a first byte.
int utf8_length(unsigned char b);
// Decodes a well-formed character; encodes a code point and returns the number of bytes written, 1 to 4.
unsigned utf8_code(const char *s);
int utf8_put(unsigned code, char *to);
// The number of characters of s (n), and of bytes of its first `characters` characters.
size_t utf8_count(const char *s, size_t n);
size_t utf8_first(const char *s, size_t n, size_t characters);
// Offset of the first byte of the character before `at`, in well-formed text.
size_t utf8_before(const char *s, size_t at);
// The number of bytes of s (n) to show if at most `max` may be: no character is cut.
size_t utf8_cut(const char *s, size_t n, size_t max);
bool utf8_is_space(unsigned code); // White_Space of Unicode
