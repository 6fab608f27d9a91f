// normal_form.h - Unicode's normal forms: in NFC, e followed by a combining acute accent becomes é.
#pragma once
#include <stddef.h>
#include "core/utf8.h"

struct text;

// Appends the normal form of UTF-8 text (n), as Hugging Face tokenizers computes it.
void normal_form_add(struct text *to, const char *s, size_t n, enum utf8_form form);
