// lanes.c - operations on single rows, compiled once for each instruction set, and the table of all inner loops.
#include "kernels/cpu/lanes.h"

#include "kernels/cpu/vectors.h"
#include "kernels/cpu/expand.h"

// ---- rows

static void rmsnorm(float *out, const float *x, const float *w, int64_t n, float eps)
{
    vf squares = { 0 };
    int64_t i = 0;
    for (; i + W <= n; i += W)
        squares = mad(load(x + i), load(x + i), squares);
    float total = fold(squares);
    for (; i < n; i++)
        total += x[i] * x[i];
    float scale = 1.0f / sqrtf(total / (float)n + eps);
    for (i = 0; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

static void swiglu(float *out, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += W) {
        float part[W] = { 0 };
        int64_t count = n - i < W ? n - i : W;
        memcpy(part, gate + i, (size_t)count * sizeof(float));
        vf g = load(part);
        save(part, g / (all(1.0f) + exp_lanes(-g)));
        for (int64_t j = 0; j < count; j++)
            out[i + j] = up != NULL ? part[j] * up[i + j] : part[j];
    }
}

static double sum_exp(const float *x, int64_t n, float most)
{
    double total = 0;
    for (int64_t i = 0; i < n; i += W) {
        float part[W];
        for (int64_t j = 0; j < W; j++)
            part[j] = i + j < n ? x[i + j] - most : -INFINITY;
        save(part, exp_lanes(load(part)));
        for (int64_t j = 0; j < W && i + j < n; j++)
            total += (double)part[j];
    }
    return total;
}

extern const struct products PASTE(products_, LANES);
extern const struct attention PASTE(attention_, LANES);

const struct lanes PASTE(lanes_, LANES) = {
    .name = QUOTE(LANES),
    .expand = expand,
    .products = &PASTE(products_, LANES),
    .attention = &PASTE(attention_, LANES),
    .rmsnorm = rmsnorm,
    .swiglu = swiglu,
    .sum_exp = sum_exp,
};
