// row_kernels.c - operations on single rows. It is compiled once for each width of registers.
#include "kernels/cpu/row_kernels.h"

#include "kernels/cpu/vectors.h"
#include "kernels/cpu/dequantize.h"

// ---- rows

static void rmsnorm(float *out, const float *x, const float *w, int64_t n, float eps)
{
    vf squares[V] = { { 0 } };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        UNROLL
    for (int v = 0; v < V; v++)
        squares[v] = mad(load(x + i + v * W), load(x + i + v * W), squares[v]);
    float total = reduce_sums(squares);
    for (; i < n; i++)
        total += x[i] * x[i];
    float scale = 1.0f / sqrtf(total / (float)n + eps);
    for (i = 0; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

INLINE vf passed(vf gate, enum gate_function f)
{
    return f == GATE_GELU ? gelu(gate) : silu(gate);
}

INLINE void glu_of(float *out, const float *gate, const float *up, int64_t n, enum gate_function f)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        store(out + i, up != NULL ? passed(load(gate + i), f) * load(up + i) : passed(load(gate + i), f));
    if (i < n) {
        float part[W] = { 0 };
        memcpy(part, gate + i, (size_t)(n - i) * sizeof(float));
        store(part, passed(load(part), f));
        for (int64_t j = 0; i + j < n; j++)
            out[i + j] = up != NULL ? part[j] * up[i + j] : part[j];
    }
}

static void glu(float *out, const float *gate, const float *up, int64_t n, enum gate_function f)
{
    if (f == GATE_GELU)
        glu_of(out, gate, up, n, GATE_GELU);
    else
        glu_of(out, gate, up, n, GATE_SILU);
}

static void rescale(float *x, int64_t n, float scale, float cap)
{
    int64_t i = 0;
    for (; cap > 0 && i + W <= n; i += W)
        store(x + i, tanh_lanes(load(x + i) * splat(scale) / splat(cap)) * splat(cap));
    if (cap > 0 && i < n) {
        float part[W] = { 0 };
        memcpy(part, x + i, (size_t)(n - i) * sizeof(float));
        store(part, tanh_lanes(load(part) * splat(scale) / splat(cap)) * splat(cap));
        memcpy(x + i, part, (size_t)(n - i) * sizeof(float));
        i = n;
    }
    for (; i < n; i++)
        x[i] *= scale;
}

static double sum_exp(const float *x, int64_t n, float max)
{
    double sum[LANES] = { 0 }, total = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        float part[LANES];
        for (int64_t j = 0; j < LANES; j++)
            part[j] = i + j < n ? x[i + j] - max : 0;
        UNROLL
        for (int v = 0; v < V; v++)
            store(part + v * W, exp_lanes(load(part + v * W)));
        for (int64_t j = 0; j < LANES; j++)
            sum[j] += i + j < n ? (double)part[j] : 0;
    }
    for (int j = 0; j < LANES; j++)
        total += sum[j];
    return total;
}

static float largest(const float *x, int64_t n)
{
    float max = -INFINITY;
    int64_t i = 0;
    if (n >= W) {
        vf m = load(x);
        for (i = W; i + W <= n; i += W)
            m = vmax(load(x + i), m);
        max = reduce_max(m);
    }
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

// ---- rows of the KV cache

static uint16_t float_to_half(float x)
{
#if defined(__AVX2__)
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
#else
    uint32_t u, sign;
    memcpy(&u, &x, sizeof(u));
    sign = u >> 16 & 0x8000;
    u &= 0x7FFFFFFF;
    if (u >= 0x7F800000) // these are infinity and NaN
        return (uint16_t)(sign | 0x7C00 | (u > 0x7F800000 ? 0x200 : 0));
    if (u >= 0x477FF000) // these round to more than the largest finite half
        return (uint16_t)(sign | 0x7C00);
    if (u < 0x38800000) { // these are subnormal: multiples of 2^-24
        float f;
        memcpy(&f, &u, sizeof(f));
        return (uint16_t)(sign | (uint32_t)lrintf(f * 0x1p24f));
    }
    return (uint16_t)(sign | (u + 0xFFF + (u >> 13 & 1) - 0x38000000) >> 13);
#endif
}

static void write_kv_bf16(uint8_t *to, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof(u));
        uint16_t h = (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? u >> 16 | 0x40 : (u + 0x7FFF + (u >> 16 & 1)) >> 16);
        memcpy(to + 2 * i, &h, sizeof(h));
    }
}

static void write_kv_q8_0(uint8_t *to, const float *x, int64_t n)
{
    for (; n > 0; n -= 32, x += 32, to += 34) {
        vf max = { 0 };
        for (int i = 0; i < 32; i += W)
            max = vmax(vabs(load(x + i)), max);
        float scale = reduce_max(max) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
        uint16_t h = float_to_half(scale);
        memcpy(to, &h, sizeof(h));
        round_to_bytes((int8_t *)to + 2, x, splat(inverse));
    }
}

static void write_kv(void *to, enum type type, const float *x, int64_t n)
{
    if (type == BF16)
        write_kv_bf16(to, x, n);
    else if (type == Q8_0)
        write_kv_q8_0(to, x, n);
    else
        memcpy(to, x, (size_t)n * sizeof(float));
}

// Applies RoPE as "rotate half": element d is paired with element d + head_dim / 2.
static void rope(float *to, const float *x, const float *angles, int64_t width, int hd, int rotated)
{
    const int half = rotated / 2;
    for (int64_t h = 0; h < width; h += hd) {
        int d = 0;
        for (; d + W <= half; d += W) {
            vf a = load(x + h + d), b = load(x + h + d + half), c = load(angles + d), s = load(angles + d + half);
            store(to + h + d, a * c - b * s);
            store(to + h + d + half, b * c + a * s);
        }
        for (; d < half; d++) {
            float a = x[h + d], b = x[h + d + half], c = angles[d], s = angles[d + half];
            to[h + d] = a * c - b * s;
            to[h + d + half] = b * c + a * s;
        }
        if (to != x)
            memcpy(to + h + rotated, x + h + rotated, (size_t)(hd - rotated) * sizeof(float));
    }
}

const struct row_kernels PASTE(row_kernels_, ISA) = {
    .dequantize = dequantize,
    .rmsnorm = rmsnorm,
    .glu = glu,
    .rescale = rescale,
    .sum_exp = sum_exp,
    .largest = largest,
    .write_kv = write_kv,
    .rope = rope,
};
