// compression.h - bytes made smaller and back: zlib's format for what is recorded, gzip's for files of others.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct text;

// Appends the compressed bytes (n < 2^30).
void bytes_compress(const void *bytes, size_t n, struct text *to);
// Back to exactly `n` bytes at `to`; false: the compressed bytes are damaged, or are of another number.
bool bytes_expand(const void *compressed, size_t bytes, void *to, size_t n);

bool gzip_begins(const void *bytes, size_t n); // whether these are a gzip file's first bytes
enum gzip_result { GZIP_WHOLE, GZIP_DAMAGED, GZIP_TOO_LARGE };
// Appends what a gzip file holds, one member or several, at most `most` bytes.
enum gzip_result gzip_expand(const void *bytes, size_t n, size_t most, struct text *to);
