// round.cu - the input of products, as the matrix instruction reads it: planes of bfloat16, laid out like the weights
// (packed.h).
//
// Activations that are rounded to bfloat16 are one plane. Those that are not are three: a float's 24 bits are cut into
// eight, eight and eight, which is exact, and products with the three parts are added up, the smallest first.
#include "kernels/cuda/packed.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

// The top eight bits of a float's 24; nothing is rounded, so nothing gets too large. Infinities and NaNs stay so.
__device__ static uint16_t top(float x)
{
    return (uint16_t)(__float_as_uint(x) >> 16);
}

__device__ static bool is_number(float x)
{
    return (__float_as_uint(x) & 0x7F800000) != 0x7F800000;
}

// A warp for a tile of 8 rows and 32 k.
template <int PLANES>
static __global__ void round_kernel(uint4 *to, float *sums, const float *x, int n, int64_t k, int tiles, int blocks)
{
    const int64_t unit = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP;
    const int lane = threadIdx.x % WARP;
    if (unit >= (int64_t)tiles * blocks)
        return;
    const int block = (int)(unit / tiles), row = (int)(unit % tiles) * 8 + lane / 4;
    uint32_t words[PLANES][4] = {};
    float sum = 0;
    UNROLL
    for (int i = 0; i < 8; i++) {
        const int64_t at = (int64_t)block * GROUP + i / 4 * 16 + lane % 4 * 4 + i % 4;
        float v = row < n && at < k ? x[row * k + at] : 0;
        uint16_t part[PLANES];
        if constexpr (PLANES == 1) {
            part[0] = float_to_bf16(v);
            v = bf16_to_float(part[0]);
        } else if (is_number(v)) {
            const float middle = v - bf16_to_float(top(v)), last = middle - bf16_to_float(top(middle));
            part[0] = top(v);
            part[1] = top(middle);
            part[2] = top(last);
        } else {
            part[0] = float_to_bf16(v);
            part[1] = part[2] = 0;
        }
        sum += v;
        UNROLL
        for (int p = 0; p < PLANES; p++)
            words[p][i / 2] |= (uint32_t)part[p] << 16 * (i % 2);
    }
    UNROLL
    for (int p = 0; p < PLANES; p++)
        to[(unit * PLANES + p) * WARP + lane] = make_uint4(words[p][0], words[p][1], words[p][2], words[p][3]);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (lane % 4 == 0)
        sums[(int64_t)block * tiles * 8 + row] = sum;
}

static __global__ void round_floats_kernel(float *to, const float *x, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = bf16_to_float(float_to_bf16(x[i]));
}

static size_t whole(size_t bytes) // pieces begin at whole sectors
{
    return (bytes + 255) / 256 * 256;
}

bool round_input(struct cuda *c, struct tensor x, struct wanted w, size_t extra, struct inputs *to)
{
    const int needed = blocks_for(x.rows, 8), tiles = needed <= 2 ? needed : blocks_for(needed, 4) * 4,
              blocks = 2 * blocks_for(x.width, 2 * GROUP);
    const size_t units = (size_t)tiles * (size_t)blocks, plane = units * WARP * sizeof(uint4);
    const size_t sums = whole(units * 8 * sizeof(float)), floats = whole((size_t)(x.rows * x.width) * sizeof(float));
    const size_t bytes =
        (w.one ? plane + sums : 0) + (w.three ? 3 * plane + sums : 0) + (w.floats ? floats : 0) + extra;
    uint8_t *at = (uint8_t *)cuda_room(c, &c->rounded, bytes, "the input of products");
    if (at == NULL && bytes != 0)
        return false;
    const float *from = (const float *)x.data;
    const int grid = blocks_for((int64_t)units * WARP, THREADS), n = (int)x.rows;
    if (w.one) {
        to->one = { n, tiles, blocks, (uint4 *)at, (float *)(at + plane) };
        LAUNCH(round_kernel<1>, grid, THREADS, 0, c->stream, (uint4 *)at, (float *)(at + plane), from, n, x.width,
               tiles, blocks);
        at += plane + sums;
    }
    if (w.three) {
        to->three = { n, tiles, blocks, (uint4 *)at, (float *)(at + 3 * plane) };
        LAUNCH(round_kernel<3>, grid, THREADS, 0, c->stream, (uint4 *)at, (float *)(at + 3 * plane), from, n, x.width,
               tiles, blocks);
        at += 3 * plane + sums;
    }
    if (w.floats) {
        to->floats = (float *)at;
        LAUNCH(round_floats_kernel, blocks_for(x.rows * x.width, THREADS), THREADS, 0, c->stream, (float *)at, from,
               x.rows * x.width);
        at += floats;
    }
    to->extra = (float *)at;
    cuda_launched(c, "rounding the input of products");
    return true;
}

} // namespace DEVICE_SPACE
