// round.h - the input of products as the matrix instruction reads it: planes of bfloat16, laid out like the weights (packed.h). They
// are made from a tensor (round.cu), or by the kernel that makes the tensor. For .cu files only.
//
// Activations rounded to bfloat16 are one plane. Others are three: a float's 24 bits are split into eight, eight and eight, which is
// exact, and the products with the three parts are added, the smallest first.
#pragma once
#include "kernels/cuda/packed.h"

namespace DEVICE_SPACE
{

// Where a kernel writes planes; NULL: nowhere.
struct planes {
    uint16_t *data; // struct rounded's
    float *sums;    // NULL: no weight reads them
};

struct rounding {
    int tiles; // of eight rows
    struct planes one, three;
};

// The top eight bits of a float's 24, without rounding, so nothing overflows. Infinities and NaNs remain.
__device__ inline uint16_t round_top(float x)
{
    return (uint16_t)(__float_as_uint(x) >> 16);
}

// Splits x into parts; returns their sum.
template <int PLANES> __device__ inline float round_parts(uint16_t part[PLANES], float x)
{
    if constexpr (PLANES == 1) {
        part[0] = float_to_bf16(x);
        return bf16_to_float(part[0]);
    } else {
        if ((__float_as_uint(x) & 0x7F800000) == 0x7F800000) { // infinity or NaN
            part[0] = float_to_bf16(x);
            part[1] = part[2] = 0;
            return x;
        }
        const float middle = x - bf16_to_float(round_top(x)), last = middle - bf16_to_float(round_top(middle));
        part[0] = round_top(x);
        part[1] = round_top(middle);
        part[2] = round_top(last);
        return x;
    }
}

template <int PLANES>
__device__ inline void round_into(const struct planes &to, int tiles, int64_t row, int64_t k, float x)
{
    const int64_t block = k / GROUP, tile = row / 8;
    const int in = (int)(k % GROUP), lane = (int)(row % 8) * 4 + in % 16 / 4;
    uint16_t part[PLANES];
    float sum = round_parts<PLANES>(part, x);
    UNROLL
    for (int p = 0; p < PLANES; p++)
        to.data[(((block * tiles + tile) * PLANES + p) * WARP + lane) * 8 + in / 16 * 4 + in % 4] = part[p];
    if (to.sums == NULL)
        return;
    UNROLL
    for (int step = 1; step < 16; step *= 2)
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, step);
    if (in % 16 == 0)
        to.sums[(k / 16 * tiles + tile) * 8 + row % 8] = sum;
}

// Writes x, number k of a row, to the planes. The lanes of a warp call it together; each sixteen of them have adjacent numbers of one
// row, the first k a multiple of 16.
__device__ inline void round_number(const struct rounding &to, int64_t row, int64_t k, float x)
{
    if (to.one.data != NULL)
        round_into<1>(to.one, to.tiles, row, k, x);
    if (to.three.data != NULL)
        round_into<3>(to.three, to.tiles, row, k, x);
}

template <int PLANES>
__device__ inline void round_four_into(const struct planes &to, int tiles, int64_t row, int k, bool writes,
                                       const float x[4])
{
    const int64_t block = k / GROUP, tile = row / 8;
    const int in = k % GROUP, lane = (int)(row % 8) * 4 + in % 16 / 4;
    uint16_t part[4][PLANES];
    float y[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        y[i] = round_parts<PLANES>(part[i], x[i]);
    UNROLL
    for (int p = 0; p < PLANES; p++)
        if (writes)
            ((uint2 *)to.data)[(((block * tiles + tile) * PLANES + p) * WARP + lane) * 2 + in / 16] =
                make_uint2(part[0][p] | (uint32_t)part[1][p] << 16, part[2][p] | (uint32_t)part[3][p] << 16);
    if (to.sums == NULL)
        return;
    float sum = (y[0] + y[1]) + (y[2] + y[3]); // in round_into's order
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (writes && in % 16 == 0)
        to.sums[(k / 16 * tiles + tile) * 8 + row % 8] = sum;
}

// Writes four numbers of a row, k .. + 3, or nothing. The lanes of a warp call it together; each four of them have sixteen adjacent numbers of
// one row, the first k a multiple of 16, and write or do not write together.
__device__ inline void round_four(const struct rounding &to, int64_t row, int k, bool writes, const float x[4])
{
    if (to.one.data != NULL)
        round_four_into<1>(to.one, to.tiles, row, k, writes, x);
    if (to.three.data != NULL)
        round_four_into<3>(to.three, to.tiles, row, k, writes, x);
}

static inline int64_t round_width(int64_t width) // zeros included
{
    return (width + 2 * GROUP - 1) / (2 * GROUP) * (2 * GROUP);
}

// Memory for the planes of the rows that an operation is about to make, of every kind that this backend's weights read, and their
// sums if some weight has offsets; the same numbers as round_input's. read: the buffer that the operation reads planes from, -1: none. false: no weights read planes, or out of
// memory, and then the operation writes none.
bool rounding_for(struct cuda *c, int read, int64_t rows, int64_t width, struct rounding *to);
// x with a number for the planes that were last asked for; they are queued.
struct tensor with_planes(struct cuda *c, struct tensor x);
// x, whose rows are written: its planes, if it has any, are those of other numbers.
struct tensor without_planes(struct cuda *c, struct tensor x);

} // namespace DEVICE_SPACE
