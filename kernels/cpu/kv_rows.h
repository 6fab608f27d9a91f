// kv_rows.h - converts rows of the KV cache to floats: one row at a time, or sixteen rows transposed, so that a
// register holds one element of each. Only attention_kernels.c includes it, which is compiled once for each instruction
// set.
#pragma once
#include <stdint.h>
#include <string.h>
#include "core/tensor.h"

enum { KEY_TILE = 16 }; // number of rows that are transposed together

INLINE vf bf16_lanes(const uint8_t *p)
{
    typedef uint16_t vh __attribute__((vector_size(W * 2)));
    vh h;
    memcpy(&h, p, sizeof(h));
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

// Returns the scale of element d of a row of Q8_0.
INLINE float q8_0_scale(const uint8_t *row, int64_t d)
{
    return half_at(row + d / 32 * 34);
}

// Returns elements d .. d + W of a row. For Q8_0 they are in one block.
INLINE vf row_lanes(enum type type, const uint8_t *row, int64_t d)
{
    if (type == BF16)
        return bf16_lanes(row + 2 * d);
    if (type == Q8_0)
        return signed_bytes(row + d / 32 * 34 + 2 + d % 32) * splat(q8_0_scale(row, d));
    return load((const float *)row + d);
}

INLINE float row_element(enum type type, const uint8_t *row, int64_t d)
{
    if (type == BF16) {
        uint16_t h;
        memcpy(&h, row + 2 * d, sizeof(h));
        return bits_to_float((uint32_t)h << 16);
    }
    if (type == Q8_0)
        return (float)(int8_t)row[d / 32 * 34 + 2 + d % 32] * q8_0_scale(row, d);
    float f;
    memcpy(&f, row + 4 * d, sizeof(f));
    return f;
}

INLINE void store_column(float *to, vf v, enum type type, const float *scale)
{
    store(to, type == Q8_0 ? v * load(scale) : v);
}

// Returns the same elements, but for Q8_0 the integers, which are scaled after the transposition.
INLINE vf unscaled_lanes(enum type type, const uint8_t *row, int64_t d)
{
    return type == Q8_0 ? signed_bytes(row + d / 32 * 34 + 2 + d % 32) : row_lanes(type, row, d);
}

// to [W][KEY_TILE] = elements d .. d + W of sixteen rows, one row per column. scale (KEY_TILE): the rows' scales there,
// for Q8_0.
INLINE void transpose_square(float *to, enum type type, const uint8_t *const row[KEY_TILE], int64_t d,
                             const float *scale)
{
#if defined(__AVX512F__)
    __m512 a[16], b[16];
    UNROLL
    for (int i = 0; i < 16; i++)
        a[i] = (__m512)unscaled_lanes(type, row[i], d);
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        a[i] = (__m512)_mm512_unpacklo_pd((__m512d)b[i], (__m512d)b[i + 2]);
        a[i + 1] = (__m512)_mm512_unpackhi_pd((__m512d)b[i], (__m512d)b[i + 2]);
        a[i + 2] = (__m512)_mm512_unpacklo_pd((__m512d)b[i + 1], (__m512d)b[i + 3]);
        a[i + 3] = (__m512)_mm512_unpackhi_pd((__m512d)b[i + 1], (__m512d)b[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) { // rows 4 i .. of each half; quarters of 128 bits
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xDD);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xDD);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        store_column(to + i * 16, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88), type, scale);
        store_column(to + (i + 8) * 16, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xDD), type, scale);
        store_column(to + (i + 4) * 16, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88), type, scale);
        store_column(to + (i + 12) * 16, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xDD), type, scale);
    }
#elif defined(__AVX2__)
    for (int half = 0; half < KEY_TILE; half += 8) {
        __m256 a[8], b[8];
        UNROLL
        for (int i = 0; i < 8; i++)
            a[i] = (__m256)unscaled_lanes(type, row[half + i], d);
        UNROLL
        for (int i = 0; i < 8; i += 2) {
            b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
            b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
        }
        UNROLL
        for (int i = 0; i < 8; i += 4) {
            a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
            a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xEE);
            a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
            a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            store_column(to + i * KEY_TILE + half, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20), type, scale + half);
            store_column(to + (i + 4) * KEY_TILE + half, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31), type,
                         scale + half);
        }
    }
#elif defined(NEON)
    for (int i = 0; i < KEY_TILE; i += 4) {
        float32x4_t a[4];
        UNROLL
        for (int r = 0; r < 4; r++)
            a[r] = (float32x4_t)unscaled_lanes(type, row[i + r], d);
        const float32x4x2_t b = vtrnq_f32(a[0], a[1]), c = vtrnq_f32(a[2], a[3]);
        UNROLL
        for (int e = 0; e < 2; e++) {
            const float32x4_t low = vcombine_f32(vget_low_f32(b.val[e]), vget_low_f32(c.val[e]));
            const float32x4_t high = vcombine_f32(vget_high_f32(b.val[e]), vget_high_f32(c.val[e]));
            store_column(to + e * KEY_TILE + i, (vf)low, type, scale + i);
            store_column(to + (e + 2) * KEY_TILE + i, (vf)high, type, scale + i);
        }
    }
#else
    for (int i = 0; i < KEY_TILE; i++) {
        vf v = unscaled_lanes(type, row[i], d);
        for (int e = 0; e < W; e++)
            to[e * KEY_TILE + i] = type == Q8_0 ? v[e] * scale[i] : v[e];
    }
#endif
}

INLINE void transpose_rows_of(float *to, enum type type, const uint8_t *const row[KEY_TILE], int64_t from, int hd)
{
    float scale[KEY_TILE];
    int d = 0;
    for (; d + W <= hd; d += W) {
        if (type == Q8_0 && d % 32 == 0)
            for (int i = 0; i < KEY_TILE; i++)
                scale[i] = q8_0_scale(row[i], from + d);
        transpose_square(to + d * KEY_TILE, type, row, from + d, scale);
    }
    for (; d < hd; d++)
        for (int i = 0; i < KEY_TILE; i++)
            to[d * KEY_TILE + i] = row_element(type, row[i], from + d);
}

// to (hd, KEY_TILE) = elements from .. from + hd of sixteen cache rows.
static void transpose_rows(float *to, enum type type, const uint8_t *const row[KEY_TILE], int64_t from, int hd)
{
    if (type == BF16)
        transpose_rows_of(to, BF16, row, from, hd);
    else if (type == Q8_0)
        transpose_rows_of(to, Q8_0, row, from, hd);
    else
        transpose_rows_of(to, F32, row, from, hd);
}

INLINE void row_floats_of(float *to, enum type type, const uint8_t *row, int64_t from, int hd)
{
    int d = 0;
    for (; d + W <= hd; d += W)
        store(to + d, row_lanes(type, row, from + d));
    for (; d < hd; d++)
        to[d] = row_element(type, row, from + d);
}

static void row_floats(float *to, enum type type, const uint8_t *row, int64_t from, int hd)
{
    if (type == BF16)
        row_floats_of(to, BF16, row, from, hd);
    else if (type == Q8_0)
        row_floats_of(to, Q8_0, row, from, hd);
    else
        row_floats_of(to, F32, row, from, hd);
}
