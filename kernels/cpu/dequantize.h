// dequantize.h - converts rows of any type to floats. Only row_kernels.c includes it, which is compiled once for each
// instruction set.
#pragma once
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/packed.h"

static void dequantize_f32(float *restrict to, const uint8_t *restrict from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof(float));
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

// Returns the scale of half 0 or 1 of a group of a block, and sets *min to what is added.
INLINE float group_scale(enum scaling scaling, const uint8_t *d, const struct block_group *x, int half, float *min)
{
    float of_block;
    switch (scaling) {
    case SCALING_POWER: // that of exponents 0 is subnormal
        return bits_to_float(x->scale[half] == 0 ? 0x00400000 : (uint32_t)x->scale[half] << 23);
    case SCALING_FLOAT:
        memcpy(&of_block, d, sizeof(of_block));
        return of_block;
    case SCALING_MIN:
        *min = half_at(d + 2);
        return half_at(d);
    case SCALING_SUPER:
        *min = -(half_at(d + 2) * (float)x->min);
        return half_at(d) * (float)x->scale[half];
    case SCALING_SUB_BLOCK:
        return half_at(d) * (float)(int8_t)x->scale[half];
    default:
        return half_at(d);
    }
}

// to (16) = (q - offset) * d + m
INLINE void put_scaled(float *to, sixteen q, int offset, float d, float m)
{
    for (int i = 0; i < 16; i += W)
        store(to + i, (unsigned_bytes((const uint8_t *)&q + i) - splat((float)offset)) * splat(d) + splat(m));
}

INLINE void put_codes(float *to, const uint8_t table[16], sixteen codes, float d)
{
    for (int i = 0; i < 16; i++)
        codes[i] = table[codes[i]];
    put_scaled(to, codes, 128, d, 0);
}

INLINE void put_small_floats(float *to, sixteen q, float d) // eight bits each
{
    for (int i = 0; i < 16; i += W) {
        const vi b = __builtin_convertvector(unsigned_bytes((const uint8_t *)&q + i), vi);
        store(to + i, e4m3_floats((vu)b) * splat(d));
    }
}

INLINE void put_group(float *to, struct type_facts f, const uint8_t *b, struct block_group x)
{
    for (int half = 0; half < 2; half++) {
        float m = 0;
        const float d = group_scale(f.scaling, b + f.d_at, &x, half, &m);
        const bool has_min = f.scaling == SCALING_MIN || f.scaling == SCALING_SUPER;
        if (f.numbers == NUMBERS_IQ4)
            put_codes(to + 16 * half, iq4_numbers, x.q[half], d);
        else if (f.numbers == NUMBERS_E2M1)
            put_codes(to + 16 * half, mxfp4_numbers, x.q[half], d * 0.5f); // the table has twice the numbers
        else if (f.numbers == NUMBERS_E4M3)
            put_small_floats(to + 16 * half, x.q[half], d);
        else
            put_scaled(to + 16 * half, x.q[half], has_min ? 0 : 1 << (f.bits - 1), d, m);
    }
}

#define DEQUANTIZE(TYPE, name, block, bytes, ggml, bits, numbers, scaling, d_at) \
    static void dequantize_##name(float *restrict to, const uint8_t *restrict b, int64_t n) \
    { \
        const struct type_facts f = TYPE_FACTS(TYPE, name, block, bytes, ggml, bits, numbers, scaling, d_at); \
        for (; n > 0; n -= block, b += bytes, to += block) \
            UNROLL \
        for (int g = 0; g < block / GROUP; g++) \
            put_group(to + GROUP * g, f, b, read_##name(b, g)); \
    }
BLOCK_TYPES(DEQUANTIZE)

static void dequantize(float *to, const void *row, enum type type, int64_t n)
{
#define DEQUANTIZER(TYPE, name, ...) dequantize_##name,
    static void (*const by_type[TYPES])(float *restrict to, const uint8_t *restrict from,
                                        int64_t n) = { ALL_TYPES(DEQUANTIZER) };
    by_type[type](to, row, n);
}
