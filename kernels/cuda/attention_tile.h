// attention_tile.h - a unit of attention on tensor cores. Each tile of sixteen queries has the same number of warps,
// which share the unit's keys for the scores, and the head's elements for the sums of values. Included by
// attention_mma.cu only.
//
// A float is split into three BF16 numbers, each the leading part of the remainder, so the products of queries with
// keys and of weights with values are exact; only the MMA's sums round. Sixteen queries are the rows of an MMA.
#pragma once
#include "kernels/cuda/attention_load.h"

namespace DEVICE_SPACE
{

// Returns the leading halves of two floats as a pair of BF16 and replaces the floats by the remainder, which is 0 after
// three calls.
static __device__ inline uint32_t split_plane(float *x, float *y)
{
    const uint32_t a = __float_as_uint(*x) & 0xFFFF0000, b = __float_as_uint(*y) & 0xFFFF0000;
    *x -= __uint_as_float(a);
    *y -= __uint_as_float(b);
    return a >> 16 | b;
}

// ---- scores

// Row `lane` of four matrices of 8 by 8 that are parts of one of 16 by 16: as the operand a of an MMA; and two operands
// b.
template <int WIDTH> static __device__ inline const uint16_t *row_of_a(uint16_t (*x)[WIDTH], int column)
{
    const int lane = (int)threadIdx.x % WARP;
    return &x[lane % 16][column + lane / 16 * 8];
}

template <int WIDTH> static __device__ inline const uint16_t *row_of_b(uint16_t (*x)[WIDTH], int column)
{
    const int lane = (int)threadIdx.x % WARP;
    return &x[lane % 8 + lane / 16 * 8][column + lane / 8 % 2 * 8];
}

// The part of a unit that a warp computes: its tile of queries, and which of the WARPS_PER_TILE shares.
template <int QUERY_TILES> constexpr int WARPS_PER_TILE = WARPS / QUERY_TILES;
template <int QUERY_TILES> static __device__ inline int tile_of_warp(void)
{
    return (int)threadIdx.x / WARP / WARPS_PER_TILE<QUERY_TILES>;
}
template <int QUERY_TILES> static __device__ inline int share_of_warp(void)
{
    return (int)threadIdx.x / WARP % WARPS_PER_TILE<QUERY_TILES>;
}

// Whether the view has queries of the warp's tile.
template <int QUERY_TILES> static __device__ inline bool has_queries(const struct view &v)
{
    const int first = 16 * tile_of_warp<QUERY_TILES>();
    return first < v.first + v.m && first + 16 > v.first;
}

// Scores of the tile's queries with the warp's share of the keys, to scratch->weight.
template <int HD, int QUERY_TILES>
static __device__ inline void unit_scores(mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v, int slot)
{
    constexpr int SIXTEENS = KEYS / 16 / WARPS_PER_TILE<QUERY_TILES>; // sixteens of keys
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    const int first = 16 * tile_of_warp<QUERY_TILES>(), from = 16 * SIXTEENS * share_of_warp<QUERY_TILES>();
    if (!has_queries<QUERY_TILES>(v))
        return;
    float s[PLANES][2 * SIXTEENS][4] = {};
    UNROLL
    for (int step = 0; step < HD / 16; step++) {
        uint32_t key[SIXTEENS][4];
        UNROLL
        for (int i = 0; i < SIXTEENS; i++)
            load_matrices(key[i], row_of_b(&scratch->ring[slot][from + 16 * i], 16 * step));
        UNROLL
        for (int plane = 0; plane < PLANES; plane++) {
            uint32_t q[4];
            load_matrices(q, row_of_a(&scratch->q[plane][first], 16 * step));
            UNROLL
            for (int i = 0; i < SIXTEENS; i++) {
                mma_bf16(s[plane][2 * i], q, key[i][0], key[i][1]);
                mma_bf16(s[plane][2 * i + 1], q, key[i][2], key[i][3]);
            }
        }
    }
    UNROLL
    for (int j = 0; j < 2 * SIXTEENS; j++) // the planes are added, the smallest first
        UNROLL
    for (int half = 0; half < 2; half++) {
        const int e = 2 * half;
        float *to = (float *)scratch->weight[first + g + 8 * half] + from + 8 * j + 2 * t;
        *(float2 *)to =
            make_float2(s[2][j][e] + s[1][j][e] + s[0][j][e], s[2][j][e + 1] + s[1][j][e + 1] + s[0][j][e + 1]);
    }
}

// ---- weights

// Replaces scores by the planes of weights. A warp has a quarter of the queries, eight lanes a query, and a lane eight
// keys.
template <int HD, int QUERY_TILES>
static __device__ inline void unit_weights(mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v)
{
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, k = lane % 8 * 8;
    UNROLL_BY(1)
    for (int n = 0; n < QUERY_TILES; n++) {
        const int u = 16 * n + 4 * warp + lane / 8;
        const int seen = u >= v.first && u < v.first + v.m ? scratch->seen[u] - v.from : 0;
        const float4 *from = (const float4 *)((const float *)scratch->weight[u] + k);
        const float4 low = from[0], high = from[1];
        float x[8] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
        float most = -INFINITY, total = 0;
        UNROLL
        for (int i = 0; i < 8; i++)
            if (k + i < seen)
                most = fmaxf(most, x[i]);
        UNROLL
        for (int step = 1; step < 8; step *= 2)
            most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, step));
        most = ceilf(most);
        UNROLL
        for (int i = 0; i < 8; i++) {
            x[i] = k + i < seen ? exp2f(x[i] - most) : 0;
            total += x[i];
        }
        UNROLL
        for (int step = 1; step < 8; step *= 2)
            total += __shfl_xor_sync(0xFFFFFFFF, total, step);
        __syncwarp(); // all scores of these queries have been read
        if (seen <= 0)
            continue;
        UNROLL
        for (int plane = 0; plane < PLANES; plane++) {
            uint4 part;
            part.x = split_plane(&x[0], &x[1]);
            part.y = split_plane(&x[2], &x[3]);
            part.z = split_plane(&x[4], &x[5]);
            part.w = split_plane(&x[6], &x[7]);
            *(uint4 *)&scratch->weight[u][plane * KEYS + k] = part;
        }
        if (lane % 8 == 0) {
            scratch->max[u] = most;
            scratch->total[u] = total;
        }
    }
}

// ---- values

// Eights of a head's elements per warp: its share, share + WARPS_PER_TILE, ..
template <int HD, int QUERY_TILES>
constexpr int EIGHTS = (HD / 8 + WARPS_PER_TILE<QUERY_TILES> - 1) / WARPS_PER_TILE<QUERY_TILES>;

// The first element of the warp's eight j; HD if it has no more.
template <int HD, int QUERY_TILES> static __device__ inline int eight_of_warp(int j)
{
    return min(8 * (share_of_warp<QUERY_TILES>() + WARPS_PER_TILE<QUERY_TILES> * j), HD);
}

// The pair of keys `key`, key + 1, without those from `limit` on.
static __device__ inline uint32_t pair_below(uint32_t pair, int key, int limit)
{
    return key + 1 < limit ? pair : key < limit ? pair & 0xFFFF : 0;
}

// sum = weights . values, of the tile's queries and the warp's elements. Values of keys from `limit` on are not used,
// whatever their weights.
template <int HD, int QUERY_TILES>
static __device__ inline void unit_values(float (&sum)[EIGHTS<HD, QUERY_TILES>][4],
                                          mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v, int limit,
                                          int slot)
{
    constexpr int N = EIGHTS<HD, QUERY_TILES>,
                  AT_ONCE = N < 4 ? N : 4; // sums whose additions take turns: each waits for its last one
    const int lane = (int)threadIdx.x % WARP, t = lane % 4, first = 16 * tile_of_warp<QUERY_TILES>();
    UNROLL
    for (int j = 0; j < N; j++)
        UNROLL
    for (int e = 0; e < 4; e++)
        sum[j][e] = 0;
    if (!has_queries<QUERY_TILES>(v))
        return;
    UNROLL
    for (int keys = 0; keys < KEYS; keys += 32) {
        uint32_t weight[2][PLANES][4];
        UNROLL
        for (int step = 0; step < 2; step++)
            UNROLL
        for (int plane = 0; plane < PLANES; plane++)
            load_matrices(weight[step][plane], row_of_a(&scratch->weight[first], plane * KEYS + keys + 16 * step));
        UNROLL
        for (int from = 0; from < N; from += AT_ONCE) {
            uint32_t value[AT_ONCE][4] = {};
            UNROLL
            for (int j = 0; j < AT_ONCE && from + j < N; j++) {
                const int eight = eight_of_warp<HD, QUERY_TILES>(from + j);
                if (eight == HD)
                    continue;
                load_matrices_transposed(value[j], &scratch->ring[slot][keys + lane][eight]);
                if (limit < KEYS)
                    UNROLL
                for (int i = 0; i < 4; i++)
                    value[j][i] = pair_below(value[j][i], keys + 8 * i + 2 * t, limit);
            }
            UNROLL
            for (int step = 0; step < 2; step++)
                UNROLL
            for (int plane = PLANES - 1; plane >= 0; plane--) // smallest first, to reduce rounding
                UNROLL
            for (int j = 0; j < AT_ONCE && from + j < N; j++)
                mma_bf16(sum[from + j], weight[step][plane], value[j][2 * step], value[j][2 * step + 1]);
        }
    }
}

} // namespace DEVICE_SPACE
