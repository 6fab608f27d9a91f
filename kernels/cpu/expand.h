// expand.h - GGUF's block formats back to floats, one row at a time; included by lanes.c alone, so
// that the compiler vectorises it for each instruction set.
//
// Layouts: ggml's block_q4_0 and relatives, as written down in docs/architecture.md (formats); checked against
// gguf-py in tests/test_kernels.c.
#pragma once
#include <stdint.h>
#include <string.h>
#include "core/tensor.h"

static inline float bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

// Scaling by 2^112 moves a half's exponent to a float's and makes subnormals normal on the way; infinities and NaNs keep
// all exponent bits.
static inline float half_to_float(uint16_t h)
{
    float magnitude = bits_to_float((uint32_t)(h & 0x7FFF) << 13) * 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    bits |= (h & 0x7C00) == 0x7C00 ? 0x7F800000u : 0;
    return bits_to_float(bits | (uint32_t)(h & 0x8000) << 16);
}

static inline float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return half_to_float(h);
}

static void expand_f16(float *to, const uint8_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = half_at(from + 2 * i);
}

static void expand_bf16(float *to, const uint8_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, sizeof(h));
        to[i] = bits_to_float((uint32_t)h << 16);
    }
}

static void expand_q8_0(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 32, b += 34, to += 32) {
        float d = half_at(b);
        for (int j = 0; j < 32; j++)
            to[j] = d * (float)(int8_t)b[2 + j];
    }
}

static void expand_q4_0(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 32, b += 18, to += 32) {
        float d = half_at(b);
        for (int j = 0; j < 16; j++)
            to[j] = d * (float)((b[2 + j] & 15) - 8);
        for (int j = 0; j < 16; j++)
            to[16 + j] = d * (float)((b[2 + j] >> 4) - 8);
    }
}

static void expand_q4_1(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 32, b += 20, to += 32) {
        float d = half_at(b), m = half_at(b + 2);
        for (int j = 0; j < 16; j++)
            to[j] = d * (float)(b[4 + j] & 15) + m;
        for (int j = 0; j < 16; j++)
            to[16 + j] = d * (float)(b[4 + j] >> 4) + m;
    }
}

static void expand_q5_0(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 32, b += 22, to += 32) {
        float d = half_at(b);
        uint32_t high;
        memcpy(&high, b + 2, sizeof(high));
        for (int j = 0; j < 16; j++)
            to[j] = d * (float)((int)((b[6 + j] & 15) | (high >> j & 1) << 4) - 16);
        for (int j = 0; j < 16; j++)
            to[16 + j] = d * (float)((int)((b[6 + j] >> 4) | (high >> (j + 16) & 1) << 4) - 16);
    }
}

static void expand_q5_1(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 32, b += 24, to += 32) {
        float d = half_at(b), m = half_at(b + 2);
        uint32_t high;
        memcpy(&high, b + 4, sizeof(high));
        for (int j = 0; j < 16; j++)
            to[j] = d * (float)((b[8 + j] & 15) | (high >> j & 1) << 4) + m;
        for (int j = 0; j < 16; j++)
            to[16 + j] = d * (float)((b[8 + j] >> 4) | (high >> (j + 16) & 1) << 4) + m;
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

static void expand_q4_k(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 256, b += 144, to += 256) {
        float d = half_at(b), dmin = half_at(b + 2), scale, min;
        for (int s = 0; s < 8; s++) {
            const uint8_t *q = b + 16 + 32 * (s / 2);
            int shift = 4 * (s & 1);
            scale_and_min(b + 4, s, &scale, &min);
            float ds = d * scale, dm = dmin * min;
            for (int j = 0; j < 32; j++)
                to[32 * s + j] = ds * (float)(q[j] >> shift & 15) - dm;
        }
    }
}

static void expand_q5_k(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 256, b += 176, to += 256) {
        float d = half_at(b), dmin = half_at(b + 2), scale, min;
        for (int s = 0; s < 8; s++) {
            const uint8_t *q = b + 48 + 32 * (s / 2), *high = b + 16;
            int shift = 4 * (s & 1);
            scale_and_min(b + 4, s, &scale, &min);
            float ds = d * scale, dm = dmin * min;
            for (int j = 0; j < 32; j++)
                to[32 * s + j] = ds * (float)((q[j] >> shift & 15) + (high[j] >> s & 1) * 16) - dm;
        }
    }
}

static void expand_q6_k(float *to, const uint8_t *b, int64_t n)
{
    for (; n > 0; n -= 256, b += 210, to += 256) {
        const int8_t *scale = (const int8_t *)b + 192;
        float d = half_at(b + 208);
        for (int half = 0; half < 2; half++)
            for (int g = 0; g < 4; g++) {
                const uint8_t *low = b + 64 * half + 32 * (g & 1), *high = b + 128 + 32 * half;
                float *out = to + 128 * half + 32 * g;
                int at = 8 * half + 2 * g;
                for (int j = 0; j < 32; j++) {
                    int q = (g >= 2 ? low[j] >> 4 : low[j] & 15) | (high[j] >> 2 * g & 3) << 4;
                    out[j] = d * (float)scale[at + j / 16] * (float)(q - 32);
                }
            }
    }
}

static void expand(float *to, const void *row, enum type type, int64_t n)
{
    switch (type) {
    case F32:
        memcpy(to, row, (size_t)n * sizeof(float));
        break;
    case F16:
        expand_f16(to, row, n);
        break;
    case BF16:
        expand_bf16(to, row, n);
        break;
    case Q8_0:
        expand_q8_0(to, row, n);
        break;
    case Q4_0:
        expand_q4_0(to, row, n);
        break;
    case Q4_1:
        expand_q4_1(to, row, n);
        break;
    case Q5_0:
        expand_q5_0(to, row, n);
        break;
    case Q5_1:
        expand_q5_1(to, row, n);
        break;
    case Q4_K:
        expand_q4_k(to, row, n);
        break;
    case Q5_K:
        expand_q5_k(to, row, n);
        break;
    case Q6_K:
        expand_q6_k(to, row, n);
        break;
    case TYPES:
        break;
    }
}
