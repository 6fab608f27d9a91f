// lanes.c - the inner loops, written once over GCC's vector types and compiled once for each instruction set
// (CMakeLists.txt sets LANES and the machine flags).
//
// The one idea: an output's sum has its own accumulator, walks k in order, and is folded at the end. Tiles only
// decide which accumulators are in registers together, so tile shapes are free and bits are not.
#include "kernels/cpu/lanes.h"

#include <math.h>
#include <string.h>

#include "kernels/backend.h"

#if defined(__AVX512F__)
enum { W = 16, X_ROWS = 4 }; // 32 registers: a tile of 4 x 4 accumulators
#elif defined(__AVX2__)
enum { W = 8, X_ROWS = 2 }; // 16 registers: 2 x 4
#else
enum { W = 4, X_ROWS = 2 };
#endif
enum { W_ROWS = 4 };

typedef float vf __attribute__((vector_size(W * sizeof(float))));
typedef int32_t vi __attribute__((vector_size(W * sizeof(int32_t))));
typedef float vf_any __attribute__((vector_size(W * sizeof(float)), aligned(4), may_alias));

static inline vf load(const float *p)
{
    return *(const vf_any *)p;
}

static inline void save(float *p, vf v)
{
    *(vf_any *)p = v;
}

static inline vf all(float x)
{
    return x - (vf){ 0 };
}

#include "kernels/cpu/expand.h"

static inline float fold(vf v)
{
#if defined(__AVX512F__)
    v += __builtin_shuffle(v, (vi){ 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7 });
    v += __builtin_shuffle(v, (vi){ 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11 });
    v += __builtin_shuffle(v, (vi){ 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13 });
#elif defined(__AVX2__)
    v += __builtin_shuffle(v, (vi){ 4, 5, 6, 7, 0, 1, 2, 3 });
    v += __builtin_shuffle(v, (vi){ 2, 3, 0, 1, 6, 7, 4, 5 });
#else
    v += __builtin_shuffle(v, (vi){ 2, 3, 0, 1 });
#endif
    return v[0] + v[1];
}

static inline vf larger(vf a, vf b)
{
    vi m = a > b;
    return (vf)(((vi)a & m) | ((vi)b & ~m));
}

// exp by 2^n * e^r, |r| <= ln 2 / 2, with Taylor's terms to r^7 (error below 1.5 units in the last place); arguments
// are held to where the result is a normal float.
static inline vf exp_lanes(vf x)
{
    x = larger(x, all(-87.0f));
    x = -larger(-x, all(-88.0f));
    const vf magic = all(0x1.8p23f);
    vf n = (x * all(0x1.715476p0f) + magic) - magic;
    vf r = x - n * all(0x1.62e4p-1f);
    r = r - n * all(0x1.7f7d1cp-20f);
    vf p = all(1.0f / 5040.0f);
    p = p * r + all(1.0f / 720.0f);
    p = p * r + all(1.0f / 120.0f);
    p = p * r + all(1.0f / 24.0f);
    p = p * r + all(1.0f / 6.0f);
    p = p * r + all(0.5f);
    p = p * r + all(1.0f);
    p = p * r + all(1.0f);
    return p * (vf)((__builtin_convertvector(n, vi) + 127) << 23);
}

// ---- matmul

// A tile of accumulators; xr and wr are constants where it is called, so every loop unrolls.
static inline __attribute__((always_inline)) void tile_products(int xr, int wr, const float *x, int64_t stride,
                                                                const float *w, float *out, int64_t m)
{
    vf sum[X_ROWS][W_ROWS];
    for (int i = 0; i < xr; i++)
        for (int j = 0; j < wr; j++)
            sum[i][j] = (vf){ 0 };
    for (int64_t k = 0; k < stride; k += W) {
        vf b[W_ROWS];
        for (int j = 0; j < wr; j++)
            b[j] = load(w + j * stride + k);
        for (int i = 0; i < xr; i++) {
            vf a = load(x + i * stride + k);
            for (int j = 0; j < wr; j++)
                sum[i][j] += a * b[j];
        }
    }
    for (int i = 0; i < xr; i++)
        for (int j = 0; j < wr; j++)
            out[i * m + j] = fold(sum[i][j]);
}

static void row_products(const struct matmul_call *c, const float *tile, int64_t first, int64_t rows)
{
    const int64_t m = c->w.rows, stride = c->stride;
    int64_t i = 0;
    for (; i + X_ROWS <= c->n; i += X_ROWS) {
        const float *x = c->x + i * stride;
        float *out = c->out + i * m + first;
        int64_t j = 0;
        for (; j + W_ROWS <= rows; j += W_ROWS)
            tile_products(X_ROWS, W_ROWS, x, stride, tile + j * stride, out + j, m);
        for (; j < rows; j++)
            tile_products(X_ROWS, 1, x, stride, tile + j * stride, out + j, m);
    }
    for (; i < c->n; i++) {
        const float *x = c->x + i * stride;
        float *out = c->out + i * m + first;
        int64_t j = 0;
        for (; j + W_ROWS <= rows; j += W_ROWS)
            tile_products(1, W_ROWS, x, stride, tile + j * stride, out + j, m);
        for (; j < rows; j++)
            tile_products(1, 1, x, stride, tile + j * stride, out + j, m);
    }
}

static void matmul(const struct matmul_call *c, int64_t first, int64_t last, float *tile)
{
    const size_t row_bytes = type_row_bytes(c->w.type, c->k);
    for (int64_t at = first; at < last; at += TILE_ROWS) {
        int64_t rows = last - at < TILE_ROWS ? last - at : TILE_ROWS;
        const char *w = (const char *)c->w.data + (size_t)at * row_bytes;
        for (int64_t j = 0; j < rows; j++) {
            float *to = tile + j * c->stride;
            expand(to, w + (size_t)j * row_bytes, c->w.type, c->k);
            for (int64_t k = c->k; k < c->stride; k++)
                to[k] = 0;
        }
        row_products(c, tile, at, rows);
    }
}

// ---- attention

static float dot(const float *a, const float *b, int n)
{
    vf sum = { 0 };
    int d = 0;
    for (; d + W <= n; d += W)
        sum += load(a + d) * load(b + d);
    float total = fold(sum);
    for (; d < n; d++)
        total += a[d] * b[d];
    return total;
}

// to (n) = sum over positions of weight[j] * values[row[j]], positions in order.
static void weighted_sum(float *to, const float *weight, const int32_t *row, int positions, const float *values,
                         int64_t width, int n)
{
    int d = 0;
    for (; d + 4 * W <= n; d += 4 * W) {
        vf a = { 0 }, b = { 0 }, c = { 0 }, e = { 0 };
        for (int j = 0; j < positions; j++) {
            const float *v = values + row[j] * width + d;
            vf w = all(weight[j]);
            a += w * load(v);
            b += w * load(v + W);
            c += w * load(v + 2 * W);
            e += w * load(v + 3 * W);
        }
        save(to + d, a);
        save(to + d + W, b);
        save(to + d + 2 * W, c);
        save(to + d + 3 * W, e);
    }
    for (; d + W <= n; d += W) {
        vf a = { 0 };
        for (int j = 0; j < positions; j++)
            a += all(weight[j]) * load(values + row[j] * width + d);
        save(to + d, a);
    }
    for (; d < n; d++) {
        float a = 0;
        for (int j = 0; j < positions; j++)
            a += weight[j] * values[row[j] * width + d];
        to[d] = a;
    }
}

// Softmax of x (n), in place; room for whole lanes behind it.
static void softmax(float *x, int n)
{
    float most = x[0];
    for (int j = 1; j < n; j++)
        most = x[j] > most ? x[j] : most;
    int whole = (n + W - 1) / W * W;
    for (int j = n; j < whole; j++)
        x[j] = most;
    vf sum = { 0 };
    for (int j = 0; j < whole; j += W)
        save(x + j, exp_lanes(load(x + j) - all(most)));
    for (int j = n; j < whole; j++)
        x[j] = 0;
    for (int j = 0; j < whole; j += W)
        sum += load(x + j);
    vf scale = all(1.0f / fold(sum));
    for (int j = 0; j < whole; j += W)
        save(x + j, load(x + j) * scale);
}

// The cache rows that row i of the pass sees, in the order of their positions: the prefix, then its ancestors, which
// stand
// in the order of their pending numbers.
static int rows_seen(const struct layout *s, int i, int32_t *row)
{
    int n = 0, base = s->slot[i] * s->length;
    for (; n < s->prefix[i]; n++)
        row[n] = base + n;
    const uint64_t *bits = s->ancestors + (int64_t)i * s->words;
    for (int w = 0; w < s->words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            row[n++] = base + s->prefix[i] + 64 * w + __builtin_ctzll(left);
    return n;
}

static void attend(const struct attend_call *c, int i, int g, float *work)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim;
    const int64_t width = (int64_t)c->kv_heads * hd;
    const int room = c->see->length + 16;
    const float scale = 1.0f / sqrtf((float)hd);
    const float *q = c->q + ((int64_t)i * c->heads + (int64_t)g * group) * hd;
    float *out = c->out + ((int64_t)i * c->heads + (int64_t)g * group) * hd;
    int32_t *row = (int32_t *)work;
    float *score = work + room; // (group, room)

    int n = rows_seen(c->see, i, row);
    for (int j = 0; j < n; j++) {
        const float *key = c->keys + row[j] * width + g * hd;
        for (int h = 0; h < group; h++)
            score[h * room + j] = dot(q + h * hd, key, hd) * scale;
    }
    for (int h = 0; h < group; h++) {
        softmax(score + h * room, n);
        weighted_sum(out + h * hd, score + h * room, row, n, c->values + g * hd, width, hd);
    }
}

// ---- rows

static void rmsnorm(float *out, const float *x, const float *w, int64_t n, float eps)
{
    vf squares = { 0 };
    int64_t i = 0;
    for (; i + W <= n; i += W)
        squares += load(x + i) * load(x + i);
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

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define QUOTE_(a) #a
#define QUOTE(a) QUOTE_(a)

const struct lanes PASTE(lanes_, LANES) = {
    .name = QUOTE(LANES),
    .width = W,
    .expand = expand,
    .matmul = matmul,
    .attend = attend,
    .rmsnorm = rmsnorm,
    .swiglu = swiglu,
    .sum_exp = sum_exp,
};
