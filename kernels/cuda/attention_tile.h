// attention_tile.h - one warp's part of attention on tensor cores: scores, exponentials and weighted values of a tile (KEYS
// positions) for tiles of sixteen queries. Included by attention_mma.cu only.
//
// A float is split into three BF16 numbers, each the leading part of the remainder, so the products of queries with keys and of
// weights with values are exact; only the MMA's sums round. Sixteen queries are the rows of an MMA. The assignment of head
// elements to MMA columns is arbitrary, so every lane loads whole vectors of keys and values from the cache directly to
// the registers that the MMA reads: nothing is staged, and a key is read once for all queries.
#pragma once
#include "kernels/cuda/attention.h"

#include <math.h>

namespace DEVICE_SPACE
{

// ALL: every row of the block, in place of the number of a row.
constexpr int THREADS = 128, WARPS = THREADS / WARP, KEYS = 64, TILES = SPLIT / KEYS, STEPS = KEYS / 16, ALL = -1,
              PLANES = 3;

// Shared memory of a block; QUERY_TILES tiles of sixteen queries. Rows are padded to keep lanes in different banks.
template <int HD, int QUERY_TILES> struct mma_scratch {
    static constexpr int QUERIES = 16 * QUERY_TILES, Q_WIDTH = HD == 128 ? 160 : 96, SUM_WIDTH = HD + 4;
    alignas(16) uint16_t q[PLANES][QUERIES][Q_WIDTH]; // scaled
    alignas(16) float sums[TILES][QUERIES][SUM_WIDTH];
    float max_score[TILES][QUERIES], total[TILES][QUERIES];
    int32_t place[WARPS][KEYS];
    int positions[QUERIES], dense[QUERIES]; // (rows)
    struct share share;
};

struct view {              // a tile for some queries
    int tile, from, count; // from: first position; count: positions that some query attends to
    int first, m;          // queries
    bool shared;           // some query does not attend to all of them
};

// Returns the leading halves of two floats as a pair of BF16 and replaces the floats by the remainder, which is 0 after three calls.
static __device__ inline uint32_t split_plane(float *x, float *y)
{
    const uint32_t a = __float_as_uint(*x) & 0xFFFF0000, b = __float_as_uint(*y) & 0xFFFF0000;
    *x -= __uint_as_float(a);
    *y -= __uint_as_float(b);
    return a >> 16 | b;
}

// ---- scores

// s (QUERY_TILES * 16 queries, KEYS) = q . keys. Of each chunk of 32 elements, lane (g, t) loads elements 8 t .. 8 t + 7 of key g:
// two steps of the MMA, with the queries in the same order.
template <int HD, int QUERY_TILES>
static __device__ inline void tile_scores(float (&s)[QUERY_TILES][2 * STEPS][4], const uint8_t *keys,
                                          uint32_t row_bytes, const mma_scratch<HD, QUERY_TILES> *scratch,
                                          const int32_t *place, const struct view &v)
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
        for (int n = 0; n < QUERY_TILES; n++) {
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
            for (int plane = PLANES - 1; plane >= 0; plane--) { // smallest first, to reduce rounding
                UNROLL
                for (int chunk = 0; chunk < HD / 32; chunk++) {
                    const uint4 x = *(const uint4 *)&scratch->q[plane][u][32 * chunk + 8 * t];
                    const uint4 y = *(const uint4 *)&scratch->q[plane][w][32 * chunk + 8 * t];
                    const uint32_t one[4] = { x.x, y.x, x.y, y.y }, two[4] = { x.z, y.z, x.w, y.w };
                    mma_bf16(s[n][2 * step], one, key[0][chunk].x, key[0][chunk].y);
                    mma_bf16(s[n][2 * step + 1], one, key[1][chunk].x, key[1][chunk].y);
                    mma_bf16(s[n][2 * step], two, key[0][chunk].z, key[0][chunk].w);
                    mma_bf16(s[n][2 * step + 1], two, key[1][chunk].z, key[1][chunk].w);
                }
                if (HD % 32 == 0)
                    continue;
                const uint2 x = *(const uint2 *)&scratch->q[plane][u][HD / 32 * 32 + 4 * t];
                const uint2 y = *(const uint2 *)&scratch->q[plane][w][HD / 32 * 32 + 4 * t];
                const uint32_t one[4] = { x.x, y.x, x.y, y.y };
                mma_bf16(s[n][2 * step], one, rest[0].x, rest[0].y);
                mma_bf16(s[n][2 * step + 1], one, rest[1].x, rest[1].y);
            }
        }
    }
}

// ---- exponentials

// Replaces the scores of sixteen queries by exp(score - max). A lane has two queries and a quarter of the keys.
template <int HD, int QUERY_TILES>
static __device__ inline void tile_exponents(float (&s)[2 * STEPS][4], mma_scratch<HD, QUERY_TILES> *scratch, int heads,
                                             int query_tile, const struct view &v)
{
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int u = 16 * query_tile + g + 8 * half;
        const int seen = u < v.m ? scratch->positions[(v.first + u) / heads] - v.from : 0;
        float max_score = -INFINITY, total = 0;
        UNROLL
        for (int k = 0; k < 4 * STEPS; k++)
            if (k / 2 * 8 + 2 * t + k % 2 < seen)
                max_score = fmaxf(max_score, s[k / 2][2 * half + k % 2]);
        max_score = fmaxf(max_score, __shfl_xor_sync(0xFFFFFFFF, max_score, 1));
        max_score = fmaxf(max_score, __shfl_xor_sync(0xFFFFFFFF, max_score, 2));
        UNROLL
        for (int k = 0; k < 4 * STEPS; k++) {
            float &x = s[k / 2][2 * half + k % 2];
            x = expf(k / 2 * 8 + 2 * t + k % 2 < seen ? x - max_score : -INFINITY);
            total += x;
        }
        total += __shfl_xor_sync(0xFFFFFFFF, total, 1);
        total += __shfl_xor_sync(0xFFFFFFFF, total, 2);
        if (t == 0 && u < v.m) {
            scratch->max_score[v.tile][v.first + u] = max_score;
            scratch->total[v.tile][v.first + u] = total;
        }
    }
}

// ---- values

template <int E> struct lane_vector; // E elements of BF16
template <> struct lane_vector<8> {
    typedef uint4 vector;
};
template <> struct lane_vector<4> {
    typedef uint2 vector;
};
template <> struct lane_vector<2> {
    typedef uint32_t vector;
};

// sums = weights . values, columns column .. column + 8 E. Lane (g, t) loads E elements from E g on of four values per step: one
// for each of E MMAs, of whose results it holds columns 2 t and 2 t + 1. Returns whether a sum is not finite.
template <int E, int HD, int QUERY_TILES>
static __device__ inline bool tile_values(float (&weight)[QUERY_TILES][2 * STEPS][4], const uint8_t *values,
                                          uint32_t row_bytes, mma_scratch<HD, QUERY_TILES> *scratch,
                                          const int32_t *place, const struct view &v, int column)
{
    typedef typename lane_vector<E>::vector vector;
    union {
        vector all;
        uint32_t pair[E / 2];
    } value[4];
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    float sum[QUERY_TILES][E][4] = {};
    UNROLL
    for (int step = 0; step < STEPS; step++) {
        UNROLL
        for (int i = 0; i < 4; i++)
            value[i].all =
                *(const vector *)(values + 2 * (column + E * g) +
                                  (uint64_t)(uint32_t)place[16 * step + 2 * t + i % 2 + i / 2 * 8] * row_bytes);
        uint32_t part[QUERY_TILES][PLANES][4];
        UNROLL
        for (int n = 0; n < QUERY_TILES; n++)
            UNROLL
        for (int i = 0; i < 4; i++) {
            float *pair = &weight[n][2 * step + i / 2][i % 2 * 2];
            forget(pair[0]);
            forget(pair[1]);
            float x = pair[0], y = pair[1];
            UNROLL
            for (int plane = 0; plane < PLANES; plane++)
                part[n][plane][i] = split_plane(&x, &y);
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
            for (int n = 0; n < QUERY_TILES; n++)
                UNROLL
            for (int plane = PLANES - 1; plane >= 0; plane--)
                if (n == 0 || 16 * n < v.m)
                    mma_bf16(sum[n][j], part[n][plane], b[0], b[1]);
        }
    }
    bool nonfinite = false;
    UNROLL
    for (int n = 0; n < QUERY_TILES; n++)
        UNROLL
    for (int half = 0; half < 2; half++) {
        const int u = 16 * n + g + 8 * half;
        if (u >= v.m)
            continue;
        float4 *to = (float4 *)&scratch->sums[v.tile][v.first + u][column + 2 * E * t];
        UNROLL
        for (int j = 0; j < 2 * E; j += 4) {
            float x[4];
            UNROLL
            for (int e = 0; e < 4; e++) {
                x[e] = sum[n][(j + e) % E][2 * half + (j + e) / E];
                nonfinite = nonfinite || !(fabsf(x[e]) < INFINITY);
            }
            to[j / 4] = make_float4(x[0], x[1], x[2], x[3]);
        }
    }
    return nonfinite;
}

} // namespace DEVICE_SPACE
