// nfc.h - Unicode normalization form C (NFC): e followed by a combining acute accent becomes é.
#pragma once
#include <stddef.h>

struct text;

// Appends the NFC of UTF-8 text, as Hugging Face tokenizers computes it.
void nfc_add(struct text *to, const char *s, size_t n);
