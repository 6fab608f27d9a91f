#include "tests/formats/plain_quantize.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/quantize.h"

// Rounds to nearest, ties to even, as lrint does. Not every compiler has _Float16.
static uint16_t half(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs((double)x);
    assert(a < 65520);
    int exponent;
    if (a < 0x1p-14) // subnormal, in steps of 2^-24
        return sign | (uint16_t)lrint(a * 0x1p24);
    long m = lrint(frexp(a, &exponent) * 2048); // 1024 .. 2048: 2048 carries into the exponent
    return sign | (uint16_t)(((exponent + 13) << 10) + m);
}

static float from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, m = bits & 1023;
    assert(exponent != 31);
    double a = exponent != 0 ? ldexp(1024 + m, exponent - 25) : ldexp(m, -24);
    return (float)(bits & 0x8000 ? -a : a);
}

// Stores a scale as half and returns the value that a reader will see.
static float store_half(uint8_t *at, float x)
{
    uint16_t bits = half(x);
    memcpy(at, &bits, sizeof(bits));
    return from_half(bits);
}

// (x - from) / d rounded to an integer and clamped to min .. max.
static int steps(float x, float from, float d, int min, int max)
{
    long q = d != 0 ? lroundf((x - from) / d) : 0;
    return q < min ? min : q > max ? max : (int)q;
}

static float largest(const float *x, int n) // by magnitude, with its sign
{
    float v = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(v))
            v = x[i];
    return v;
}

static void bounds(const float *x, int n, float *min, float *max)
{
    *min = *max = x[0];
    for (int i = 1; i < n; i++) {
        *min = fminf(*min, x[i]);
        *max = fmaxf(*max, x[i]);
    }
}

static void q8_0(const float *x, uint8_t *b)
{
    float d = store_half(b, fabsf(largest(x, 32)) / 127);
    for (int i = 0; i < 32; i++)
        b[2 + i] = (uint8_t)(int8_t)steps(x[i], 0, d, -127, 127);
}

// Q4_0 and Q5_0: the number of largest magnitude maps exactly to the lowest step.
static void around_zero(const float *x, uint8_t *b, int bits)
{
    int middle = 1 << (bits - 1);
    float d = store_half(b, largest(x, 32) / (float)-middle);
    uint32_t high = 0;
    uint8_t *low = b + (bits == 5 ? 6 : 2);
    for (int i = 0; i < 16; i++) {
        int p = steps(x[i], 0, d, -middle, middle - 1) + middle,
            q = steps(x[i + 16], 0, d, -middle, middle - 1) + middle;
        low[i] = (uint8_t)((p & 15) | (q & 15) << 4);
        high |= (uint32_t)(p >> 4) << i | (uint32_t)(q >> 4) << (i + 16);
    }
    if (bits == 5)
        memcpy(b + 2, &high, sizeof(high));
}

// Q4_1 and Q5_1: steps up from the minimum.
static void from_minimum(const float *x, uint8_t *b, int bits)
{
    float min, max;
    bounds(x, 32, &min, &max);
    int top = (1 << bits) - 1;
    float d = store_half(b, (max - min) / (float)top), m = store_half(b + 2, min);
    uint32_t high = 0;
    uint8_t *low = b + (bits == 5 ? 8 : 4);
    for (int i = 0; i < 16; i++) {
        int p = steps(x[i], m, d, 0, top), q = steps(x[i + 16], m, d, 0, top);
        low[i] = (uint8_t)((p & 15) | (q & 15) << 4);
        high |= (uint32_t)(p >> 4) << i | (uint32_t)(q >> 4) << (i + 16);
    }
    if (bits == 5)
        memcpy(b + 4, &high, sizeof(high));
}

// Q4_K and Q5_K: eight groups of 32, each with a scale and a minimum of six bits.
static void k_blocks(const float *x, uint8_t *b, int bits)
{
    int top = (1 << bits) - 1, scale[8], minimum[8];
    float s[8], m[8], most_s = 0, most_m = 0;
    for (int k = 0; k < 8; k++) {
        float min, max;
        bounds(x + 32 * k, 32, &min, &max);
        m[k] = fmaxf(-min, 0);
        s[k] = (max + m[k]) / (float)top;
        most_s = fmaxf(most_s, s[k]);
        most_m = fmaxf(most_m, m[k]);
    }
    float d = store_half(b, most_s / 63), dmin = store_half(b + 2, most_m / 63);
    memset(b + 4, 0, 12);
    uint8_t *packed = b + 4, *high = b + 16, *low = b + (bits == 5 ? 48 : 16);
    for (int k = 0; k < 8; k++) {
        scale[k] = steps(s[k], 0, d, 0, 63);
        minimum[k] = steps(m[k], 0, dmin, 0, 63);
        if (k < 4) {
            packed[k] |= (uint8_t)scale[k];
            packed[k + 4] |= (uint8_t)minimum[k];
        } else {
            packed[k + 4] = (uint8_t)((scale[k] & 15) | (minimum[k] & 15) << 4);
            packed[k - 4] |= (uint8_t)((scale[k] >> 4) << 6);
            packed[k] |= (uint8_t)((minimum[k] >> 4) << 6);
        }
    }
    if (bits == 5)
        memset(high, 0, 32);
    memset(low, 0, 128);
    for (int i = 0; i < 256; i++) {
        int k = i / 32, l = i % 32;
        int q = steps(x[i], -dmin * (float)minimum[k], d * (float)scale[k], 0, top);
        low[32 * (i / 64) + l] |= (uint8_t)((q & 15) << 4 * (k & 1));
        if (bits == 5)
            high[l] |= (uint8_t)((q >> 4) << k);
    }
}

// Q6_K: sixteen groups of 16, each with a scale of eight bits; symmetric numbers of six bits.
static void q6_k(const float *x, uint8_t *b)
{
    uint8_t *low = b, *high = b + 128;
    int8_t scale[16];
    float s[16], max = 0;
    for (int k = 0; k < 16; k++) {
        s[k] = fabsf(largest(x + 16 * k, 16)) / 31;
        max = fmaxf(max, s[k]);
    }
    float d = store_half(b + 208, max / 127);
    for (int k = 0; k < 16; k++)
        scale[k] = (int8_t)steps(s[k], 0, d, 0, 127);
    memcpy(b + 192, scale, sizeof(scale));
    memset(b, 0, 192);
    for (int i = 0; i < 256; i++) {
        int half_block = i / 128, group = i % 128 / 32, l = i % 32;
        int q = steps(x[i], 0, d * (float)scale[i / 16], -32, 31) + 32;
        low[64 * half_block + l + 32 * (group & 1)] |= (uint8_t)((q & 15) << (group >= 2 ? 4 : 0));
        high[32 * half_block + l] |= (uint8_t)((q >> 4) << 2 * group);
    }
}

static void quantize_block(enum type type, const float *x, uint8_t *b)
{
    uint16_t bits;
    switch (type) {
    case F32:
        memcpy(b, x, sizeof(*x));
        break;
    case F16:
        bits = half(*x);
        memcpy(b, &bits, sizeof(bits));
        break;
    case Q8_0:
        q8_0(x, b);
        break;
    case Q4_0:
    case Q5_0:
        around_zero(x, b, type == Q4_0 ? 4 : 5);
        break;
    case Q4_1:
    case Q5_1:
        from_minimum(x, b, type == Q4_1 ? 4 : 5);
        break;
    case Q4_K:
    case Q5_K:
        k_blocks(x, b, type == Q4_K ? 4 : 5);
        break;
    case Q6_K:
        q6_k(x, b);
        break;
    default:
        assert(!"a type");
    }
}

void plain_quantize_row(enum type type, const float *x, int64_t n, void *to)
{
    const struct type_facts *f = &type_facts[type];
    assert(n % f->block == 0);
    if (type == BF16 || type == IQ4_NL || type == IQ4_XS || type == MXFP4) {
        const bool fits = quantize_floats(type, x, n, to);
        assert(fits);
        (void)fits;
        return;
    }
    for (int64_t i = 0; i < n / f->block; i++)
        quantize_block(type, x + i * f->block, (uint8_t *)to + i * f->bytes);
}
