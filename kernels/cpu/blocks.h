// blocks.h - reads the blocks of GGUF's types, 32 numbers at a time: one function a type, for packing (pack.c) and for
// rows as floats (dequantize.h).
//
// Layouts are those of block_q4_0 and its relatives in ggml (ggml-common.h). tests/device/test_row_operations.c
// compares with gguf-py.
#pragma once
#include <stdint.h>
#include <string.h>
#include "core/tensor.h"

// Sixteen small unsigned integers, the unpacked numbers of a quantized format.
typedef uint8_t sixteen __attribute__((vector_size(16)));

struct block_group { // 32 numbers of a block
    sixteen q[2];    // integers, + 2^(bits - 1) if they are signed; codes; or eight-bit floats
    // What the block stores for them, as the type's scaling says: a scale of all (in both) or of each half, and a
    // minimum. Those of a whole block lie at type_facts.d_at.
    uint8_t scale[2], min;
};

#define READER static inline __attribute__((always_inline)) struct block_group

static inline sixteen sixteen_at(const uint8_t *p)
{
    sixteen v;
    memcpy(&v, p, sizeof(v));
    return v;
}

READER bytes_of(const uint8_t *p)
{
    return (struct block_group){ .q = { sixteen_at(p), sixteen_at(p + 16) } };
}

// Returns numbers of four bits: first the low halves of sixteen bytes, then the high ones.
READER nibbles_of(const uint8_t *p)
{
    return (struct block_group){ .q = { sixteen_at(p) & 15, sixteen_at(p) >> 4 } };
}

// Returns bit j of `high` as the fifth bit (16) of number j.
static inline sixteen fifth_bits(uint32_t high)
{
    const sixteen bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    uint8_t low = (uint8_t)high, top = (uint8_t)(high >> 8);
    sixteen spread = { low, low, low, low, low, low, low, low, top, top, top, top, top, top, top, top };
    return (sixteen)((spread & bit) != 0) & 16;
}

READER five_bits_of(const uint8_t *p) // fifth bits (4), then nibbles (16)
{
    struct block_group x = nibbles_of(p + 4);
    uint32_t high;
    memcpy(&high, p, sizeof(high));
    x.q[0] |= fifth_bits(high);
    x.q[1] |= fifth_bits(high >> 16);
    return x;
}

// ---- blocks of 32

READER read_q8_0(const uint8_t *b, int g)
{
    struct block_group x = bytes_of(b + 2 + 32 * g);
    x.q[0] ^= 0x80; // converts two's complement to an offset of 128
    x.q[1] ^= 0x80;
    return x;
}

READER read_q4_0(const uint8_t *b, int g)
{
    return nibbles_of(b + 2 + 16 * g);
}

READER read_q4_1(const uint8_t *b, int g)
{
    return nibbles_of(b + 4 + 16 * g);
}

READER read_q5_0(const uint8_t *b, int g)
{
    return five_bits_of(b + 2 + 20 * g);
}

READER read_q5_1(const uint8_t *b, int g)
{
    return five_bits_of(b + 4 + 20 * g);
}

READER read_iq4_nl(const uint8_t *b, int g)
{
    return nibbles_of(b + 2 + 16 * g);
}

READER read_mxfp4(const uint8_t *b, int g)
{
    struct block_group x = nibbles_of(b + 1 + 16 * g);
    x.scale[0] = x.scale[1] = b[0];
    return x;
}

// ---- larger blocks

READER read_f8_e4m3(const uint8_t *b, int g)
{
    return bytes_of(b + 4 + 32 * g);
}

// Reads 4 bits at b + `numbers`, and the scale and minimum of 6 bits, of which eight each are packed into 12 bytes.
READER read_super(const uint8_t *b, int g, int numbers)
{
    const uint8_t *q = b + numbers + 32 * (g / 2), *s = b + 4 + g, shift = (uint8_t)(4 * (g % 2));
    struct block_group x = { .q = { sixteen_at(q) >> shift & 15, sixteen_at(q + 16) >> shift & 15 } };
    x.scale[0] = x.scale[1] = (uint8_t)(g < 4 ? s[0] & 63 : (s[4] & 15) | s[-4] >> 6 << 4);
    x.min = (uint8_t)(g < 4 ? s[4] & 63 : s[4] >> 4 | s[0] >> 6 << 4);
    return x;
}

READER read_q4_k(const uint8_t *b, int g)
{
    return read_super(b, g, 16);
}

READER read_q5_k(const uint8_t *b, int g)
{
    struct block_group x = read_super(b, g, 48);
    for (int half = 0; half < 2; half++)
        x.q[half] |= (sixteen_at(b + 16 + 16 * half) >> (uint8_t)g & 1) << 4;
    return x;
}

READER read_q6_k(const uint8_t *b, int g)
{
    const uint8_t *low = b + 64 * (g / 4) + 32 * (g % 2), *high = b + 128 + 32 * (g / 4);
    struct block_group x = { .scale = { b[192 + 2 * g], b[193 + 2 * g] } };
    for (int half = 0; half < 2; half++)
        x.q[half] = (sixteen_at(low + 16 * half) >> (uint8_t)(g % 4 / 2 * 4) & 15) |
                    (sixteen_at(high + 16 * half) >> (uint8_t)(2 * (g % 4)) & 3) << 4;
    return x;
}

READER read_iq4_xs(const uint8_t *b, int g)
{
    struct block_group x = nibbles_of(b + 8 + 16 * g);
    const int low = b[4 + g / 2] >> (4 * (g % 2)) & 15, high = (b[2] | b[3] << 8) >> (2 * g) & 3;
    x.scale[0] = x.scale[1] = (uint8_t)((low | high << 4) - 32);
    return x;
}
