// nfc.h - Unicode's normalization form C: what looks the same is written the same (e and an acute accent become é).
#pragma once
#include <stddef.h>

struct text;

// Appends the normal form of a text that is UTF-8, as Hugging Face tokenizers computes it.
void nfc_add(struct text *to, const char *s, size_t n);
