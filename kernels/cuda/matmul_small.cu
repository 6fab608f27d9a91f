// matmul_small.cu - products with packed weights on tensor cores, for any number of rows: out (n, m) = x (n, k) w^T.
//
// The main idea: the computation of an output is the same for every n. K is divided into four slices, accumulated as
// in unit.h; their sums are added in order. An output of the matrix
// instruction depends on its own row of weights and its own row of x only, so n only decides how many outputs are
// computed together.
//
// Here a block has sixteen rows of weights, and each of its four warps a slice. Weights are loaded from memory
// directly to registers, a few units ahead; the input comes from the caches by ordinary loads. Registers are the
// scarcest resource: ptxas -v must show no spills.
#include "kernels/cuda/unit.h"

namespace DEVICE_SPACE
{

enum { THREADS = (int)SLICES * (int)WARP };

// sum := the products of a slice. tile: of part[0] and part[WEIGHTS - 1]; first:
// tile of x. Waits for the previous kernel when the first weights are on their way.
template <int FORM, int SCALING, int COLUMNS, int WEIGHTS>
__device__ inline void sum_slice(float (&sum)[WEIGHTS][COLUMNS][4], const struct part *part,
                                 const struct rounded &input, int tile, int first, int slice)
{
    constexpr int BLOCKS = form_unit(FORM) / GROUP, AHEAD = 4 / WEIGHTS; // units that are loaded ahead
    const int lane = threadIdx.x % WARP, from = tile * part->w.units;
    const struct slice in = slice_of(part->w.units, slice);
    struct fragment<FORM, SCALING> ring[AHEAD][WEIGHTS] = {};
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
        UNROLL
        for (int v = 0; v < WEIGHTS; v++)
            if (in.first + i < in.end)
                fetch(&ring[i][v], part[v].w, from + in.first + i, lane);
    }

    wait_for_previous(); // weights are not written by kernels
    // Few rows: lanes of missing ones read the last one again, at no cost. One row: an eighth of the reads.
    const int as = COLUMNS > 1 ? lane : min(lane / 4, input.n - 1) * 4 + lane % 4;
    const uint4 *x = input.data + first * WARP + as;
    const float *sums = input.sums + first * 8 + lane % 4 * 2;
    const uint32_t minus = 0xC300C300 + (uint32_t)part->w.zero * 0x00010001; // -128 - zero
    UNROLL_BY(COLUMNS * WEIGHTS > 1 ? 1 : AHEAD)
    for (int unit = in.first; unit < in.end; unit++) {
        struct fragment<FORM, SCALING> now[WEIGHTS];
        UNROLL
        for (int v = 0; v < WEIGHTS; v++) {
            now[v] = ring[0][v];
            UNROLL
            for (int i = 1; i < AHEAD; i++)
                ring[i - 1][v] = ring[i][v];
            if (unit + AHEAD < in.end)
                fetch(&ring[AHEAD - 1][v], part[v].w, from + unit + AHEAD, lane);
        }
        UNROLL
        for (int b = 0; b < BLOCKS; b++) {
            const int block = unit * BLOCKS + b;
            const uint4 *of_block = x + (int64_t)block * (input.tiles * WARP);
            uint32_t a[WEIGHTS][2][2][4];
            UNROLL
            for (int v = 0; v < WEIGHTS; v++) {
                weights_of<FORM>(a[v][0], now[v].quants, 0, minus);
                weights_of<FORM>(a[v][1], now[v].quants, 1, minus);
            }
            UNROLL
            for (int c = 0; c < COLUMNS; c++) {
                const uint4 tile_of_x = of_block[c * WARP];
                float2 of_x = make_float2(0, 0);
                if constexpr (has_offset(SCALING))
                    of_x = sums_of(sums + block * (2 * 8 * input.tiles) + c * 8, 8 * input.tiles);
                UNROLL
                for (int v = 0; v < WEIGHTS; v++)
                    add_block<FORM, SCALING>(sum[v][c], a[v], tile_of_x, now[v], of_x);
            }
            UNROLL
            for (int v = 0; v < WEIGHTS; v++)
                next_block(&now[v]);
        }
    }
}

// Adds the sums of the slices in order, and calls write(n, r, total) for each of the block's outputs.
template <int COLUMNS, int WEIGHTS, typename F>
__device__ inline void add_slices(const float (&sum)[WEIGHTS][COLUMNS][4], int slice, F write)
{
    __shared__ float part[SLICES][WEIGHTS][COLUMNS * 4][WARP];
    UNROLL
    for (int v = 0; v < WEIGHTS; v++)
        keep_sums<COLUMNS>(part[slice][v], sum[v]);
    __syncthreads();
    for (int o = threadIdx.x; o < COLUMNS * 8 * TILE; o += THREADS) {
        const int n = o / TILE, r = o % TILE; // numbers within the block's outputs
        const struct corner_of_sum in = sum_at(n, r);
        float total[WEIGHTS];
        UNROLL
        for (int v = 0; v < WEIGHTS; v++)
            total[v] = total_of_slices(part, v, in);
        write(n, r, total);
    }
}

template <int COLUMNS, int WEIGHTS>
__device__ inline void write_outputs(const struct work &k, const float (&sum)[WEIGHTS][COLUMNS][4], int slice,
                                     int first)
{
    const struct place at = place_of(k, (int)blockIdx.y); // recomputed, to save registers
    add_slices<COLUMNS, WEIGHTS>(sum, slice, [&](int n, int r, const float(&total)[WEIGHTS]) {
        const int64_t out_n = first * 8 + n, out_m = (int64_t)at.tile * TILE + r;
        if constexpr (WEIGHTS == 2)
            write_gated(k, out_n, out_m, total[0], total[1]);
        else
            write_total(k, k.part[at.part], out_n, out_m, total[0]);
    });
}

// Blocks per multiprocessor: four, if 128 registers per thread suffice.
__host__ __device__ constexpr int blocks_of(int form, int scaling, int columns, int weights)
{
    return columns * weights < 4 || !(scaling == SCALING_MIN || (scaling == SCALING_SUPER && form == FORM_INT8)) ? 4
                                                                                                                 : 2;
}

template <int FORM, int SCALING, int COLUMNS, int WEIGHTS>
static __global__ void __launch_bounds__(THREADS, blocks_of(FORM, SCALING, COLUMNS, WEIGHTS))
    small_kernel(const __grid_constant__ struct work k)
{
    launch_dependents();
    const int slice = threadIdx.x / WARP, first = blockIdx.x * COLUMNS; // first tile of eight rows of x
    const struct place at = place_of(k, (int)blockIdx.y);
    float sum[WEIGHTS][COLUMNS][4] = {};
    sum_slice<FORM, SCALING, COLUMNS, WEIGHTS>(sum, &k.part[at.part], k.x, at.tile, first, slice);
    write_outputs<COLUMNS, WEIGHTS>(k, sum, slice, first);
}

// ---- groups of rows

// A block has sixteen rows of one group's weights, and up to eight of its rows of x.
template <int FORM, int SCALING, int WEIGHTS>
static __global__ void __launch_bounds__(THREADS, blocks_of(FORM, SCALING, 1, WEIGHTS))
    grouped_kernel(const __grid_constant__ struct grouped_matmul k)
{
    launch_dependents();
    const int slice = threadIdx.x / WARP, tile = (int)blockIdx.y % k.w.tiles, column = (int)blockIdx.x;
    const auto &g = k.group[blockIdx.y / k.w.tiles];
    const int rows = min(g.rows - 8 * column, 8);
    if (rows <= 0)
        return; // no wait: a kernel ends with its last block, and every group has one of column 0, which waits
    struct part part[WEIGHTS];
    UNROLL
    for (int v = 0; v < WEIGHTS; v++) {
        part[v].w = k.w;
        part[v].w.quants = (uint4 *)g.quants[v];
        part[v].w.scales = (uint32_t *)g.scales[v];
        part[v].w.supers = (uint32_t *)g.supers[v];
    }
    struct rounded x = k.x;
    x.n = rows;
    float sum[WEIGHTS][1][4] = {};
    sum_slice<FORM, SCALING, 1, WEIGHTS>(sum, part, x, tile, g.first_tile + column, slice);
    add_slices<1, WEIGHTS>(sum, slice, [&](int n, int r, const float(&total)[WEIGHTS]) {
        const int64_t m = (int64_t)tile * TILE + r, to = (g.first_row + 8 * column + n) * k.w.rows + m;
        if (n < rows && m < k.w.rows)
            k.out[to] = WEIGHTS == 2 ? passed(total[0], k.f) * total[WEIGHTS - 1] : total[0];
    });
}

void matmul_grouped_run(struct cuda *c, const struct grouped_matmul &k, bool gated)
{
    int columns = 0;
    for (int i = 0; i < k.count; i++)
        columns = columns > blocks_for(k.group[i].rows, 8) ? columns : blocks_for(k.group[i].rows, 8);
    const dim3 grid((unsigned)columns, (unsigned)(k.count * k.w.tiles));
    with_form(k.w, [&]<int FORM, int SCALING>() {
        if (gated)
            QUEUE(c, (grouped_kernel<FORM, SCALING, 2>), grid, THREADS, 0, k);
        else
            QUEUE(c, (grouped_kernel<FORM, SCALING, 1>), grid, THREADS, 0, k);
    });
    cuda_launched(c, "matmul");
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int COLUMNS, int WEIGHTS> static void launch(struct cuda *c, const struct work &k)
{
    int tiles = 0;
    for (int i = 0; i < (WEIGHTS == 2 ? 1 : k.count); i++)
        tiles += k.part[i].w.tiles;
    // Blocks with the same weights are neighbours, so the second finds them in the cache.
    const dim3 grid((unsigned)(k.x.tiles / COLUMNS), (unsigned)tiles);
    QUEUE(c, (small_kernel<FORM, SCALING, COLUMNS, WEIGHTS>), grid, THREADS, 0, k);
}

void matmul_small_run(struct cuda *c, const struct work &k, bool gated)
{
    const bool one = k.x.tiles == 1;
    with_form(k.part[0].w, [&]<int FORM, int SCALING>() {
        if (gated)
            one ? launch<FORM, SCALING, 1, 2>(c, k) : launch<FORM, SCALING, 2, 2>(c, k);
        else
            one ? launch<FORM, SCALING, 1, 1>(c, k) : launch<FORM, SCALING, 2, 1>(c, k);
    });
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
