// base64.h - decodes base64 (RFC 4648, section 4).
#pragma once
#include <stddef.h>

// Returns the bytes, *to_n of them; free() them. NULL: not base64: another character, or a wrong length.
void *base64_decode(const char *s, size_t n, size_t *to_n);
