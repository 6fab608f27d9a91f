// row_kernels.h - the CPU's inner loops, compiled from one source (row_kernels.c) for each instruction set.
//
// A lane is an element of a vector register: 4 in plain C, 8 with AVX2, 16 with AVX-512. Sums are accumulated per lane and
// the lanes are reduced at the end, in an order that depends on the length of the sum only: the number of rows in a call
// never changes a bit of any of them.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

struct attention_kernels;
struct matmul_kernels;

struct cpu_kernels { // all inner loops for one instruction set
    const char *name;
    const struct matmul_kernels *matmul;       // matmul_kernels.h
    const struct attention_kernels *attention; // attention_kernels.h
    // to (n) = a row of `type` as floats
    void (*dequantize)(float *to, const void *row, enum type type, int64_t n);
    void (*rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps);
    void (*swiglu)(float *out, const float *gate, const float *up, int64_t n); // up NULL: silu
    double (*sum_exp)(const float *x, int64_t n, float max);                   // sum of exp(x - max), in double
    // Writes a row x (n) to the KV cache as F32, BF16 or Q8_0.
    void (*write_kv)(void *to, enum type type, const float *x, int64_t n);
    // to (width) = x (width), each head rotated by angles (head_dim)
    void (*rope)(float *to, const float *x, const float *angles, int64_t width, int head_dim);
};

// Requirements: avx2: x86-64-v3; avx2_vnni: and AVX-VNNI; avx512: x86-64-v4; avx512_vnni: and AVX512-VNNI; avx512_bf16: and
// AVX512-BF16.
extern const struct cpu_kernels kernels_plain, kernels_avx2, kernels_avx2_vnni, kernels_avx512, kernels_avx512_vnni,
    kernels_avx512_bf16;
