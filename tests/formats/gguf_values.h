// gguf_values.h - metadata of the tests' GGUF files that formats/gguf_write.c has no function for.
#pragma once
#include "formats/gguf.h"

void gguf_write_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_write_ints(struct gguf_writer *w, const char *key, const int32_t *v, size_t n);
void gguf_write_texts(struct gguf_writer *w, const char *key, const char *const *s, size_t n);
