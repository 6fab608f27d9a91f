// suffix_array.h - the suffix array of token ids.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

// to (n): positions 0 .. n - 1 in the order of the texts that begin there, token by token, a text before its continuations. Tokens are
// below 2^24. Takes memory for 10 or 15 bytes a token besides.
bool suffix_array(const int32_t *token, size_t n, int32_t most, uint32_t *to, struct error *err);
