// attend_tile.h - what a warp does of attention on tensor cores: scores, exponents and weighted values of a tile (KEYS
// positions) for sixteens of queries. A part of attend_mma.cu.
//
// A float is three BF16 numbers, each what the one before it left, so the products of queries with keys and of weights
// with values are exact; what rounds is the MMA's sums. Sixteen queries are the rows of an MMA. Which element of a head
// goes through which of its columns is free, so every lane loads whole vectors of keys and values from the cache into
// the registers where the MMA wants them: nothing is staged, and a key is read once for all queries.
#pragma once
#include "kernels/cuda/attend.h"

#include <math.h>

namespace DEVICE_SPACE
{

// ALL: every row of the block, in place of one of them.
constexpr int THREADS = 128, WARPS = THREADS / WARP, KEYS = 64, TILES = SPLIT / KEYS, STEPS = KEYS / 16, ALL = -1,
              PLANES = 3;

// A block's shared memory; SIXTEENS of queries. Rows are padded to keep lanes in different banks.
template <int HD, int SIXTEENS> struct mma_scratch {
    static constexpr int QUERIES = 16 * SIXTEENS, Q_WIDTH = HD == 128 ? 160 : 96, SUM_WIDTH = HD + 4;
    alignas(16) uint16_t q[PLANES][QUERIES][Q_WIDTH]; // scaled
    alignas(16) float sums[TILES][QUERIES][SUM_WIDTH];
    float most[TILES][QUERIES], total[TILES][QUERIES];
    int32_t place[WARPS][KEYS];
    int positions[QUERIES], dense[QUERIES]; // (rows)
    struct share share;
};

struct view {              // what a warp does at a time: a tile for some queries
    int tile, from, count; // first position, positions that anyone sees
    int first, m;          // queries
    bool shared;           // some query does not see all of them
};

// The leading halves of two floats, as BF16, and what is left of them: three times, and nothing is left.
static __device__ inline uint32_t take_plane(float *x, float *y)
{
    const uint32_t a = __float_as_uint(*x) & 0xFFFF0000, b = __float_as_uint(*y) & 0xFFFF0000;
    *x -= __uint_as_float(a);
    *y -= __uint_as_float(b);
    return a >> 16 | b;
}

// ---- scores

// s (SIXTEENS of m queries, KEYS) = q . keys. Lane (g, t) loads of a chunk of 32 elements those from 8 t on, of key g:
// two steps of the MMA, with queries in the same order.
template <int HD, int SIXTEENS>
static __device__ inline void take_scores(float (&s)[SIXTEENS][2 * STEPS][4], const uint8_t *keys, uint32_t row_bytes,
                                          const mma_scratch<HD, SIXTEENS> *capacity, const int32_t *place,
                                          const struct view &v)
{
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    UNROLL
    for (int step = 0; step < STEPS; step++) {
        uint4 key[2][HD / 32];
        uint2 rest[2] = {};
        UNROLL
        for (int i = 0; i < 2; i++) {
            const uint8_t *row = keys + (uint64_t)(uint32_t)place[16 * step + 8 * i + g] * row_bytes;
            UNROLL
            for (int chunk = 0; chunk < HD / 32; chunk++)
                key[i][chunk] = *(const uint4 *)(row + 64 * chunk + 16 * t);
            if (HD % 32 != 0)
                rest[i] = *(const uint2 *)(row + 64 * (HD / 32) + 8 * t);
        }
        UNROLL
        for (int n = 0; n < SIXTEENS; n++) {
            if (n > 0 && 16 * n >= v.m)
                continue;
            const int last = v.first + v.m - 1, u = min(v.first + 16 * n + g, last),
                      w = min(v.first + 16 * n + g + 8, last);
            UNROLL
            for (int i = 0; i < 2; i++)
                UNROLL
            for (int e = 0; e < 4; e++)
                s[n][2 * step + i][e] = 0;
            UNROLL
            for (int plane = PLANES - 1; plane >= 0; plane--) { // the small ones first: they round little
                UNROLL
                for (int chunk = 0; chunk < HD / 32; chunk++) {
                    const uint4 x = *(const uint4 *)&capacity->q[plane][u][32 * chunk + 8 * t];
                    const uint4 y = *(const uint4 *)&capacity->q[plane][w][32 * chunk + 8 * t];
                    const uint32_t one[4] = { x.x, y.x, x.y, y.y }, two[4] = { x.z, y.z, x.w, y.w };
                    mma_bf16(s[n][2 * step], one, key[0][chunk].x, key[0][chunk].y);
                    mma_bf16(s[n][2 * step + 1], one, key[1][chunk].x, key[1][chunk].y);
                    mma_bf16(s[n][2 * step], two, key[0][chunk].z, key[0][chunk].w);
                    mma_bf16(s[n][2 * step + 1], two, key[1][chunk].z, key[1][chunk].w);
                }
                if (HD % 32 == 0)
                    continue;
                const uint2 x = *(const uint2 *)&capacity->q[plane][u][HD / 32 * 32 + 4 * t];
                const uint2 y = *(const uint2 *)&capacity->q[plane][w][HD / 32 * 32 + 4 * t];
                const uint32_t one[4] = { x.x, y.x, x.y, y.y };
                mma_bf16(s[n][2 * step], one, rest[0].x, rest[0].y);
                mma_bf16(s[n][2 * step + 1], one, rest[1].x, rest[1].y);
            }
        }
    }
}

// ---- exponents

// Scores of sixteen queries to exponents, in their place. A lane has two queries' and a quarter of the keys.
template <int HD, int SIXTEENS>
static __device__ inline void take_exponents(float (&s)[2 * STEPS][4], mma_scratch<HD, SIXTEENS> *capacity, int heads,
                                             int sixteen, const struct view &v)
{
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int u = 16 * sixteen + g + 8 * half;
        const int seen = u < v.m ? capacity->positions[(v.first + u) / heads] - v.from : 0;
        float most = -INFINITY, total = 0;
        UNROLL
        for (int k = 0; k < 4 * STEPS; k++)
            if (k / 2 * 8 + 2 * t + k % 2 < seen)
                most = fmaxf(most, s[k / 2][2 * half + k % 2]);
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
        UNROLL
        for (int k = 0; k < 4 * STEPS; k++) {
            float &x = s[k / 2][2 * half + k % 2];
            x = expf(k / 2 * 8 + 2 * t + k % 2 < seen ? x - most : -INFINITY);
            total += x;
        }
        total += __shfl_xor_sync(0xFFFFFFFF, total, 1);
        total += __shfl_xor_sync(0xFFFFFFFF, total, 2);
        if (t == 0 && u < v.m) {
            capacity->most[v.tile][v.first + u] = most;
            capacity->total[v.tile][v.first + u] = total;
        }
    }
}

// ---- values

template <int E> struct of_lane; // E elements of BF16
template <> struct of_lane<8> {
    typedef uint4 vector;
};
template <> struct of_lane<4> {
    typedef uint2 vector;
};
template <> struct of_lane<2> {
    typedef uint32_t vector;
};

// sums = weights . values, columns `column` to column + 8 E. Lane (g, t) loads of four values of a step the elements
// from E g on: one for each of E MMAs, whose columns 2 t and 2 t + 1 it then has. Returns whether a sum is not finite.
template <int E, int HD, int SIXTEENS>
static __device__ inline bool take_values(float (&weight)[SIXTEENS][2 * STEPS][4], const uint8_t *values,
                                          uint32_t row_bytes, mma_scratch<HD, SIXTEENS> *capacity, const int32_t *place,
                                          const struct view &v, int column)
{
    typedef typename of_lane<E>::vector vector;
    union {
        vector all;
        uint32_t pair[E / 2];
    } value[4];
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    float sum[SIXTEENS][E][4] = {};
    UNROLL
    for (int step = 0; step < STEPS; step++) {
        UNROLL
        for (int i = 0; i < 4; i++)
            value[i].all =
                *(const vector *)(values + 2 * (column + E * g) +
                                  (uint64_t)(uint32_t)place[16 * step + 2 * t + i % 2 + i / 2 * 8] * row_bytes);
        uint32_t part[SIXTEENS][PLANES][4];
        UNROLL
        for (int n = 0; n < SIXTEENS; n++)
            UNROLL
        for (int i = 0; i < 4; i++) {
            float *pair = &weight[n][2 * step + i / 2][i % 2 * 2];
            forget(pair[0]);
            forget(pair[1]);
            float x = pair[0], y = pair[1];
            UNROLL
            for (int plane = 0; plane < PLANES; plane++)
                part[n][plane][i] = take_plane(&x, &y);
        }
        UNROLL
        for (int j = 0; j < E; j++) {
            const int p = j / 2;
            uint32_t b[2];
            UNROLL
            for (int i = 0; i < 2; i++) {
                const uint32_t x = value[2 * i].pair[p], y = value[2 * i + 1].pair[p];
                b[i] = j % 2 == 0 ? (x & 0xFFFF) | y << 16 : x >> 16 | (y & 0xFFFF0000);
            }
            UNROLL
            for (int n = 0; n < SIXTEENS; n++)
                UNROLL
            for (int plane = PLANES - 1; plane >= 0; plane--)
                if (n == 0 || 16 * n < v.m)
                    mma_bf16(sum[n][j], part[n][plane], b[0], b[1]);
        }
    }
    bool strange = false;
    UNROLL
    for (int n = 0; n < SIXTEENS; n++)
        UNROLL
    for (int half = 0; half < 2; half++) {
        const int u = 16 * n + g + 8 * half;
        if (u >= v.m)
            continue;
        float4 *to = (float4 *)&capacity->sums[v.tile][v.first + u][column + 2 * E * t];
        UNROLL
        for (int j = 0; j < 2 * E; j += 4) {
            float x[4];
            UNROLL
            for (int e = 0; e < 4; e++) {
                x[e] = sum[n][(j + e) % E][2 * half + (j + e) / E];
                strange = strange || !(fabsf(x[e]) < INFINITY);
            }
            to[j / 4] = make_float4(x[0], x[1], x[2], x[3]);
        }
    }
    return strange;
}

} // namespace DEVICE_SPACE
