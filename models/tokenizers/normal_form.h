// normal_form.h - functions that need Unicode's tables: normal forms (in NFC, e followed by a combining acute accent
// becomes é) and grapheme clusters.
#pragma once
#include <stddef.h>

struct text;

enum normal_form { NFC, NFD, NFKC, NFKD };
// Appends the normal form of UTF-8 text (n), as Hugging Face tokenizers computes it.
void normal_form_add(struct text *to, const char *s, size_t n, enum normal_form form);
// Returns the offset of the end of the grapheme cluster that begins at `at`, in well-formed text (n).
size_t grapheme_cluster(const char *s, size_t n, size_t at);
