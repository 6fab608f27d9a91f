// unpack.h - GGUF's quantized blocks, one number at a time: quantized value, scale and minimum. For packing (once),
// embedding rows (few) and the reference products of matmul_plain.cu. For .cu files only.
//
// Layouts: block_q4_0 and its relatives of ggml (ggml-common.h), as in kernels/cpu/blocks.h.
#pragma once
#include "kernels/cuda/packed.h"

namespace DEVICE_SPACE
{

struct block_size {
    int numbers, bytes;
};

__host__ __device__ constexpr struct block_size block_of(enum type type)
{
    switch (type) {
#define CASE(TYPE, name, numbers, bytes, ...) \
    case TYPE: \
        return { numbers, bytes };
        ALL_TYPES(CASE)
#undef CASE
    default:
        return { 1, 1 };
    }
}

__device__ inline uint16_t bits_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

// The number of a code of iq4_nl and iq4_xs.
__device__ inline int iq4_number(int code)
{
    const uint64_t low = 0xF6EADDCFBFAD9881, high = 0x7159453526190D01; // -127, -104, .., -10; 1, 13, .., 113
    return (int8_t)((code < 8 ? low : high) >> 8 * (code % 8));
}

// Twice the float of four bits.
__device__ inline int e2m1_number(int code)
{
    const int size = code & 7, number = size < 4 ? size : (2 | (size & 1)) << (size / 2 - 1);
    return code < 8 ? number : -number;
}

// A float of eight bits.
__device__ inline float e4m3_number(uint8_t b)
{
    return __uint_as_float((uint32_t)(b & 0x7F) << 20 | (uint32_t)(b & 0x80) << 24) * 0x1p120f;
}

// The code of number i of a block of iq4_nl, iq4_xs or mxfp4.
__device__ inline int code_at(enum type type, const uint8_t *b, int i)
{
    const int from = type == MXFP4 ? 1 : type == IQ4_XS ? 8 + i / 32 * 16 : 2;
    return b[from + i % 16] >> 4 * (i % 32 / 16) & 15;
}

// The quantized value i of a block, which is multiplied by its scale.
__device__ inline int quant_at(enum type type, const uint8_t *b, int i)
{
    const int low = i % 16, top = i % 32 / 16; // blocks of 32: low or high half of a byte
    switch (type) {
    case Q8_0:
        return (int8_t)b[2 + i];
    case Q4_0:
        return (b[2 + low] >> 4 * top & 15) - 8;
    case Q4_1:
        return b[4 + low] >> 4 * top & 15;
    case Q5_0:
        return ((b[6 + low] >> 4 * top & 15) | (b[2 + i / 8] >> i % 8 & 1) << 4) - 16;
    case Q5_1:
        return (b[8 + low] >> 4 * top & 15) | (b[4 + i / 8] >> i % 8 & 1) << 4;
    case Q4_K:
        return b[16 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
    case Q5_K:
        return (b[48 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15) | (b[16 + i % 32] >> i / 32 & 1) << 4;
    case Q6_K: {
        const int half = i / 128, g = i % 128 / 32, j = i % 32;
        const int four = b[64 * half + 32 * (g & 1) + j] >> 4 * (g / 2) & 15;
        return (four | (b[128 + 32 * half + j] >> 2 * g & 3) << 4) - 32;
    }
    case IQ4_NL:
    case IQ4_XS:
        return iq4_number(code_at(type, b, i));
    case MXFP4:
        return e2m1_number(code_at(type, b, i));
    default:
        return 0;
    }
}

// The stored scale and minimum of number i of a block.
struct block_scale {
    uint16_t d, m;      // halves: scale, and minimum or its scale; of f8_e4m3, of the bits of a float
    uint8_t scale, min; // the group's, where d and m are those of a block of 256; scale: an exponent of mxfp4
};

__device__ inline struct block_scale block_scale_at(enum type type, const uint8_t *b, int i)
{
    switch (type) {
    case Q4_1:
    case Q5_1:
        return { bits_at(b), bits_at(b + 2), 0, 0 };
    case Q4_K:
    case Q5_K: { // eight 6-bit scales and minimums in 12 bytes
        const uint8_t *s = b + 4;
        const int j = i / 32;
        const uint8_t scale = (uint8_t)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
        const uint8_t min = (uint8_t)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
        return { bits_at(b), bits_at(b + 2), scale, min };
    }
    case Q6_K:
        return { bits_at(b + 208), 0, b[192 + i / 16], 0 };
    case IQ4_XS: {
        const int g = i / 32, low = b[4 + g / 2] >> 4 * (g % 2) & 15, high = bits_at(b + 2) >> 2 * g & 3;
        return { bits_at(b), 0, (uint8_t)((low | high << 4) - 32), 0 };
    }
    case MXFP4:
        return { 0, 0, b[0], 0 };
    case F8_E4M3:
        return { bits_at(b), bits_at(b + 2), 0, 0 };
    default:
        return { bits_at(b), 0, 0, 0 };
    }
}

// Number k of a row, with the rounding of kernels/cpu/dequantize.h.
__device__ inline float value_at(enum type type, const uint8_t *row, int64_t k)
{
    if (type == F32)
        return ((const float *)row)[k];
    if (type == F16)
        return half_to_float(bits_at(row + 2 * k));
    if (type == BF16)
        return bf16_to_float(bits_at(row + 2 * k));
    const struct block_size of = block_of(type);
    const uint8_t *b = row + k / of.numbers * of.bytes;
    const int i = (int)(k % of.numbers);
    const struct block_scale s = block_scale_at(type, b, i);
    if (type == F8_E4M3)
        return e4m3_number(b[4 + i]) * __uint_as_float(s.d | (uint32_t)s.m << 16);
    const float q = (float)quant_at(type, b, i), d = half_to_float(s.d), m = half_to_float(s.m);
    switch (type) {
    case Q4_1:
    case Q5_1:
        return q * d + m;
    case Q4_K:
    case Q5_K:
        return q * (d * (float)s.scale) + -(m * (float)s.min);
    case Q6_K:
    case IQ4_XS:
        return q * (d * (float)(int8_t)s.scale);
    case MXFP4:
        return 0.5f * q * power_to_float(s.scale);
    default:
        return q * d;
    }
}

} // namespace DEVICE_SPACE
