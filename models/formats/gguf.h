// gguf.h - a memory-mapped GGUF file (v2, v3): metadata by key, tensors by name.
//
// gguf_open validates everything: counts against the file's size, lengths against its end, offsets against the
// alignment and one another. Borrowed pointers are valid until gguf_close.
//
// Source: ggml's docs/gguf.md; core/tensor.h has the type numbers.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/formats/gguf_value.h"

struct error;
struct gguf;

struct gguf_tensor {
    struct gguf_string name;
    int dims;
    uint64_t dim[4]; // dim[0] runs along the row
    int ggml_type;   // the number in the file; `tensor` is set only if the type is known
    bool known;
    struct tensor tensor; // (dim[1] * dim[2] * dim[3], dim[0]) in the mapping, borrowed
    size_t bytes;         // size of its data in the file; 0 if the type is unknown
};

struct gguf *gguf_open(const char *path, struct error *err);
void gguf_close(struct gguf *g);
const char *gguf_path(const struct gguf *g);

size_t gguf_values(const struct gguf *g);
const struct gguf_value *gguf_value_at(const struct gguf *g, size_t i);
const struct gguf_value *gguf_find(const struct gguf *g, const char *key); // NULL: no such key, or it is hidden
void gguf_hide(struct gguf *g, size_t i); // hides value i from lookups by key, but not from gguf_value_at (identity.h)
size_t gguf_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name); // NULL: no such tensor

// Read the scalar of a key as gguf_value_int and its kin do; false also if the key is missing.
bool gguf_int(const struct gguf *g, const char *key, int64_t *to);
bool gguf_real(const struct gguf *g, const char *key, double *to);
bool gguf_bool(const struct gguf *g, const char *key, bool *to);
bool gguf_text(const struct gguf *g, const char *key, struct gguf_string *to);
