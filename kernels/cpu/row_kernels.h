// row_kernels.h - the CPU's inner loops on single rows, compiled from one source (row_kernels.c) for each width of
// registers.
//
// A lane is an element of a vector register: 4 in plain C and with NEON, 8 with AVX2, 16 with AVX-512. A sum over a row
// is sixteen partial sums, added up in one order at the end: neither the width of a register nor the number of rows in
// a call changes a bit.
#pragma once
#include <stdint.h>
#include "core/tensor.h"
#include "kernels/backend.h"

struct row_kernels {
    // to (n) = a row of `type` as floats
    void (*dequantize)(float *to, const void *row, enum type type, int64_t n);
    void (*rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps);
    // out = f(gate) * up; up NULL: f(gate)
    void (*glu)(float *out, const float *gate, const float *up, int64_t n, enum gate_function f);
    void (*rescale)(float *x, int64_t n, float scale,
                    float cap); // x = scale * x; with a positive cap: cap * tanh(scale * x / cap)
    double (*sum_exp)(const float *x, int64_t n, float max); // sum of exp(x - max), in double
    float (*largest)(const float *x, int64_t n);
    // Writes a row x (n) to the KV cache as F32, BF16 or Q8_0.
    void (*write_kv)(void *to, enum type type, const float *x, int64_t n);
    // to (width) = x (width), the first `rotated` numbers of each head rotated by angles (rotated)
    void (*rope)(float *to, const float *x, const float *angles, int64_t width, int head_dim, int rotated);
};
