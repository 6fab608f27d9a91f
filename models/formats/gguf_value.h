// gguf_value.h - one value of GGUF metadata: its bytes in the file, and the C types that they are converted to.
//
// gguf_open has checked the bytes. Source: ggml's docs/gguf.md.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

// Read a scalar of a given type. They return false and leave *to unchanged if v is NULL or of another type. Any integer
// type is accepted for an integer, any float type for a real.
bool gguf_value_int(const struct gguf_value *v, int64_t *to);
bool gguf_value_real(const struct gguf_value *v, double *to);
bool gguf_value_bool(const struct gguf_value *v, bool *to);
bool gguf_value_text(const struct gguf_value *v, struct gguf_string *to);
bool gguf_is(struct gguf_string s, const char *word);

// Iterates over an array of strings; *at is the position and starts at 0. Returns false at the end.
bool gguf_next_string(const struct gguf_value *array, size_t *at, struct gguf_string *to);
int64_t gguf_array_int(const struct gguf_value *array, uint64_t i); // 0 if the elements are not integers
double gguf_array_real(const struct gguf_value *array, uint64_t i); // 0 if the elements are not numbers

const char *gguf_type_name(int ggml_type); // "IQ4_NL"; knows types that are not supported as well
