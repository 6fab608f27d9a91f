// norm.h - RMSNorm of a row by one block: the sum of squares per thread in rounds, then trees over lanes and over
// warps. Shared by rmsnorm (rows.cu) and the input of EAGLE's heads (take.cu), which so have the same bits. For .cu
// files only.
#pragma once
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

enum { NORM_THREADS = 1024 };

struct four { // adjacent numbers of a row
    float x[4];
};

// From number k on; 0 beyond the width. WIDE: the row is aligned, and its width a multiple of four. FIXED: no kernel
// writes the row, which the caller loads before it waits.
template <bool WIDE, bool FIXED> static __device__ inline struct four load_four(const float *row, int k, int width)
{
    struct four to = {};
    if constexpr (WIDE) {
        if (k >= width)
            return to;
        const uint4 *at = (const uint4 *)(row + k);
        const uint4 v = FIXED ? load_weights(at) : *at;
        to.x[0] = __uint_as_float(v.x), to.x[1] = __uint_as_float(v.y);
        to.x[2] = __uint_as_float(v.z), to.x[3] = __uint_as_float(v.w);
    } else
        UNROLL
    for (int i = 0; i < 4; i++)
        to.x[i] = k + i < width ? row[k + i] : 0;
    return to;
}

template <bool WIDE> static __device__ inline void store_four(float *row, int k, int width, const struct four &v)
{
    if constexpr (WIDE) {
        if (k < width)
            *(float4 *)(row + k) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
    } else
        UNROLL
    for (int i = 0; i < 4; i++)
        if (k + i < width)
            row[k + i] = v.x[i];
}

// The weights of the rounds that norm_row keeps, before the wait; w NULL: none.
template <bool WIDE, int ROUNDS>
static __device__ inline void load_weights_of_norm(struct four (&weights)[ROUNDS], const float *w, int width)
{
    UNROLL
    for (int i = 0; i < ROUNDS; i++) {
        weights[i] = {};
        if (WIDE && w != NULL)
            weights[i] = load_four<WIDE, true>(w, ((int)threadIdx.x + i * (int)blockDim.x) * 4, width);
    }
}

// Calls write(k, x, y) for four numbers at a time up to `padded`, by all lanes of a warp together: y = x / rms(x) * w,
// or x without weights, and 0 beyond the width. load(k): numbers k .. of the row. The first ROUNDS rounds are kept in
// registers, with their weights if the row is WIDE: the caller has loaded them. Longer rows are loaded again.
template <int ROUNDS, bool WIDE, typename loader, typename writer>
static __device__ inline void norm_row(const float *w, const struct four (&weights)[ROUNDS], int width, int padded,
                                       float eps, loader load, writer write)
{
    __shared__ float of_warp[WARP];
    const int first = (int)threadIdx.x * 4, round = (int)blockDim.x * 4, lane = (int)threadIdx.x % WARP;
    struct four kept[ROUNDS];
    float squares = 0, scale = 1;
    const auto add_squares = [&](const struct four &v) {
        UNROLL
        for (int i = 0; i < 4; i++)
            squares = fmaf(v.x[i], v.x[i], squares);
    };
    const auto scaled = [&](int k, const struct four &x, const struct four &by) {
        struct four y;
        UNROLL
        for (int i = 0; i < 4; i++)
            y.x[i] = k + (WIDE ? 0 : i) >= width ? 0 : w != NULL ? x.x[i] * scale * by.x[i] : x.x[i];
        write(k, x, y);
    };
    UNROLL
    for (int i = 0; i < ROUNDS; i++)
        kept[i] = load(first + i * round);
    if (w != NULL) {
        UNROLL
        for (int i = 0; i < ROUNDS; i++)
            add_squares(kept[i]);
        for (int k = first + ROUNDS * round; k < width; k += round)
            add_squares(load(k));
        squares = warp_sum(squares);
        if (lane == 0)
            of_warp[threadIdx.x / WARP] = squares;
        __syncthreads();
        scale = 1.0f / sqrtf(warp_sum(lane < (int)blockDim.x / WARP ? of_warp[lane] : 0) / (float)width + eps);
    }
    UNROLL
    for (int i = 0; i < ROUNDS; i++)
        scaled(first + i * round, kept[i],
               WIDE || w == NULL ? weights[i] : load_four<WIDE, false>(w, first + i * round, width));
    for (int from = ROUNDS * round; from < padded; from += round) {
        const int k = first + from;
        scaled(k, load(k), w == NULL ? weights[0] : load_four<WIDE, false>(w, k, width));
    }
}

// Threads of a block for a row of so many numbers: two rounds, as far as there may be so many threads.
static inline int norm_threads(int width)
{
    const int needed = blocks_for(round_width(width), 8 * WARP) * WARP;
    return needed < NORM_THREADS ? needed : (int)NORM_THREADS;
}

// addresses: those of all rows and weights, by bitwise or.
static inline bool norm_is_wide(int64_t width, uintptr_t addresses)
{
    return width % 4 == 0 && addresses % sizeof(float4) == 0;
}

} // namespace DEVICE_SPACE
