// gguf_write.h - writes the tests' GGUF files: a header of metadata and tensors, then the tensors' bytes.
#pragma once
#include "models/formats/gguf.h"

struct gguf_writer;
struct gguf_writer *gguf_write_begin(const char *path, struct error *err); // under another name until the end
void gguf_write_copy(struct gguf_writer *w, const struct gguf_value *v);   // copies a value unchanged
void gguf_write_int(struct gguf_writer *w, const char *key, enum gguf_type type, int64_t v);
void gguf_write_real(struct gguf_writer *w, const char *key, float v);
void gguf_write_text(struct gguf_writer *w, const char *key, const char *s);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_write_ints(struct gguf_writer *w, const char *key, const int32_t *v, size_t n);
void gguf_write_texts(struct gguf_writer *w, const char *key, const char *const *s, size_t n);
void gguf_write_tensor(struct gguf_writer *w, const char *name, int dims, const uint64_t *dim, int ggml_type,
                       const void *data, size_t bytes);        // data: borrowed until the end
bool gguf_write_end(struct gguf_writer *w, struct error *err); // frees w; on failure removes the partial file
