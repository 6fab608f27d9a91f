// round.h - the input of products as the matrix instruction reads it: rounded to bfloat16 and laid out like the weights
// (packed.h). It is made from a tensor (round.cu), or by the kernel that makes the tensor. For .cu files only.
#pragma once
#include "kernels/cuda/packed.h"

namespace DEVICE_SPACE
{

// Writes x, number k of a row. The lanes of a warp call it together; each sixteen of them have adjacent numbers of one
// row, the first k a multiple of 16.
__device__ inline void round_number(const struct rounding &to, int64_t row, int64_t k, float x)
{
    if (to.data == NULL)
        return;
    const int64_t tile = k / GROUP * to.tiles + row / 8;
    const int in = (int)(k % GROUP), lane = (int)(row % 8) * 4 + in % 16 / 4;
    const uint16_t rounded = float_to_bf16(x);
    to.data[(tile * WARP + lane) * 8 + in / 16 * 4 + in % 4] = rounded;
    if (to.sums == NULL)
        return;
    float sum = bf16_to_float(rounded);
    UNROLL
    for (int step = 1; step < 16; step *= 2)
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, step);
    if (in % 16 == 0)
        to.sums[(k / 16 * to.tiles + row / 8) * 8 + row % 8] = sum;
}

// Writes four numbers of a row, k .. + 3, or nothing. The lanes of a warp call it together; each four of them have
// sixteen adjacent numbers of one row, the first k a multiple of 16, and write or do not write together.
__device__ inline void round_four(const struct rounding &to, int64_t row, int k, bool writes, const float x[4])
{
    if (to.data == NULL)
        return;
    const int64_t tile = k / GROUP * (int64_t)to.tiles + row / 8;
    const int in = k % GROUP, lane = (int)(row % 8) * 4 + in % 16 / 4;
    uint16_t rounded[4];
    float y[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        rounded[i] = float_to_bf16(x[i]);
        y[i] = bf16_to_float(rounded[i]);
    }
    if (writes)
        ((uint2 *)to.data)[(tile * WARP + lane) * 2 + in / 16] =
            make_uint2(rounded[0] | (uint32_t)rounded[1] << 16, rounded[2] | (uint32_t)rounded[3] << 16);
    if (to.sums == NULL)
        return;
    float sum = (y[0] + y[1]) + (y[2] + y[3]); // the order is round_number's
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (writes && in % 16 == 0)
        to.sums[(k / 16 * (int64_t)to.tiles + row / 8) * 8 + row % 8] = sum;
}

// Row numbers as kernel arguments, at most ROW_NUMBERS per launch.
enum { ROW_NUMBERS = 512 };
struct row_numbers {
    int n;
    int32_t row[ROW_NUMBERS];
};

static inline int64_t round_width(int64_t width) // zeros included
{
    return (width + 2 * GROUP - 1) / (2 * GROUP) * (2 * GROUP);
}

// Memory for the rounded rows that an operation is about to make, with their sums if some weight has offsets; the same
// numbers as round_input's. read: the buffer that the operation reads, -1: none. false: no weights read them, or out of
// memory, and then the operation writes none.
bool rounding_for(struct cuda *c, int read, int64_t rows, int64_t width, struct rounding *to);
// x with a number for the rounded rows that were last asked for; they are queued.
struct tensor with_rounded(struct cuda *c, struct tensor x);
// x, whose rows are written: its rounded rows, if it has any, are those of other numbers.
struct tensor without_rounded(struct cuda *c, struct tensor x);

} // namespace DEVICE_SPACE
