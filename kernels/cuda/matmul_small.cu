// matmul_small.cu - products with packed weights on tensor cores, for any number of rows: out (n, m) = x (n, k) w^T.
//
// The main idea: the computation of an output is the same for every n. A block has sixteen rows of weights, and its eight warps
// divide K: warp s takes units s, s + 8, s + 16, .. and accumulates them as in unit.h; the eight sums are added in order. An output of
// the matrix instruction depends on its own row of weights and its own row of x only, so n only decides how many outputs are
// computed together.
//
// Weights are loaded from memory directly to registers, a few units ahead; the input comes from the caches by ordinary loads.
// Registers are the scarcest resource: ptxas -v must show no spills, and loops that would cause them are not unrolled.
#include "kernels/cuda/round.h"
#include "kernels/cuda/unit.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

// One launch: weights with the same packing side by side, or (WEIGHTS == 2) gate and up.
template <int WEIGHTS> struct work {
    struct small_matmul s;
    struct rounding planes; // gated: of the output
};

// The part that a block computes, and the tile of it.
struct block_place {
    int part, tile;
};

template <int WEIGHTS> __device__ inline struct block_place place_of(const struct small_matmul &s)
{
    struct block_place p = { 0, (int)blockIdx.y };
    while (WEIGHTS == 1 && p.tile >= s.part[p.part].w.tiles)
        p.tile -= s.part[p.part++].w.tiles;
    return p;
}

// Adds the sums of the slices in order, and writes the outputs.
template <int COLUMNS, int WEIGHTS>
__device__ inline void write_outputs(const struct work<WEIGHTS> &k, const float sum[WEIGHTS][COLUMNS][4], int slice,
                                     int lane, int first)
{
    __shared__ float part[SLICES][WEIGHTS][COLUMNS * 4][32];
    UNROLL
    for (int v = 0; v < WEIGHTS; v++) {
        UNROLL
        for (int i = 0; i < COLUMNS * 4; i++)
            part[slice][v][i][lane] = sum[v][i / 4][i % 4];
    }
    __syncthreads();
    const struct block_place at = place_of<WEIGHTS>(k.s); // recomputed, to save registers
    const struct part &p = k.s.part[at.part];
    for (int o = threadIdx.x; o < COLUMNS * 8 * TILE; o += THREADS) {
        const int n = o / TILE, r = o % TILE; // of the block's outputs
        const int i = n / 8 * 4 + r / 8 * 2 + n % 2, l = r % 8 * 4 + n % 8 / 2;
        const int64_t out_n = first * 8 + n, out_m = (int64_t)at.tile * TILE + r;
        const bool real = out_n < k.s.x.n && out_m < p.w.rows;
        float total[WEIGHTS];
        UNROLL
        for (int v = 0; v < WEIGHTS; v++) {
            total[v] = part[0][v][i][l];
            UNROLL
            for (int other = 1; other < SLICES; other++)
                total[v] += part[other][v][i][l];
        }
        float *out = p.out + out_n * p.w.rows + out_m;
        if constexpr (WEIGHTS == 2) {
            const float y = silu(total[0]) * total[1];
            if (real)
                *out = y;
            round_number(k.planes, out_n, out_m, y); // rows beyond n too: zeros, if their input is zeros
        } else if (real)
            write_output(out, total[0], p.bias != NULL ? p.bias + out_m : NULL, p.add);
    }
}

// Blocks per multiprocessor: two, if 128 registers per thread suffice.
__host__ __device__ constexpr int blocks_of(int form, int scaling, int planes, int columns, int weights)
{
    const bool many = scaling == SCALING_MIN || (planes > 1 && form_bits(form) < 16); // needs many registers anyway
    return columns * weights < (many ? 4 : 8) || (form == FORM_BF16 && planes == 1) ? 2 : 1;
}

// Units that are loaded ahead of the current one: fewer where a unit takes long.
__host__ __device__ constexpr int ahead_of(int columns, int weights, int planes)
{
    return columns * weights * planes >= 12 ? 1 : columns * weights * planes >= 4 ? 2 : 4 / weights;
}

template <int FORM, int SCALING, int PLANES, int COLUMNS, int WEIGHTS>
static __global__ void __launch_bounds__(THREADS, blocks_of(FORM, SCALING, PLANES, COLUMNS, WEIGHTS))
    small_kernel(const __grid_constant__ struct work<WEIGHTS> k)
{
    launch_dependents();
    using unit_ahead = struct fragment<FORM, SCALING>;
    constexpr int AHEAD = ahead_of(COLUMNS, WEIGHTS, PLANES), BLOCKS = form_unit(FORM) / GROUP;
    const int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP;
    const int first = blockIdx.x * COLUMNS; // first tile of eight rows of x
    const struct rounded &input = k.s.x;
    const struct block_place at = place_of<WEIGHTS>(k.s);
    const struct part *const part = &k.s.part[at.part];
    const int units = part->w.units, from = at.tile * units;
    unit_ahead ring[AHEAD][WEIGHTS] = {};
    float sum[WEIGHTS][COLUMNS][4] = {};
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
        UNROLL
        for (int v = 0; v < WEIGHTS; v++)
            if (slice + i * SLICES < units)
                fetch(&ring[i][v], part[v].w, from + slice + i * SLICES, lane);
    }

    wait_for_previous(); // weights are not written by kernels
    const uint4 *x = input.data + first * PLANES * WARP + lane;
    const float *sums = input.sums + first * 8 + lane % 4 * 2;
    const bool in_pass = COLUMNS > 1 || lane / 4 < input.n;                  // one row: an eighth of the reads
    const uint32_t minus = 0xC300C300 + (uint32_t)part->w.zero * 0x00010001; // -128 - zero
    UNROLL_BY(COLUMNS * WEIGHTS > 1 ? 1 : PLANES == 1 ? AHEAD : 2)
    for (int unit = slice; unit < units; unit += SLICES) {
        unit_ahead now[WEIGHTS];
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
                    planes[p] = in_pass ? of_block[(c * PLANES + p) * WARP] : make_uint4(0, 0, 0, 0);
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
    write_outputs<COLUMNS, WEIGHTS>(k, sum, slice, lane, first);
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int PLANES, int COLUMNS, int WEIGHTS>
static void launch(struct cuda *c, const struct work<WEIGHTS> &k)
{
    int tiles = 0;
    for (int i = 0; i < (WEIGHTS == 2 ? 1 : k.s.count); i++)
        tiles += k.s.part[i].w.tiles;
    // Blocks with the same weights are neighbours, so the second finds them in the cache.
    const dim3 grid((unsigned)(k.s.x.tiles / COLUMNS), (unsigned)tiles);
    auto *kernel = small_kernel<FORM, SCALING, PLANES, COLUMNS, WEIGHTS>;
    QUEUE(c, kernel, grid, THREADS, 0, k);
}

template <int FORM, int SCALING, int PLANES> static void choose_columns(struct cuda *c, const struct work<2> &k)
{
    const int tiles = k.s.x.tiles;
    tiles == 1   ? launch<FORM, SCALING, PLANES, 1>(c, k)
    : tiles == 2 ? launch<FORM, SCALING, PLANES, 2>(c, k)
                 : launch<FORM, SCALING, PLANES, 4>(c, k);
}

template <int FORM, int SCALING, int PLANES> static void choose_columns(struct cuda *c, const struct work<1> &k)
{
    const int tiles = k.s.x.tiles;
    tiles == 1       ? launch<FORM, SCALING, PLANES, 1>(c, k)
    : tiles == 2     ? launch<FORM, SCALING, PLANES, 2>(c, k)
    : tiles % 8 != 0 ? launch<FORM, SCALING, PLANES, 4>(c, k)
                     : launch<FORM, SCALING, PLANES, 8>(c, k);
}

template <int WEIGHTS> static void choose(struct cuda *c, const struct work<WEIGHTS> &k)
{
    const struct packed *p = &k.s.part[0].w;
    every_form([&]<int FORM, int SCALING>() {
        if (p->form != FORM || p->scaling != SCALING)
            return;
        if (needs_three_planes(p))
            choose_columns<FORM, SCALING, 3>(c, k);
        else
            choose_columns<FORM, SCALING, 1>(c, k);
    });
    cuda_launched(c, "matmul");
}

void matmul_small_run(struct cuda *c, const struct small_matmul *s)
{
    struct work<1> k = {
    };
    k.s = *s;
    choose(c, k);
}

void matmul_small_gated(struct cuda *c, const struct small_matmul *s, const struct rounding *planes)
{
    struct work<2> k = {
    };
    k.s = *s;
    k.planes = *planes;
    choose(c, k);
}

} // namespace DEVICE_SPACE
