// kv_rows.h - rows of the KV cache as floats: one row at a time, or sixteen rows transposed, so that a register holds one
// element of each. Included by attention_kernels.c only, which is compiled once for each instruction set.
#pragma once
#include <stdint.h>
#include <string.h>
#include "core/tensor.h"

enum { KEY_TILE = 16 }; // rows transposed together

INLINE vf bf16_lanes(const uint8_t *p)
{
    typedef uint16_t vh __attribute__((vector_size(W * 2)));
    vh h;
    memcpy(&h, p, sizeof(h));
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

// Elements d .. d + W of a row; for Q8_0 they lie in one block.
INLINE vf row_lanes(enum type type, const uint8_t *row, int64_t d)
{
    if (type == BF16)
        return bf16_lanes(row + 2 * d);
    if (type == Q8_0) {
        const uint8_t *b = row + d / 32 * 34;
        uint16_t h;
        memcpy(&h, b, sizeof(h));
        return signed_bytes(b + 2 + d % 32) * splat(half_to_float(h));
    }
    return load((const float *)row + d);
}

INLINE float row_element(enum type type, const uint8_t *row, int64_t d)
{
    if (type == BF16) {
        uint16_t h;
        memcpy(&h, row + 2 * d, sizeof(h));
        return bits_to_float((uint32_t)h << 16);
    }
    if (type == Q8_0) {
        const uint8_t *b = row + d / 32 * 34;
        uint16_t h;
        memcpy(&h, b, sizeof(h));
        return (float)(int8_t)b[2 + d % 32] * half_to_float(h);
    }
    float f;
    memcpy(&f, row + 4 * d, sizeof(f));
    return f;
}

// to [W][KEY_TILE] = elements d .. d + W of sixteen rows, one row per column.
INLINE void transpose_square(float *to, enum type type, const uint8_t *const row[KEY_TILE], int64_t d)
{
#if defined(__AVX512F__)
    __m512 a[16], b[16];
    UNROLL
    for (int i = 0; i < 16; i++)
        a[i] = (__m512)row_lanes(type, row[i], d);
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
        _mm512_storeu_ps(to + i * 16, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_ps(to + (i + 8) * 16, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xDD));
        _mm512_storeu_ps(to + (i + 4) * 16, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88));
        _mm512_storeu_ps(to + (i + 12) * 16, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xDD));
    }
#elif defined(__AVX2__)
    for (int half = 0; half < KEY_TILE; half += 8) {
        __m256 a[8], b[8];
        UNROLL
        for (int i = 0; i < 8; i++)
            a[i] = (__m256)row_lanes(type, row[half + i], d);
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
            _mm256_storeu_ps(to + i * KEY_TILE + half, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
            _mm256_storeu_ps(to + (i + 4) * KEY_TILE + half, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
        }
    }
#else
    for (int i = 0; i < KEY_TILE; i++) {
        vf v = row_lanes(type, row[i], d);
        for (int e = 0; e < W; e++)
            to[e * KEY_TILE + i] = v[e];
    }
#endif
}

INLINE void transpose_rows_of(float *to, enum type type, const uint8_t *const row[KEY_TILE], int64_t from, int hd)
{
    int d = 0;
    for (; d + W <= hd; d += W)
        transpose_square(to + d * KEY_TILE, type, row, from + d);
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
