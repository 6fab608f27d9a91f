// byte_alphabet.h - GPT-2's way of writing bytes as visible characters.
//
// Checkpoints store the tokens of a byte-level tokenizer as text, so every byte needs a printable letter: the printable
// ones of Latin-1 stand for themselves, the other 68 bytes are, in order, U+0100, U+0101, ... A space is U+0120 (G with
// a dot), a line feed U+010A (C with a dot).
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct text;

// How the byte is written: its letter's UTF-8 (1 or 2 bytes) into `to`; the count.
int letter_of_byte(unsigned char byte, char to[2]);
void alphabet_of_bytes(const char *bytes, size_t n, struct text *to);
// Appends the bytes that the letters stand for; false, with nothing appended, if a character is no letter.
bool bytes_of_alphabet(const char *s, size_t n, struct text *to);
