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

// What the numbers of a type are.
enum numbers {
    NUMBERS_IEEE, // floats of 16 or 32 bits, without blocks
    NUMBERS_INT,  // integers from 0 if a minimum is added to them, otherwise from -2^(bits - 1)
    NUMBERS_IQ4,  // codes of four bits for ggml's sixteen numbers (kvalues_iq4nl in ggml-common.h)
    NUMBERS_E2M1, // floats of four bits: a sign, two bits of exponent, one of mantissa
    NUMBERS_E4M3, // floats of eight bits
};

// What they are multiplied by, and what is added to the product.
enum scaling {
    SCALING_NONE,
    SCALING_HALF,      // a half d
    SCALING_MIN,       // halves d and m: m is added
    SCALING_SUPER,     // halves d and m of a block, times a 6-bit scale and a 6-bit minimum of 32 numbers
    SCALING_SUB_BLOCK, // a half d of a block, times a signed scale of 16 integers, or of 32 codes
    SCALING_POWER,     // the power of two of an exponent of eight bits
    SCALING_FLOAT,     // a float d
};

// The types, a row each: readers of files, checks and tables of kernels follow from the rows. Besides it, a type has a
// function that reads its blocks in kernels/cpu/blocks.h, its cases in kernels/cuda/unpack.h and, if floats are
// converted to it, a function in core/quantize.c.
// clang-format off
//
//      file name  name     numbers  bytes  GGUF's   bits of   numbers  scaling    offset of d in a block;
//                          in a block      number   a number                      m follows d
#define FLOAT_TYPES(ROW) \
    ROW(F32,       f32,     1,       4,     0,       32,       IEEE,    NONE,      0) \
    ROW(F16,       f16,     1,       2,     1,       16,       IEEE,    NONE,      0) \
    ROW(BF16,      bf16,    1,       2,     30,      16,       IEEE,    NONE,      0)
#define QUANTIZED_TYPES(ROW) \
    ROW(Q8_0,      q8_0,    32,      34,    8,       8,        INT,     HALF,      0) \
    ROW(Q4_0,      q4_0,    32,      18,    2,       4,        INT,     HALF,      0) \
    ROW(Q4_1,      q4_1,    32,      20,    3,       4,        INT,     MIN,       0) \
    ROW(Q5_0,      q5_0,    32,      22,    6,       5,        INT,     HALF,      0) \
    ROW(Q5_1,      q5_1,    32,      24,    7,       5,        INT,     MIN,       0) \
    ROW(Q4_K,      q4_k,    256,     144,   12,      4,        INT,     SUPER,     0) \
    ROW(Q5_K,      q5_k,    256,     176,   13,      5,        INT,     SUPER,     0) \
    ROW(Q6_K,      q6_k,    256,     210,   14,      6,        INT,     SUB_BLOCK, 208) \
    ROW(IQ4_NL,    iq4_nl,  32,      18,    20,      4,        IQ4,     HALF,      0) \
    ROW(IQ4_XS,    iq4_xs,  256,     136,   23,      4,        IQ4,     SUB_BLOCK, 0) \
    ROW(MXFP4,     mxfp4,   32,      17,    39,      4,        E2M1,    POWER,     0)
#define SCALED_FLOAT_TYPES(ROW) \
    ROW(F8_E4M3,   f8_e4m3, 128,     132,   -1,      8,        E4M3,    FLOAT,     0)
// clang-format on
#define BLOCK_TYPES(ROW) QUANTIZED_TYPES(ROW) SCALED_FLOAT_TYPES(ROW)
#define ALL_TYPES(ROW) FLOAT_TYPES(ROW) BLOCK_TYPES(ROW)

#define TYPE_ID(TYPE, ...) TYPE,
enum type { ALL_TYPES(TYPE_ID) TYPES };

// What a matmul rounds its input to before it multiplies: nothing, bfloat16 (to nearest, ties to even), or 8-bit
// integers with one scale per 32 elements of a row, for quantized weights only. DEFAULT: the fastest of these whose
// perplexity stays within 0.5 % of f32's (docs/performance.md), which depends on the type of the weights:
// activations_resolve.
enum activations { ACTIVATIONS_DEFAULT, ACTIVATIONS_F32, ACTIVATIONS_BF16, ACTIVATIONS_INT8 };
#define ACTIVATIONS_CHOICES "default|f32|bf16|int8" // activations_names, for `choices` in a table of options

struct type_facts {
    const char *file_name, *name; // "Q4_1" in GGUF and safetensors, "q4_1" in YAML and reports
    int block;                    // elements per block
    int bytes;                    // bytes per block
    int ggml;                     // the type's number in GGUF; -1: it has none
    int bits;
    enum numbers numbers;
    enum scaling scaling;
    int d_at; // offset of the scale in a block
};
// clang-format off
#define TYPE_FACTS(TYPE, name, block, bytes, ggml, bits, numbers, scaling, d_at) /* the row of a type as a constant */ \
    { #TYPE, #name, block, bytes, ggml, bits, NUMBERS_##numbers, SCALING_##scaling, d_at }
// clang-format on
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
                          int64_t n);              // view of rows first .. first + n; rounded: if first is 0
bool type_from_ggml(int ggml, enum type *type);    // false: not a supported type
enum type type_chosen(const char *choices, int i); // the type that choice i of "q4_0|q8_0" names; TYPES: none
