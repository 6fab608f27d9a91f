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

// Rounds to nearest, ties to even; too large a number becomes infinite.
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

static bool is_finite_half(uint16_t h)
{
    return (h & 0x7C00) != 0x7C00;
}

// The reciprocal of a scale; 0 for a scale so small that its reciprocal is infinite (as a half it is zero anyway).
static float inverse(float d)
{
    float i = d != 0 ? 1.0f / d : 0.0f;
    return isfinite(i) ? i : 0.0f;
}

static bool q8_0(const float *x, uint8_t *b)
{
    float max_abs = 0;
    for (int i = 0; i < BLOCK; i++)
        max_abs = fabsf(x[i]) > max_abs ? fabsf(x[i]) : max_abs;
    float d = max_abs / 127, id = inverse(d);
    uint16_t scale = half_of(d);
    memcpy(b, &scale, sizeof(scale));
    for (int i = 0; i < BLOCK; i++) {
        // Equals roundf, which most compilers compile to a call: adding 0.49999997 never rounds up to the next integer.
        float v = x[i] * id;
        b[2 + i] = (uint8_t)(int8_t)(v + copysignf(0.49999997f, v));
    }
    return is_finite_half(scale);
}

// The number of largest magnitude maps exactly to the lowest of the steps -8 .. 7.
static bool q4_0(const float *x, uint8_t *b)
{
    float max_abs = 0, largest = 0;
    for (int i = 0; i < BLOCK; i++)
        if (max_abs < fabsf(x[i])) {
            max_abs = fabsf(x[i]);
            largest = x[i];
        }
    float d = largest / -8, id = inverse(d);
    uint16_t scale = half_of(d);
    memcpy(b, &scale, sizeof(scale));
    for (int i = 0; i < BLOCK / 2; i++) {
        int low = (int)(x[i] * id + 8.5f), high = (int)(x[i + BLOCK / 2] * id + 8.5f);
        b[2 + i] = (uint8_t)((low < 15 ? low : 15) | (high < 15 ? high : 15) << 4);
    }
    return is_finite_half(scale);
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

bool can_quantize_to(enum type type)
{
    return type == F32 || type == BF16 || type == Q8_0 || type == Q4_0;
}

bool quantize_floats(enum type type, const float *x, int64_t n, void *to)
{
    assert(can_quantize_to(type) && n % type_facts[type].block == 0);
    uint8_t *b = to;
    if (type == F32)
        memcpy(to, x, (size_t)n * sizeof(*x));
    if (type == F32)
        return all_finite(x, n);
    if (type == BF16)
        return bf16(x, n, b);
    if (!all_finite(x, n)) // conversion to an integer is undefined for others
        return false;
    bool ok = true;
    for (int64_t i = 0; i < n; i += BLOCK, b += type_facts[type].bytes)
        ok &= type == Q8_0 ? q8_0(x + i, b) : q4_0(x + i, b);
    return ok;
}
