// row_kernels.h - the CPU's inner loops, compiled from one source (row_kernels.c) for each instruction set.
//
// "Lanes" are the elements that one vector register holds: 4 in plain C, 8 with AVX2, 16 with AVX-512. Sums run lane by
// lane and the lanes are folded at the end, in an order that depends on the length of the sum alone: how
// many rows share a call never changes a bit of any of them.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

struct attention;
struct products;

struct lanes {
    const char *name;
    const struct products *products;   // matmul_kernels.h
    const struct attention *attention; // attend.h
    // One row of w's type as floats.
    void (*expand)(float *to, const void *row, enum type type, int64_t n);
    void (*rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps);
    void (*swiglu)(float *out, const float *gate, const float *up, int64_t n); // up NULL: silu
    double (*sum_exp)(const float *x, int64_t n, float most);                  // sum of exp(x - most), in double
    // A row of floats (n) as the cache has it: F32, BF16, or Q8_0.
    void (*keep)(void *to, enum type type, const float *x, int64_t n);
    // x (width), each head turned by angles (head_dim), into `to`
    void (*turn)(float *to, const float *x, const float *angles, int64_t width, int head_dim);
};

// Each with what it needs: avx2 (x86-64-v3), with AVX-VNNI; avx512 (x86-64-v4), with AVX512-VNNI, with that and AVX512-BF16.
extern const struct lanes lanes_plain, lanes_avx2, lanes_avx2_vnni, lanes_avx512, lanes_avx512_vnni, lanes_avx512_bf16;
