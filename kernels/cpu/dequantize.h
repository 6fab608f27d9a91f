// dequantize.h - converts GGUF's block formats to floats, one row at a time. Only row_kernels.c includes it, which is
// compiled once for each instruction set.
//
// Layouts are those of block_q4_0 and its relatives in ggml (ggml-common.h). tests/device/test_row_operations.c
// compares with gguf-py.
#pragma once
#include <stdint.h>
#include <string.h>
#include "core/tensor.h"
#include "kernels/cpu/packed.h"

static void dequantize_f16(float *restrict to, const uint8_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = half_at(from + 2 * i);
}

static void dequantize_bf16(float *restrict to, const uint8_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, sizeof(h));
        to[i] = bits_to_float((uint32_t)h << 16);
    }
}

// Sixteen small unsigned integers, the unpacked numbers of a quantized format.
typedef uint8_t sixteen __attribute__((vector_size(16)));

static inline sixteen sixteen_at(const uint8_t *p)
{
    sixteen v;
    memcpy(&v, p, sizeof(v));
    return v;
}

// to (16) = (q - offset) * d + m
static inline void put_scaled(float *to, sixteen q, int offset, float d, float m)
{
    for (int i = 0; i < 16; i += W)
        store(to + i, (unsigned_bytes((const uint8_t *)&q + i) - splat((float)offset)) * splat(d) + splat(m));
}

static void dequantize_q8_0(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 32, b += 34, to += 32) {
        float d = half_at(b);
        put_scaled(to, sixteen_at(b + 2) ^ 0x80, 128, d, 0); // converts two's complement to an offset of 128
        put_scaled(to + 16, sixteen_at(b + 18) ^ 0x80, 128, d, 0);
    }
}

// Returns bit j of `high` as the fifth bit (16) of number j.
static inline sixteen fifth_bits(uint32_t high)
{
    const sixteen bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    uint8_t low = (uint8_t)high, top = (uint8_t)(high >> 8);
    sixteen spread = { low, low, low, low, low, low, low, low, top, top, top, top, top, top, top, top };
    return (sixteen)((spread & bit) != 0) & 16;
}

// Converts blocks of 32 numbers of four or five bits with a scale and, if they have one, a minimum.
INLINE void dequantize_32(float *restrict to, const uint8_t *restrict b, int64_t n, int bits, bool has_min)
{
    const int offset = has_min ? 0 : bits == 4 ? 8 : 16, numbers = 2 + (has_min ? 2 : 0) + (bits == 5 ? 4 : 0);
    for (; n > 0; n -= 32, b += numbers + 16, to += 32) {
        const float d = half_at(b), m = has_min ? half_at(b + 2) : 0;
        const sixteen q = sixteen_at(b + numbers);
        uint32_t high = 0;
        if (bits == 5)
            memcpy(&high, b + numbers - 4, sizeof(high));
        put_scaled(to, bits == 5 ? (q & 15) | fifth_bits(high) : q & 15, offset, d, m);
        put_scaled(to + 16, bits == 5 ? q >> 4 | fifth_bits(high >> 16) : q >> 4, offset, d, m);
    }
}

#define DEQUANTIZE_32(name, bits, has_min) \
    static void dequantize_##name(float *restrict to, const uint8_t *restrict b, int64_t n) \
    { \
        dequantize_32(to, b, n, bits, has_min); \
    }
DEQUANTIZE_32(q4_0, 4, false)
DEQUANTIZE_32(q4_1, 4, true)
DEQUANTIZE_32(q5_0, 5, false)
DEQUANTIZE_32(q5_1, 5, true)

// Returns one of the eight 6-bit scales and mins that Q4_K and Q5_K pack into 12 bytes.
static inline void scale_and_min(const uint8_t *s, int j, float *scale, float *min)
{
    if (j < 4) {
        *scale = (float)(s[j] & 63);
        *min = (float)(s[j + 4] & 63);
    } else {
        *scale = (float)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *min = (float)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
    }
}

// Converts blocks of 256 numbers of four or five bits.
INLINE void dequantize_256(float *restrict to, const uint8_t *restrict b, int64_t n, int bits)
{
    const int numbers = bits == 5 ? 48 : 16;
    for (; n > 0; n -= 256, b += numbers + 128, to += 256) {
        float d = half_at(b), dmin = half_at(b + 2), scale, min;
        for (int s = 0; s < 8; s++) {
            const uint8_t *q = b + numbers + 32 * (s / 2), *high = b + 16;
            int shift = 4 * (s & 1);
            scale_and_min(b + 4, s, &scale, &min);
            float ds = d * scale, dm = dmin * min;
            for (int j = 0; j < 32; j += 16) {
                sixteen four = sixteen_at(q + j) >> (uint8_t)shift & 15;
                if (bits == 5)
                    four |= (sixteen_at(high + j) >> (uint8_t)s & 1) << 4;
                put_scaled(to + 32 * s + j, four, 0, ds, -dm);
            }
        }
    }
}

static void dequantize_q4_k(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    dequantize_256(to, b, n, 4);
}

static void dequantize_q5_k(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    dequantize_256(to, b, n, 5);
}

static void dequantize_q6_k(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 256, b += 210, to += 256) {
        const int8_t *scale = (const int8_t *)b + 192;
        float d = half_at(b + 208);
        for (int half = 0; half < 2; half++)
            for (int g = 0; g < 4; g++) {
                const uint8_t *low = b + 64 * half + 32 * (g & 1), *high = b + 128 + 32 * half;
                float *out = to + 128 * half + 32 * g;
                int at = 8 * half + 2 * g;
                for (int j = 0; j < 32; j += 16) {
                    sixteen four = g >= 2 ? sixteen_at(low + j) >> 4 : sixteen_at(low + j) & 15;
                    put_scaled(out + j, four | (sixteen_at(high + j) >> (uint8_t)(2 * g) & 3) << 4, 32,
                               d * (float)scale[at + j / 16], 0);
                }
            }
    }
}

// Returns the numbers of 4-bit codes, + 128.
static inline sixteen numbers_of(const uint8_t table[16], sixteen codes)
{
    for (int i = 0; i < 16; i++)
        codes[i] = table[codes[i]];
    return codes;
}

// to (32) = d * the numbers of the codes at q
static inline void put_coded(float *to, const uint8_t table[16], const uint8_t *q, float d)
{
    put_scaled(to, numbers_of(table, sixteen_at(q) & 15), 128, d, 0);
    put_scaled(to + 16, numbers_of(table, sixteen_at(q) >> 4), 128, d, 0);
}

static void dequantize_iq4_nl(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 32, b += 18, to += 32)
        put_coded(to, iq4_numbers, b + 2, half_at(b));
}

static void dequantize_iq4_xs(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 256, b += 136, to += 256)
        for (int g = 0; g < 8; g++) {
            const int low = b[4 + g / 2] >> (4 * (g % 2)) & 15, high = (b[2] | b[3] << 8) >> (2 * g) & 3;
            put_coded(to + 32 * g, iq4_numbers, b + 8 + 16 * g, half_at(b) * (float)((low | high << 4) - 32));
        }
}

// The scale is half a power of two. Those of exponents 0 and 1 are subnormal.
static void dequantize_mxfp4(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 32, b += 17, to += 32)
        put_coded(to, mxfp4_numbers, b + 1, bits_to_float(b[0] == 0 ? 0x00400000 : (uint32_t)b[0] << 23) * 0.5f);
}

static void dequantize_f8(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 128, b += 132, to += 128) {
        float d;
        memcpy(&d, b, sizeof(d));
        for (int i = 0; i < 128; i++)
            to[i] = bits_to_float((uint32_t)(b[4 + i] & 0x7F) << 20 | (uint32_t)(b[4 + i] & 0x80) << 24) * 0x1p120f * d;
    }
}

static void dequantize_f32(float *restrict to, const uint8_t *restrict from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof(float));
}

static void dequantize(float *to, const void *row, enum type type, int64_t n)
{
    static void (*const by_type[TYPES])(float *restrict to, const uint8_t *restrict from, int64_t n) = {
        [F32] = dequantize_f32,       [F16] = dequantize_f16,     [BF16] = dequantize_bf16,
        [Q8_0] = dequantize_q8_0,     [Q4_0] = dequantize_q4_0,   [Q4_1] = dequantize_q4_1,
        [Q5_0] = dequantize_q5_0,     [Q5_1] = dequantize_q5_1,   [Q4_K] = dequantize_q4_k,
        [Q5_K] = dequantize_q5_k,     [Q6_K] = dequantize_q6_k,   [IQ4_NL] = dequantize_iq4_nl,
        [IQ4_XS] = dequantize_iq4_xs, [MXFP4] = dequantize_mxfp4, [F8_E4M3] = dequantize_f8,
    };
    by_type[type](to, row, n);
}
