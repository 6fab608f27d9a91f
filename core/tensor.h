// tensor.h - rows of numbers on some device.
//
// Everything in a transformer is a list of rows: (n, width). A weight (m, k) has one row for each
// output. Element types are GGUF's: quantised rows are a whole number of blocks, and a block never
// crosses the end of a row, so that rows can be moved about as bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum type { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, TYPES };

// What a matmul rounds its input to before it multiplies: nothing, bfloat16 (to nearest, ties to even), or 8-bit whole
// numbers with one scale for each 32 of a row, for quantised weights only. DEFAULT: the fastest of them whose perplexity
// stays within 0.5 % of f32's (docs/performance.md), which depends on the weights: activations_resolve.
enum activations { ACTIVATIONS_DEFAULT, ACTIVATIONS_F32, ACTIVATIONS_BF16, ACTIVATIONS_INT8 };
#define ACTIVATIONS_CHOICES "default|f32|bf16|int8" // activations_names as a table of options has them

struct type_facts {
    const char *name; // "f32", "q4_1", as in YAML and reports
    int block;        // elements of a block
    int bytes;        // and its size
    int ggml;         // the number GGUF gives the type
};
extern const struct type_facts type_facts[TYPES];

struct tensor {
    void *data; // on the backend that made it; NULL: there is none
    enum type type;
    int64_t rows, width;
    void *packed; // backend's own form of a weight, if prepare() made one; otherwise NULL
};

bool type_is_quantised(enum type type);                                   // a format of blocks with scales
extern const char *const activations_names[];                             // "default", "f32", "bf16", "int8", NULL
enum activations activations_resolve(enum activations a, enum type type); // DEFAULT made definite for such weights

// Bytes of a row of so many elements; the width must be a whole number of blocks.
size_t type_row_bytes(enum type type, int64_t width);
size_t tensor_bytes(struct tensor t);
struct tensor tensor_of(void *data, enum type type, int64_t rows, int64_t width);
struct tensor tensor_rows(struct tensor t, int64_t first, int64_t n); // a view of rows first .. first + n
bool type_from_ggml(int ggml, enum type *type);                       // false: a type we do not know
