// byte_alphabet.h - GPT-2's mapping of bytes to printable characters (bytes_to_unicode).
//
// Checkpoints store the tokens of a byte-level tokenizer as text, so every byte is mapped to a printable letter: printable
// Latin-1 characters map to themselves, the other 68 bytes in order to U+0100, U+0101, ... A space is U+0120 (Ġ), a line
// feed U+010A (Ċ).
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct text;

// Writes the UTF-8 of the byte's letter to `to`; returns its length, 1 or 2.
int byte_to_letter(unsigned char byte, char to[2]);
void bytes_to_letters(const char *bytes, size_t n, struct text *to);
// Appends the bytes of the letters. Returns false and appends nothing if a character is not a letter of a byte.
bool letters_to_bytes(const char *s, size_t n, struct text *to);
