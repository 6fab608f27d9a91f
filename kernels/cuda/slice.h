// slice.h - the products of one warp: one slice of k, of one tile of rows of weights (or of the same tile of two weights) and up to eight
// tiles of eight rows of x. matmul_small.cu adds the slices; matmul_ring.cu has its own loads. For .cu files only.
//
// Weights are loaded from memory directly to registers, a few units ahead; the input comes from the caches by ordinary loads.
// Registers are the scarcest resource: ptxas -v must show no spills, and loops that would cause them are not unrolled.
#pragma once
#include "kernels/cuda/round.h"
#include "kernels/cuda/unit.h"

namespace DEVICE_SPACE
{

// One launch: weights with the same packing side by side, or (gated) gate and up.
struct work {
    struct small_matmul s;
    struct rounding planes; // gated: of the output
    enum gate_function f;   // gated
};

struct place { // of a tile: its part, and its number there
    int part, tile;
};

// Tile number `tile` of weights side by side; part s.count if there are fewer.
__device__ inline struct place place_of(const struct small_matmul &s, int tile)
{
    struct place p = { 0, tile };
    while (p.part < s.count && p.tile >= s.part[p.part].w.tiles)
        p.tile -= s.part[p.part++].w.tiles;
    return p;
}

// Units that are loaded ahead of the current one: fewer where a unit takes long, or needs many registers.
__host__ __device__ constexpr int ahead_of(int form, int columns, int weights, int planes)
{
    const int work = columns * weights * planes;
    return work >= 12 ? 1 : work >= (form_bits(form) == 8 ? 4 : 8) ? 2 : 4 / weights;
}

// sum := the products of units slice, slice + SLICES, .. below `units`. tile: of part[0] and part[WEIGHTS - 1]; first: tile of x. Waits
// for the previous kernel when the first weights are on their way.
template <int FORM, int SCALING, int PLANES, int COLUMNS, int WEIGHTS, int AHEAD>
__device__ inline void sum_slice(float (&sum)[WEIGHTS][COLUMNS][4], const struct part *part,
                                 const struct rounded &input, int tile, int units, int first, int slice)
{
    constexpr int BLOCKS = form_unit(FORM) / GROUP;
    const int lane = threadIdx.x % WARP, from = tile * part->w.units;
    struct fragment<FORM, SCALING> ring[AHEAD][WEIGHTS] = {};
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
        UNROLL
        for (int v = 0; v < WEIGHTS; v++)
            if (slice + i * SLICES < units)
                fetch(&ring[i][v], part[v].w, from + slice + i * SLICES, lane);
    }

    wait_for_previous(); // weights are not written by kernels
    // Few rows: lanes of missing ones read the last one again, at no cost. One row: an eighth of the reads.
    const int as = COLUMNS > 1 ? lane : min(lane / 4, input.n - 1) * 4 + lane % 4;
    const uint4 *x = input.data + first * PLANES * WARP + as;
    const float *sums = input.sums + first * 8 + lane % 4 * 2;
    const uint32_t minus = 0xC300C300 + (uint32_t)part->w.zero * 0x00010001; // -128 - zero
    UNROLL_BY(COLUMNS * WEIGHTS > 1 ? 1 : PLANES == 1 ? AHEAD : 2)
    for (int unit = slice; unit < units; unit += SLICES) {
        struct fragment<FORM, SCALING> now[WEIGHTS];
        UNROLL
        for (int v = 0; v < WEIGHTS; v++) {
            now[v] = ring[0][v];
            UNROLL
            for (int i = 1; i < AHEAD; i++)
                ring[i - 1][v] = ring[i][v];
            if (unit + AHEAD * SLICES < units)
                fetch(&ring[AHEAD - 1][v], part[v].w, from + unit + AHEAD * SLICES, lane);
        }
        UNROLL_BY(COLUMNS * WEIGHTS * PLANES >= 12 ? 1 : BLOCKS)
        for (int b = 0; b < BLOCKS; b++) {
            const int block = unit * BLOCKS + b;
            const uint4 *of_block = x + (int64_t)block * (input.tiles * PLANES * WARP);
            uint32_t a[WEIGHTS][2][2][4];
            UNROLL
            for (int v = 0; v < WEIGHTS; v++) {
                weights_of<FORM>(a[v][0], now[v].quants, 0, minus);
                weights_of<FORM>(a[v][1], now[v].quants, 1, minus);
            }
            UNROLL
            for (int c = 0; c < COLUMNS; c++) {
                uint4 planes[PLANES];
                float2 of_x = make_float2(0, 0);
                UNROLL
                for (int p = 0; p < PLANES; p++)
                    planes[p] = of_block[(c * PLANES + p) * WARP];
                if constexpr (has_offset(SCALING))
                    of_x = sums_of(sums + block * (2 * 8 * input.tiles) + c * 8, 8 * input.tiles);
                UNROLL
                for (int v = 0; v < WEIGHTS; v++)
                    add_block<FORM, SCALING, PLANES>(sum[v][c], a[v], planes, now[v], of_x);
            }
            UNROLL
            for (int v = 0; v < WEIGHTS; v++)
                next_block(&now[v]);
        }
    }
}

// Where the totals of output (n, r) of a tile are in what its warps have written: index i of COLUMNS * 4, and lane. Neighbouring outputs
// lie in different banks.
struct corner_of_sum {
    int i, lane;
};

__device__ inline struct corner_of_sum sum_at(int n, int r)
{
    const int i = n / 8 * 4 + r / 8 * 2 + n % 2;
    return { i, (r % 8 * 4 + n % 8 / 2) ^ (i % 4) };
}

// Writes the sums of a warp where sum_at finds them. to: (COLUMNS * 4, WARP)
template <int COLUMNS> __device__ inline void keep_sums(float (*to)[WARP], const float sum[COLUMNS][4])
{
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int i = 0; i < COLUMNS * 4; i++)
        to[i][lane ^ (i % 4)] = sum[i / 4][i % 4];
}

// Writes output (n, m) of a part, from the sum of all slices; gated: from those of gate and up.
__device__ inline void write_total(const struct work &k, const struct part &p, int64_t n, int64_t m, float total)
{
    if (n < k.s.x.n && m < p.w.rows)
        write_output(p.out + n * p.w.rows + m, total, p.bias != NULL ? p.bias + m : NULL, p.add);
}

__device__ inline void write_gated(const struct work &k, int64_t n, int64_t m, float gate, float up)
{
    const struct part &p = k.s.part[0];
    const float y = passed(gate, k.f) * up;
    if (n < k.s.x.n && m < p.w.rows)
        p.out[n * p.w.rows + m] = y;
    round_number(k.planes, n, m, y); // rows beyond n too: any numbers, as no output depends on them
}

} // namespace DEVICE_SPACE
