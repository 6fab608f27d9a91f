// compression.h - bytes made smaller and back, in zlib's format.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct text;

// Appends the compressed bytes (n < 2^30).
void bytes_compress(const void *bytes, size_t n, struct text *to);
// Back to exactly `n` bytes at `to`; false: the compressed bytes are damaged, or are of another number.
bool bytes_expand(const void *compressed, size_t bytes, void *to, size_t n);
