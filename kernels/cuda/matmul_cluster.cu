// matmul_cluster.cu - products of 9 to 64 rows on devices with clusters of blocks (compute capability 9.0): the sums of matmul_small.cu, bit
// for bit, with an eighth of its reads of x.
//
// Every block of matmul_small.cu reads all of x for sixteen rows of weights: with 64 rows, four bytes of x from L2 for each byte of
// bf16 weights. Here each of a cluster's eight blocks has one slice of k, and each of its eight warps a tile of its own, so that a block
// reads an eighth of x for 128 rows of weights: warps read the same x, from L1 after the first of them. The blocks then add the
// slices of each output in order, reading each other's shared memory. PTX ISA, "cluster of cooperative thread arrays".
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/slice.h"

namespace DEVICE_SPACE
{

enum { WARPS = 8, THREADS = WARPS * WARP };

// Tiles of a cluster. Gated: of four tiles of gate and of up, those of the same number in neighbouring warps.
__device__ inline struct place place_in_cluster(const struct work &k, bool gated, int warp)
{
    if (!gated)
        return place_of(k.s, (int)blockIdx.y * WARPS + warp);
    const int tile = (int)blockIdx.y * (WARPS / 2) + warp / 2;
    return { tile < k.s.part[0].w.tiles ? warp % 2 : k.s.count, tile };
}

// The sum of all slices, in order. of_slice: the sums of each block.
__device__ inline float total_of(const float *const (&of_slice)[SLICES], int at)
{
    float total = of_slice[0][at];
    UNROLL
    for (int s = 1; s < SLICES; s++)
        total += of_slice[s][at];
    return total;
}

// A block writes the outputs of an eighth of the rows of x. sums: (WARPS, COLUMNS * 4, WARP) in the shared memory of every block.
template <int COLUMNS>
__device__ inline void write_outputs(const struct work &k, bool gated, float (*sums)[COLUMNS * 4][WARP], int slice)
{
    constexpr int OF_WARP = COLUMNS * 4 * WARP;
    const int step = gated ? 2 : 1; // warps of a tile
    const float *of_slice[SLICES];
    UNROLL
    for (int s = 0; s < SLICES; s++)
        of_slice[s] = &in_block(sums, s)[0][0][0];
    for (int o = threadIdx.x; o < COLUMNS * TILE * WARPS / step; o += THREADS) {
        const int warp = o / (COLUMNS * TILE) * step, n = slice * COLUMNS + o / TILE % COLUMNS, r = o % TILE;
        const struct place at = place_in_cluster(k, gated, warp);
        if (at.part == k.s.count)
            continue;
        const struct corner_of_sum in = sum_at(n, r);
        const int at_sum = warp * OF_WARP + in.i * WARP + in.lane, m = at.tile * TILE + r;
        const float total = total_of(of_slice, at_sum);
        if (gated)
            write_gated(k, n, m, total, total_of(of_slice, at_sum + OF_WARP));
        else
            write_total(k, k.s.part[at.part], n, m, total);
    }
}

// Blocks per multiprocessor.
__host__ __device__ constexpr int blocks_of(int form, int scaling, int planes, int columns)
{
    const bool many = scaling == SCALING_MIN || (planes > 1 && form_bits(form) < 16); // needs many registers anyway
    return columns < (many ? 4 : 8) || (form == FORM_BF16 && planes == 1) ? 2 : 1;
}

template <int FORM, int SCALING, int PLANES, int COLUMNS>
static __global__ void __launch_bounds__(THREADS, blocks_of(FORM, SCALING, PLANES, COLUMNS))
    cluster_kernel(const __grid_constant__ struct work k, bool gated)
{
#if defined(EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900) // not launched on older devices
    launch_dependents();
    typedef float warp_sums[COLUMNS * 4][WARP];
    DYNAMIC_SHARED(warp_sums, sums); // (WARPS)
    const int warp = threadIdx.x / WARP, slice = block_in_cluster();
    const struct place at = place_in_cluster(k, gated, warp);
    const bool has_tile = at.part < k.s.count;
    const struct part *const part = &k.s.part[has_tile ? at.part : 0];
    constexpr int AHEAD = FORM == FORM_BF16 && PLANES * COLUMNS == 8 ? 3 : ahead_of(FORM, COLUMNS, 1, PLANES);
    float sum[1][COLUMNS][4] = {};
    sum_slice<FORM, SCALING, PLANES, COLUMNS, 1, AHEAD>(sum, part, k.s.x, at.tile, has_tile ? part->w.units : 0, 0,
                                                        slice);
    keep_sums<COLUMNS>(sums[warp], sum[0]);
    cluster_barrier();
    write_outputs<COLUMNS>(k, gated, sums, slice);
    cluster_end(); // others have read this block's sums
#endif
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int PLANES, int COLUMNS>
static void launch(struct cuda *c, const struct work &k, bool gated)
{
    int tiles = 0;
    for (int i = 0; i < k.s.count; i++)
        tiles += k.s.part[i].w.tiles;
    const dim3 grid(SLICES, (unsigned)blocks_for(tiles, WARPS));
    QUEUE_CLUSTERS(c, (cluster_kernel<FORM, SCALING, PLANES, COLUMNS>), SLICES, grid, THREADS,
                   WARPS * COLUMNS * 4 * WARP * sizeof(float), k, gated);
}

template <int FORM, int SCALING, int PLANES>
static void choose_columns(struct cuda *c, const struct work &k, bool gated)
{
    const int tiles = k.s.x.tiles;
    assert(tiles == 2 || tiles == 4 || tiles == 8);
    tiles == 2   ? launch<FORM, SCALING, PLANES, 2>(c, k, gated)
    : tiles == 4 ? launch<FORM, SCALING, PLANES, 4>(c, k, gated)
                 : launch<FORM, SCALING, PLANES, 8>(c, k, gated);
}

void matmul_cluster_run(struct cuda *c, const struct work &k, bool gated)
{
    with_form(&k.s.part[0].w,
              [&]<int FORM, int SCALING, int PLANES>() { choose_columns<FORM, SCALING, PLANES>(c, k, gated); });
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
