// round.h - the input of products, as the matrix instruction reads it: planes of bfloat16, laid out like the weights
// (packed.h). Made from a tensor that is there (round.cu), or by the kernel that makes the tensor. For .cu files alone.
//
// Activations that are rounded to bfloat16 are one plane. Those that are not are three: a float's 24 bits are cut into
// eight, eight and eight, which is exact, and products with the three parts are added up, the smallest first.
#pragma once
#include "kernels/cuda/packed.h"

namespace DEVICE_SPACE
{

// Where a kernel leaves planes; NULL: they are not wanted.
struct planes {
    uint16_t *data; // struct rounded's
    float *sums;
};

struct rounding {
    int tiles; // of eight rows
    struct planes one, three;
};

// The top eight bits of a float's 24; nothing is rounded, so nothing gets too large. Infinities and NaNs stay so.
__device__ inline uint16_t round_top(float x)
{
    return (uint16_t)(__float_as_uint(x) >> 16);
}

// x cut into parts; what they add up to.
template <int PLANES> __device__ inline float round_parts(uint16_t part[PLANES], float x)
{
    if constexpr (PLANES == 1) {
        part[0] = float_to_bf16(x);
        return bf16_to_float(part[0]);
    } else {
        if ((__float_as_uint(x) & 0x7F800000) == 0x7F800000) { // no number
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
    UNROLL
    for (int step = 1; step < 16; step *= 2)
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, step);
    if (in % 16 == 0)
        to.sums[(k / 16 * tiles + tile) * 8 + row % 8] = sum;
}

// Leaves x, number k of a row, where products look for it. A warp's lanes call it together; each sixteen of them have
// numbers of one row that stand together, the first k a multiple of 16.
__device__ inline void round_number(const struct rounding &to, int64_t row, int64_t k, float x)
{
    if (to.one.data != NULL)
        round_into<1>(to.one, to.tiles, row, k, x);
    if (to.three.data != NULL)
        round_into<3>(to.three, to.tiles, row, k, x);
}

static inline int64_t round_width(int64_t width) // zeros included
{
    return (width + 2 * GROUP - 1) / (2 * GROUP) * (2 * GROUP);
}

// Room for the planes of rows that an operation is about to make, of every kind that this backend's weights read; and,
// once they are queued, whose they are. The same numbers as round_input's, made sooner. false: no weights read planes, or
// there is no room, and then nothing has to be left.
bool rounding_for(struct cuda *c, int64_t rows, int64_t width, struct rounding *to);
void rounding_is(struct cuda *c, struct tensor x);

} // namespace DEVICE_SPACE
