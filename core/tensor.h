// tensor.h - matrices in the memory of a device.
//
// Every tensor is a list of rows: (rows, width). A weight (m, k) has one row for each output. Element types are GGUF's,
// except F8_E4M3: blocks of 128 eight-bit floats (a sign, four bits of exponent, three of mantissa) after a float that
// scales them. A row of a type with blocks consists of complete ones: a block never crosses the end of a row, so rows
// can be copied as bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum type { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, F8_E4M3, TYPES };

// What a matmul rounds its input to before it multiplies: nothing, bfloat16 (to nearest, ties to even), or 8-bit
// integers with one scale per 32 elements of a row, for quantized weights only. DEFAULT: the fastest of these whose
// perplexity stays within 0.5 % of f32's (docs/performance.md), which depends on the type of the weights:
// activations_resolve.
enum activations { ACTIVATIONS_DEFAULT, ACTIVATIONS_F32, ACTIVATIONS_BF16, ACTIVATIONS_INT8 };
#define ACTIVATIONS_CHOICES "default|f32|bf16|int8" // activations_names, for `choices` in a table of options

struct type_facts {
    const char *name; // "f32", "q4_1", spelled as in YAML and reports
    int block;        // elements per block
    int bytes;        // bytes per block
    int ggml;         // the type's number in GGUF; -1: it has none
};
extern const struct type_facts type_facts[TYPES];

struct tensor {
    void *data; // memory of the backend that allocated it; NULL: no tensor
    enum type type;
    int64_t rows, width;
    void *packed; // packed weights in the layout of the backend, if its prepare() made them; otherwise NULL
    // The backend's number of the rounded form of these rows, if the operation that computed them left one for products
    // to read (kernels/backend.h); 0: none.
    uint64_t rounded;
};

bool type_has_blocks(enum type type);                                     // the type has scales
bool type_is_quantized(enum type type);                                   // the type has blocks of integers
extern const char *const activations_names[];                             // "default", "f32", "bf16", "int8", NULL
enum activations activations_resolve(enum activations a, enum type type); // replaces DEFAULT for weights of this type

// Returns the bytes of a row of `width` elements; width must be a multiple of the block.
size_t type_row_bytes(enum type type, int64_t width);
size_t tensor_bytes(struct tensor t);
struct tensor tensor_of(void *data, enum type type, int64_t rows, int64_t width);
struct tensor tensor_rows(struct tensor t, int64_t first,
                          int64_t n);           // view of rows first .. first + n; rounded: if first is 0
bool type_from_ggml(int ggml, enum type *type); // false: not a supported type
