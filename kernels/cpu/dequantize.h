// dequantize.h - GGUF's block formats to floats, one row at a time. Included by row_kernels.c only, which is compiled once
// for each instruction set.
//
// Layouts: block_q4_0 and its relatives of ggml (ggml-common.h); checked against gguf-py in tests/device/test_row_operations.c.
#pragma once
#include <stdint.h>
#include <string.h>
#include "core/tensor.h"
#include "kernels/cpu/codes.h"

static inline float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return half_to_float(h);
}

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

// Sixteen small unsigned integers: the unpacked numbers of a quantized format.
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
        put_scaled(to, sixteen_at(b + 2) ^ 0x80, 128, d, 0); // two's complement to an offset of 128
        put_scaled(to + 16, sixteen_at(b + 18) ^ 0x80, 128, d, 0);
    }
}

static void dequantize_q4_0(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 32, b += 18, to += 32) {
        float d = half_at(b);
        sixteen q = sixteen_at(b + 2);
        put_scaled(to, q & 15, 8, d, 0);
        put_scaled(to + 16, q >> 4, 8, d, 0);
    }
}

static void dequantize_q4_1(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 32, b += 20, to += 32) {
        float d = half_at(b), m = half_at(b + 2);
        sixteen q = sixteen_at(b + 4);
        put_scaled(to, q & 15, 0, d, m);
        put_scaled(to + 16, q >> 4, 0, d, m);
    }
}

// Bit j of `high` as the fifth bit (16) of number j.
static inline sixteen fifth_bits(uint32_t high)
{
    const sixteen bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    uint8_t low = (uint8_t)high, top = (uint8_t)(high >> 8);
    sixteen spread = { low, low, low, low, low, low, low, low, top, top, top, top, top, top, top, top };
    return (sixteen)((spread & bit) != 0) & 16;
}

static void dequantize_q5_0(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 32, b += 22, to += 32) {
        float d = half_at(b);
        uint32_t high;
        memcpy(&high, b + 2, sizeof(high));
        sixteen q = sixteen_at(b + 6);
        put_scaled(to, (q & 15) | fifth_bits(high), 16, d, 0);
        put_scaled(to + 16, q >> 4 | fifth_bits(high >> 16), 16, d, 0);
    }
}

static void dequantize_q5_1(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 32, b += 24, to += 32) {
        float d = half_at(b), m = half_at(b + 2);
        uint32_t high;
        memcpy(&high, b + 4, sizeof(high));
        sixteen q = sixteen_at(b + 8);
        put_scaled(to, (q & 15) | fifth_bits(high), 0, d, m);
        put_scaled(to + 16, q >> 4 | fifth_bits(high >> 16), 0, d, m);
    }
}

// The eight 6-bit scales and mins that Q4_K and Q5_K pack into 12 bytes.
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

static void dequantize_q4_k(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 256, b += 144, to += 256) {
        float d = half_at(b), dmin = half_at(b + 2), scale, min;
        for (int s = 0; s < 8; s++) {
            const uint8_t *q = b + 16 + 32 * (s / 2);
            int shift = 4 * (s & 1);
            scale_and_min(b + 4, s, &scale, &min);
            float ds = d * scale, dm = dmin * min;
            for (int j = 0; j < 32; j += 16)
                put_scaled(to + 32 * s + j, sixteen_at(q + j) >> (uint8_t)shift & 15, 0, ds, -dm);
        }
    }
}

static void dequantize_q5_k(float *restrict to, const uint8_t *restrict b, int64_t n)
{
    for (; n > 0; n -= 256, b += 176, to += 256) {
        float d = half_at(b), dmin = half_at(b + 2), scale, min;
        for (int s = 0; s < 8; s++) {
            const uint8_t *q = b + 48 + 32 * (s / 2), *high = b + 16;
            int shift = 4 * (s & 1);
            scale_and_min(b + 4, s, &scale, &min);
            float ds = d * scale, dm = dmin * min;
            for (int j = 0; j < 32; j += 16)
                put_scaled(to + 32 * s + j,
                           (sixteen_at(q + j) >> (uint8_t)shift & 15) | (sixteen_at(high + j) >> (uint8_t)s & 1) << 4,
                           0, ds, -dm);
        }
    }
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

// The numbers of 4-bit codes, + 128.
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

// The scale is half a power of two; that of 0 and of 1 is subnormal.
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

static void dequantize(float *to, const void *row, enum type type, int64_t n)
{
    switch (type) {
    case F32:
        memcpy(to, row, (size_t)n * sizeof(float));
        break;
    case F16:
        dequantize_f16(to, row, n);
        break;
    case BF16:
        dequantize_bf16(to, row, n);
        break;
    case Q8_0:
        dequantize_q8_0(to, row, n);
        break;
    case Q4_0:
        dequantize_q4_0(to, row, n);
        break;
    case Q4_1:
        dequantize_q4_1(to, row, n);
        break;
    case Q5_0:
        dequantize_q5_0(to, row, n);
        break;
    case Q5_1:
        dequantize_q5_1(to, row, n);
        break;
    case Q4_K:
        dequantize_q4_k(to, row, n);
        break;
    case Q5_K:
        dequantize_q5_k(to, row, n);
        break;
    case Q6_K:
        dequantize_q6_k(to, row, n);
        break;
    case IQ4_NL:
        dequantize_iq4_nl(to, row, n);
        break;
    case IQ4_XS:
        dequantize_iq4_xs(to, row, n);
        break;
    case MXFP4:
        dequantize_mxfp4(to, row, n);
        break;
    case F8_E4M3:
        dequantize_f8(to, row, n);
        break;
    case TYPES:
        break;
    }
}
