// quantize.c - quantizes floats as ggml's reference does: every operation in float32 and in the same order, since
// another order would round differently. (The build forbids contraction outside the kernels.)
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/quantize.h"

enum { BLOCK = 32 };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

// Rounds to nearest, ties to even. A number that is too large becomes infinite.
static uint16_t half_of(float x)
{
    uint32_t bits = bits_of(x), a = bits & 0x7FFFFFFF;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (a > 0x7F800000)
        return sign | 0x7E00;
    if (a >= 0x477FF000) // 65520 and above
        return sign | 0x7C00;
    if (a >= 0x38800000) // normal: rebias the exponent, round away the last thirteen bits
        return sign | (uint16_t)((a - 0x38000000 + 0xFFF + (a >> 13 & 1)) >> 13);
    // Subnormal, in steps of 2^-24: after adding 0.5 these are the last bits of the sum, rounded by the addition.
    float sum = fabsf(x) + 0.5f;
    return sign | (uint16_t)(bits_of(sum) - bits_of(0.5f));
}

// Returns false if it is not finite.
static bool put_half(uint8_t *to, float x)
{
    const uint16_t h = half_of(x);
    memcpy(to, &h, sizeof(h));
    return (h & 0x7C00) != 0x7C00;
}

// Returns the reciprocal of a scale; 0 for a scale so small that its reciprocal
// is infinite (as a half it is zero anyway).
static float inverse(float d)
{
    float i = d != 0 ? 1.0f / d : 0.0f;
    return isfinite(i) ? i : 0.0f;
}

static inline float largest(const float *x) // the number of largest magnitude in a block, with its sign
{
    float max_abs = 0, number = 0;
    for (int i = 0; i < BLOCK; i++)
        if (max_abs < fabsf(x[i])) {
            max_abs = fabsf(x[i]);
            number = x[i];
        }
    return number;
}

static bool q8_0(const float *x, uint8_t *b)
{
    float max_abs = 0;
    for (int i = 0; i < BLOCK; i++)
        max_abs = fabsf(x[i]) > max_abs ? fabsf(x[i]) : max_abs;
    float d = max_abs / 127, id = inverse(d);
    for (int i = 0; i < BLOCK; i++) {
        // This equals roundf, which most compilers compile to a call: adding
        // 0.49999997 never rounds up to the next integer.
        float v = x[i] * id;
        b[2 + i] = (uint8_t)(int8_t)(v + copysignf(0.49999997f, v));
    }
    return put_half(b, d);
}

// The number of largest magnitude maps exactly to the lowest of the steps -8 .. 7.
static bool q4_0(const float *x, uint8_t *b)
{
    const float d = largest(x) / -8, id = inverse(d);
    const bool ok = put_half(b, d);
    for (int i = 0; i < BLOCK / 2; i++) {
        int low = (int)(x[i] * id + 8.5f), high = (int)(x[i + BLOCK / 2] * id + 8.5f);
        b[2 + i] = (uint8_t)((low < 15 ? low : 15) | (high < 15 ? high : 15) << 4);
    }
    return ok;
}

// Writes the codes (32) of the numbers of `table` that are nearest to x in steps of d. Of two equally near numbers the
// first is taken.
static void put_codes(const int8_t table[16], const float *x, float d, uint8_t *b)
{
    uint8_t code[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        code[i] = 0;
        for (uint8_t k = 1; k < 16; k++)
            if (fabsf(d * (float)table[k] - x[i]) < fabsf(d * (float)table[code[i]] - x[i]))
                code[i] = k;
    }
    for (int i = 0; i < BLOCK / 2; i++)
        b[i] = (uint8_t)(code[i] | code[i + BLOCK / 2] << 4);
}

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

// The number of largest magnitude maps exactly to the lowest one of the table.
static bool iq4_nl(const float *x, uint8_t *b)
{
    const float d = largest(x) / -127;
    put_codes(iq4, x, d, b + 2);
    return put_half(b, d);
}

static bool iq4_xs(const float *x, uint8_t *b)
{
    float d = 0;
    for (int g = 0; g < 8; g++)
        d = fmaxf(d, fabsf(largest(x + BLOCK * g)) / (127 * 31));
    memset(b, 0, 8);
    for (int g = 0; g < 8; g++) {
        const int scale = (int)rintf(largest(x + BLOCK * g) / -127 * inverse(d)), stored = scale + 32;
        b[2 + g / 4] |= (uint8_t)(stored >> 4 << (2 * (g % 4)));
        b[4 + g / 2] |= (uint8_t)((stored & 15) << (4 * (g % 2)));
        put_codes(iq4, x + BLOCK * g, d * (float)scale, b + 8 + 16 * g);
    }
    return put_half(b, d);
}

// The scale is the power of two that brings the largest number to 4 .. 8. The table
// holds twice the numbers of four-bit floats.
static bool mxfp4(const float *x, uint8_t *b)
{
    static const int8_t number[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    const float max = fabsf(largest(x));
    int exponent = 0;
    frexpf(max, &exponent);
    b[0] = (uint8_t)(max == 0 || exponent < -124 ? 0 : exponent - 3 + 127);
    put_codes(number, x, ldexpf(1, b[0] - 128), b + 1);
    return true;
}

// Rounds to nearest, ties to even; a NaN becomes a quiet NaN.
static uint16_t bfloat_of(float x)
{
    uint32_t bits = bits_of(x);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static bool bf16(const float *x, int64_t n, uint8_t *to)
{
    uint16_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = bfloat_of(x[i]), exponent = h & 0x7F80;
        worst = exponent > worst ? exponent : worst;
        memcpy(to + 2 * i, &h, sizeof(h));
    }
    return worst != 0x7F80;
}

static bool all_finite(const float *x, int64_t n)
{
    uint32_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t exponent = bits_of(x[i]) & 0x7F800000;
        worst = exponent > worst ? exponent : worst;
    }
    return worst != 0x7F800000;
}

static bool (*const quantizers[TYPES])(const float *x, uint8_t *block) = {
    [Q8_0] = q8_0, [Q4_0] = q4_0, [IQ4_NL] = iq4_nl, [IQ4_XS] = iq4_xs, [MXFP4] = mxfp4,
};

bool quantize_floats(enum type type, const float *x, int64_t n, void *to)
{
    assert((type == F32 || type == BF16 || quantizers[type] != NULL) && n % type_facts[type].block == 0);
    uint8_t *b = to;
    if (type == BF16)
        return bf16(x, n, b);
    if (type == F32)
        memcpy(to, x, (size_t)n * sizeof(*x));
    const bool finite = all_finite(x, n); // the conversion of other numbers to an integer is undefined
    if (type == F32 || !finite)
        return finite;
    bool ok = true;
    for (int64_t i = 0; i < n; i += type_facts[type].block, b += type_facts[type].bytes)
        ok &= quantizers[type](x + i, b);
    return ok;
}
