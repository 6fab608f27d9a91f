// small_store.h - a datastore of a few hundred random tokens that repeat themselves.
#pragma once

#include <stdint.h>

// target: the model whose tokenizer it is for.
void small_store_write(const char *target, const char *path);
// Writes one of these tokens (n), at most SMALL_STORE, modulo the vocabulary; -1 ends a document.
enum { SMALL_STORE = 4000 };
void small_store_write_of(const char *target, const char *path, const int32_t *token, int n);
