// matmul_small.cu - products with packed weights on tensor cores, for any number of rows: out (n, m) = x (n, k) w^T.
//
// The main idea: the computation of an output is the same for every n. K is divided into eight slices: slice s has units s, s + 8, s + 16,
// .., accumulated as in unit.h; the eight sums are added in order. An output of the matrix instruction depends on its own row of
// weights and its own row of x only, so n only decides how many outputs are computed together.
//
// Here a block has sixteen rows of weights, and each of its eight warps a slice.
#include "kernels/cuda/slice.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

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
        const int n = o / TILE, r = o % TILE; // of the block's outputs
        const struct corner_of_sum in = sum_at(n, r);
        float total[WEIGHTS];
        UNROLL
        for (int v = 0; v < WEIGHTS; v++) {
            total[v] = part[0][v][in.i][in.lane];
            UNROLL
            for (int other = 1; other < SLICES; other++)
                total[v] += part[other][v][in.i][in.lane];
        }
        write(n, r, total);
    }
}

template <int COLUMNS, int WEIGHTS>
__device__ inline void write_outputs(const struct work &k, const float (&sum)[WEIGHTS][COLUMNS][4], int slice,
                                     int first)
{
    const struct place at = place_of(k.s, (int)blockIdx.y); // recomputed, to save registers
    add_slices<COLUMNS, WEIGHTS>(sum, slice, [&](int n, int r, const float(&total)[WEIGHTS]) {
        const int64_t out_n = first * 8 + n, out_m = (int64_t)at.tile * TILE + r;
        if constexpr (WEIGHTS == 2)
            write_gated(k, out_n, out_m, total[0], total[1]);
        else
            write_total(k, k.s.part[at.part], out_n, out_m, total[0]);
    });
}

// Blocks per multiprocessor: two, if 128 registers per thread suffice.
__host__ __device__ constexpr int blocks_of(int form, int scaling, int planes, int columns, int weights)
{
    const bool many = scaling == SCALING_MIN || (scaling == SCALING_SUPER && form == FORM_INT8) ||
                      (planes > 1 && form_bits(form) < 16); // needs many registers anyway
    return columns * weights < (many ? 4 : 8) || (form == FORM_BF16 && planes == 1) ? 2 : 1;
}

template <int FORM, int SCALING, int PLANES, int COLUMNS, int WEIGHTS>
static __global__ void __launch_bounds__(THREADS, blocks_of(FORM, SCALING, PLANES, COLUMNS, WEIGHTS))
    small_kernel(const __grid_constant__ struct work k)
{
    launch_dependents();
    const int slice = threadIdx.x / WARP, first = blockIdx.x * COLUMNS; // first tile of eight rows of x
    const struct place at = place_of(k.s, (int)blockIdx.y);
    const struct part *const part = &k.s.part[at.part];
    constexpr int AHEAD = ahead_of(FORM, COLUMNS, WEIGHTS, PLANES);
    float sum[WEIGHTS][COLUMNS][4] = {};
    sum_slice<FORM, SCALING, PLANES, COLUMNS, WEIGHTS, AHEAD>(sum, part, k.s.x, at.tile, part->w.units, first, slice);
    write_outputs<COLUMNS, WEIGHTS>(k, sum, slice, first);
}

// ---- groups of rows

__host__ __device__ constexpr int group_blocks_of(int form, int scaling, int planes, int weights)
{
    return form == FORM_INT8 && planes > 1 ? 1 : blocks_of(form, scaling, planes, 1, weights); // two would spill
}

// A block has sixteen rows of one group's weights, and up to eight of its rows of x.
template <int FORM, int SCALING, int PLANES, int WEIGHTS>
static __global__ void __launch_bounds__(THREADS, group_blocks_of(FORM, SCALING, PLANES, WEIGHTS))
    grouped_kernel(const __grid_constant__ struct grouped_matmul k)
{
    launch_dependents();
    const int slice = threadIdx.x / WARP, tile = (int)blockIdx.y % k.w.tiles, column = (int)blockIdx.x;
    const auto &g = k.group[blockIdx.y / k.w.tiles];
    const int rows = min(g.rows - 8 * column, 8);
    if (rows <= 0)
        return; // without a wait: a kernel has ended only when all its blocks have, and those of column 0, which every group has, wait
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
    constexpr int AHEAD = ahead_of(FORM, 1, WEIGHTS, PLANES);
    float sum[WEIGHTS][1][4] = {};
    sum_slice<FORM, SCALING, PLANES, 1, WEIGHTS, AHEAD>(sum, part, x, tile, k.w.units, g.first_tile + column, slice);
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
    with_form(&k.w, [&]<int FORM, int SCALING, int PLANES>() {
        if (gated)
            QUEUE(c, (grouped_kernel<FORM, SCALING, PLANES, 2>), grid, THREADS, 0, k);
        else
            QUEUE(c, (grouped_kernel<FORM, SCALING, PLANES, 1>), grid, THREADS, 0, k);
    });
    cuda_launched(c, "matmul");
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int PLANES, int COLUMNS, int WEIGHTS>
static void launch(struct cuda *c, const struct work &k)
{
    int tiles = 0;
    for (int i = 0; i < (WEIGHTS == 2 ? 1 : k.s.count); i++)
        tiles += k.s.part[i].w.tiles;
    // Blocks with the same weights are neighbours, so the second finds them in the cache.
    const dim3 grid((unsigned)(k.s.x.tiles / COLUMNS), (unsigned)tiles);
    QUEUE(c, (small_kernel<FORM, SCALING, PLANES, COLUMNS, WEIGHTS>), grid, THREADS, 0, k);
}

template <int FORM, int SCALING, int PLANES>
static void choose_columns(struct cuda *c, const struct work &k, bool gated)
{
    const int tiles = k.s.x.tiles;
    if (gated)
        tiles == 1   ? launch<FORM, SCALING, PLANES, 1, 2>(c, k)
        : tiles == 2 ? launch<FORM, SCALING, PLANES, 2, 2>(c, k)
                     : launch<FORM, SCALING, PLANES, 4, 2>(c, k);
    else
        tiles == 1       ? launch<FORM, SCALING, PLANES, 1, 1>(c, k)
        : tiles == 2     ? launch<FORM, SCALING, PLANES, 2, 1>(c, k)
        : tiles % 8 != 0 ? launch<FORM, SCALING, PLANES, 4, 1>(c, k)
                         : launch<FORM, SCALING, PLANES, 8, 1>(c, k);
}

void matmul_small_run(struct cuda *c, const struct work &k, bool gated)
{
    with_form(&k.s.part[0].w,
              [&]<int FORM, int SCALING, int PLANES>() { choose_columns<FORM, SCALING, PLANES>(c, k, gated); });
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
