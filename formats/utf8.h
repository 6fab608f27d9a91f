// utf8.h - characters as bytes: what is valid, and where a character ends.
#pragma once
#include <stddef.h>

// Bytes of the well-formed character at s, 1 to 4; 0: there is none (cut off, overlong, a surrogate, beyond U+10FFFF).
size_t utf8_character(const char *s, size_t n);
// Where the text stops being well-formed; n if it does not.
size_t utf8_valid(const char *s, size_t n);
// Whether byte b may stand as number i (0, 1, ...) of a character that began with `before`: (i), well-formed so far.
int utf8_continues(const unsigned char *before, int i, unsigned char b);
// Bytes that a character beginning with b has; 0 if none begins so.
int utf8_length(unsigned char b);
// The code point of a well-formed character, and back (the bytes written, 1 to 4).
unsigned utf8_code(const char *s);
int utf8_put(unsigned code, char *to);
// Where the character before `at` begins, in well-formed text.
size_t utf8_before(const char *s, size_t at);
