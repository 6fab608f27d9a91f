// lanes.h - the CPU's inner loops, compiled from one source (lanes.c) for each instruction set.
//
// "Lanes" are the elements that one vector register holds: 4 in plain C, 8 with AVX2, 16 with AVX-512. Sums run lane by
// lane and the lanes are folded at the end, in an order that depends on the length of the sum alone: how
// many rows share a call never changes a bit of any of them.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

struct layout;

enum { TILE_ROWS = 16 }; // weight rows that are expanded together

struct matmul_call { // out (n, m) = x (n, k) . w (m, k) transposed
    float *out;
    const float *x; // rows `stride` apart, padded with zeros from k to stride
    int64_t stride; // k rounded up to whole lanes
    struct tensor w;
    int64_t n, k;
};

struct attend_call {
    float *out;                 // (n, heads * head_dim)
    const float *q;             // (n, heads * head_dim)
    const float *keys, *values; // (slots * length, kv_heads * head_dim)
    const struct layout *see;
    int heads, kv_heads, head_dim;
};

struct lanes {
    const char *name;
    int width;
    // One row of w's type as floats.
    void (*expand)(float *to, const void *row, enum type type, int64_t n);
    // Outputs first .. last - 1 of every row of x; tile: room for TILE_ROWS * stride floats.
    void (*matmul)(const struct matmul_call *c, int64_t first, int64_t last, float *tile);
    // Row i, the heads that share kv head g; work: room for (heads / kv_heads + 1) * (length + 16) floats.
    void (*attend)(const struct attend_call *c, int i, int g, float *work);
    void (*rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps);
    void (*swiglu)(float *out, const float *gate, const float *up, int64_t n); // up NULL: silu
    double (*sum_exp)(const float *x, int64_t n, float most);                  // sum of exp(x - most), in double
};

extern const struct lanes lanes_plain, lanes_avx2, lanes_avx512;
