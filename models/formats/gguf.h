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

struct error;
struct gguf;

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_string {
    const char *s; // (n) not NUL-terminated
    size_t n;
};

struct gguf_value { // one key of the metadata, with its value
    struct gguf_string key;
    enum gguf_type type; // an array of type GGUF_ARRAY has `element` as the type of its elements
    enum gguf_type element;
    uint64_t n;         // elements of an array, otherwise 1
    const uint8_t *raw; // the value's bytes in the file; for an array, after its type and count
    size_t raw_bytes;
};

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
const char *gguf_type_name(int ggml_type); // "IQ4_NL"; knows types that are not supported as well

// Read a scalar of a given type. They return false and leave *to unchanged if the key is missing or of another type.
// Any integer type is accepted for an integer, any float type for a real.
bool gguf_int(const struct gguf *g, const char *key, int64_t *to);
bool gguf_real(const struct gguf *g, const char *key, double *to);
bool gguf_bool(const struct gguf *g, const char *key, bool *to);
bool gguf_text(const struct gguf *g, const char *key, struct gguf_string *to);
bool gguf_is(struct gguf_string s, const char *word);

// Iterates over an array of strings; *at is the position and starts at 0. Returns false at the end.
bool gguf_next_string(const struct gguf_value *array, size_t *at, struct gguf_string *to);
int64_t gguf_array_int(const struct gguf_value *array, uint64_t i); // 0 if the elements are not integers
double gguf_array_real(const struct gguf_value *array, uint64_t i); // 0 if the elements are not numbers
