// matmul_large.cu - products of long passes, such as prompts: the same sums as matmul_small.cu, bit for bit, in larger
// blocks that read weights and input less often.
//
// A block has SIDE rows of weights and SIDE rows of x; gated, half as many rows of each weight. The order of a sum in
// matmul_small.cu needs only two accumulators per output: the sum of the current slice, and that of the slices before
// it. So each warp walks through all of K, and nothing is combined between warps. A warp has two tiles of rows and
// SIDE / 16 tiles of x; gated, one tile of each weight, adjacent in the block.
//
// Weights and x are stored as fragments, what a warp loads at once, in global and in shared memory: copies are
// contiguous, reads are free of bank conflicts, and quants are unpacked in registers. A ring of stages, each one unit
// of k, is filled ahead.
#include "kernels/cuda/unit.h"

namespace DEVICE_SPACE
{

enum {
    MAX_SHARED =
        (99 << 10) - 64, // bytes: available to a block on every device from compute capability 8.0, less static memory
    MAX_STAGES = 4,
    BAND = 8, // blocks: see corner_of
};

template <int FORM, int SCALING, int SIDE> using stage_of = struct stage<FORM, SCALING, SIDE / TILE, SIDE / 8>;

__host__ __device__ constexpr int stages_of(size_t bytes) // bytes: of one stage
{
    return MAX_SHARED / (int)bytes < MAX_STAGES ? MAX_SHARED / (int)bytes : MAX_STAGES;
}

struct corner { // first tiles of a block
    int row, column;
};

// Blocks that run at the same time should share their reads of weights and x: they are ordered in bands of BAND columns
// of x, in which the blocks of a row are neighbours. The part of x in a band stays in L2.
template <int SIDE> __device__ static struct corner corner_of(const struct work &s, bool gated)
{
    const int per_row = SIDE / TILE >> gated, rows = (s.part[0].w.tiles + per_row - 1) / per_row;
    const int columns = (s.x.tiles * 8 + SIDE - 1) / SIDE;
    const int band = (int)blockIdx.x / (BAND * rows), in = (int)blockIdx.x % (BAND * rows);
    const int width = min(BAND, columns - band * BAND);
    return { in / width * per_row, (band * BAND + in % width) * (SIDE / 8) };
}

// ---- a stage

// What a warp copies: the tile of weights with the warp's number, and every WARPS-th fragment of x.
struct source {
    int weight, unit; // index of the part; first unit of the tile
    int x, tiles;     // first tile of x, and number of tiles from there on
};

template <int SIDE>
__device__ inline struct source source_of(const struct work &s, bool gated, const struct corner &corner)
{
    const int warp = threadIdx.x / WARP,
              tile = min(corner.row + (warp >> gated), s.part[0].w.tiles - 1); // clamped to existing tiles
    return { gated ? warp % 2 : 0, tile * s.part[0].w.units, corner.column, s.x.tiles - corner.column };
}

// Starts the copies of a warp's share of a unit: the weights, which no kernel writes, and the input. Missing tiles of x
// are not copied: no output depends on them.
template <int FORM, int SCALING, int SIDE>
__device__ inline void copy_weights(stage_of<FORM, SCALING, SIDE> *to, const struct work &s,
                                    const struct source &source, int unit)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const struct packed &w = s.part[source.weight].w;
    const int64_t at = source.unit + unit;
    UNROLL
    for (int i = 0; i < form_loads(FORM); i++)
        copy_async(&to->quants[warp][i][lane], w.quants + (at * form_loads(FORM) + i) * WARP + lane);
    if (lane < 2 * scale_words(SCALING))
        copy_async(&to->scales[warp * 8 * scale_words(SCALING) + 4 * lane],
                   w.scales + at * 8 * scale_words(SCALING) + 4 * lane);
    if (lane < 2 * super_words(SCALING))
        copy_async(&to->supers[warp * 8 * super_words(SCALING) + 4 * lane],
                   w.supers + at / 4 * 8 * super_words(SCALING) + 4 * lane);
}

template <int FORM, int SCALING, int SIDE>
__device__ inline void copy_input(stage_of<FORM, SCALING, SIDE> *to, const struct work &s, const struct source &source,
                                  int unit)
{
    constexpr int WARPS = SIDE / TILE, BLOCKS = form_unit(FORM) / GROUP;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    UNROLL
    for (int b = 0; b < BLOCKS; b++) {
        const int64_t tile = (int64_t)(unit * BLOCKS + b) * s.x.tiles + source.x;
        const uint4 *x = s.x.data + (tile + warp) * WARP + lane;
        UNROLL
        for (int i = 0; i < 2; i++)
            if (i * WARPS + warp < source.tiles)
                copy_async(&to->x[b][i * WARPS + warp][lane], x + i * WARPS * WARP);
        const int half = lane / 4, sum = 16 * warp + lane % 4 * 4; // half of the 32 k; first of the rows
        if (has_offset(SCALING) && 2 * warp < source.tiles && lane < 8)
            copy_async(&to->sums[(2 * b + half) * SIDE + sum],
                       s.x.sums + ((int64_t)(unit * BLOCKS + b) * 2 + half) * s.x.tiles * 8 + source.x * 8 + sum);
    }
}

// Accumulators of a warp: two tiles of rows by COLUMNS tiles of x, as the matrix instruction holds them.
template <int COLUMNS> struct warp_sums {
    float at[2][COLUMNS][4];
    __device__ inline void fill(float x)
    {
        UNROLL
        for (int i = 0; i < 8 * COLUMNS; i++)
            at[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] = x;
    }
    __device__ inline void add(const struct warp_sums &x)
    {
        UNROLL
        for (int i = 0; i < 8 * COLUMNS; i++)
            at[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] += x.at[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4];
    }
};

// sum += the products of a unit. row, column: first tiles of the warp in the block.
template <int FORM, int SCALING, int SIDE>
__device__ inline void multiply(struct warp_sums<SIDE / 16> *sum, const stage_of<FORM, SCALING, SIDE> &from, int row,
                                int column, uint32_t minus)
{
    const int lane = threadIdx.x % WARP;
    struct fragment<FORM, SCALING> w[2] = {
        load_fragment<FORM, SCALING>(from, row), load_fragment<FORM, SCALING>(from, row + 1)
    };
    add_unit<FORM, SCALING, SIDE / 16>(sum->at, w, &from.x[0][column][lane], &from.sums[column * 8 + lane % 4 * 2],
                                       SIDE / 8, minus);
}

// ---- the kernel

// Sums of a block in shared memory: (SIDE rows of x, SIDE rows of weights), padded to keep lanes in different banks.
template <int SIDE> struct block_sums {
    float at[SIDE][SIDE + 4];
};

template <int SIDE>
__device__ inline void collect(struct block_sums<SIDE> *to, const struct warp_sums<SIDE / 16> &total, int row,
                               int column)
{
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int r = 0; r < 2; r++)
        UNROLL
    for (int c = 0; c < SIDE / 16; c++)
        UNROLL
    for (int i = 0; i < 4; i++)
        to->at[(column + c) * 8 + lane % 4 * 2 + i % 2][(row + r) * TILE + lane / 4 + i / 2 * 8] = total.at[r][c][i];
}

// Writes the outputs, as write_output() does. Warps write consecutive parts of output rows. With add, several old
// values are read at a time, to overlap their latencies. Gated, the sums of up are in the tile after that of gate.
template <int SIDE>
__device__ inline void write_outputs(const struct work &s, const struct block_sums<SIDE> &sums,
                                     const struct corner &corner, bool gated)
{
    enum { BATCH = 8 };
    const int width = SIDE >> gated, step = SIDE * 2 / width, m = (int)threadIdx.x % width;
    const int64_t rows = s.part[0].w.rows, out_m = (int64_t)corner.row * TILE + m;
    if (out_m >= rows)
        return;
    const int at = gated ? m / TILE * 2 * TILE + m % TILE : m, count = min(SIDE, s.x.n - corner.column * 8);
    const float bias = s.part[0].bias != NULL ? s.part[0].bias[out_m] : 0;
    float *out = s.part[0].out + corner.column * 8 * rows + out_m;
    UNROLL_BY(1)
    for (int first = (int)threadIdx.x / width; first < count; first += BATCH * step) {
        float before[BATCH];
        UNROLL
        for (int i = 0; i < BATCH; i++)
            before[i] = s.part[0].add && first + i * step < count ? out[(first + i * step) * rows] : 0;
        UNROLL
        for (int i = 0; i < BATCH; i++) {
            const int n = first + i * step;
            if (n >= count)
                continue;
            float sum = sums.at[n][at];
            if (gated)
                sum = passed(sum, s.f) * sums.at[n][at + TILE];
            if (s.part[0].bias != NULL)
                sum += bias;
            out[n * rows] = s.part[0].add ? before[i] + sum : sum;
        }
    }
}

template <int FORM, int SCALING, int SIDE>
static __global__ void __launch_bounds__(SIDE * 2, SIDE == 128 ? 1 : 3)
    large_kernel(const __grid_constant__ struct work s, bool gated)
{
    launch_dependents();
    using stage_type = stage_of<FORM, SCALING, SIDE>;
    constexpr int COLUMNS = SIDE / 16, STAGES = stages_of(sizeof(stage_type));
    DYNAMIC_SHARED(stage_type, ring);
    const int warp = threadIdx.x / WARP, units = s.part[0].w.units;
    __shared__ struct corner block_corner; // shared memory saves registers until the end
    const struct corner corner = corner_of<SIDE>(s, gated);
    if (threadIdx.x == 0)
        block_corner = corner;
    struct source source = source_of<SIDE>(s, gated, corner);
    // The warp's tiles in the block.
    const int row = warp / 2 * 2, column = warp % 2 * COLUMNS;
    const bool has_tiles = corner.row + (row >> gated) < s.part[0].w.tiles && corner.column + column < s.x.tiles;
    const uint32_t minus = 0xC300C300 + (uint32_t)s.part[0].w.zero * 0x00010001; // -128 - zero
    struct warp_sums<COLUMNS> sum, total;
    sum.fill(0);
    total.fill(-0.0f); // -0 + x is x, whatever the sign of x
    int slice_ends = slice_of(units, 0).end, slice = 0;
    UNROLL
    for (int i = 0; i < STAGES - 1 && i < units; i++)
        copy_weights<FORM, SCALING, SIDE>(&ring[i], s, source, i);
    wait_for_previous(); // weights are not written by kernels; the first group of copies has those of all first stages
    UNROLL_BY(1)
    for (int i = 1 - STAGES, from = 1; i < units; i++, from = from == STAGES - 1 ? 0 : from + 1) {
        if (i >= 0) {
            wait_for_copies<STAGES - 2>();
            __syncthreads(); // all warps are also done with the previous stage, which is refilled now
        }
        forget(source.unit); // recompute addresses from these here: keeping them costs registers
        forget(source.x);
        if (i + STAGES - 1 < units) {
            stage_type *const to = &ring[from == 0 ? STAGES - 1 : from - 1];
            if (i >= 0)
                copy_weights<FORM, SCALING, SIDE>(to, s, source, i + STAGES - 1);
            copy_input<FORM, SCALING, SIDE>(to, s, source, i + STAGES - 1);
        }
        commit_copies();
        if (i < 0)
            continue;
        if (has_tiles)
            multiply<FORM, SCALING, SIDE>(&sum, ring[from], row, column, minus);
        if (i + 1 == slice_ends) {
            total.add(sum);
            sum.fill(0);
            slice_ends = slice_of(units, ++slice).end;
        }
    }
    if (slice < SLICES)
        total.add(sum); // adds the zeros of empty slices, which turn -0 into 0 as in matmul_small.cu
    __syncthreads();
    struct block_sums<SIDE> *all = (struct block_sums<SIDE> *)ring;
    if (has_tiles)
        collect<SIDE>(all, total, row, column);
    __syncthreads();
    write_outputs<SIDE>(s, *all, block_corner, gated);
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int SIDE> constexpr size_t shared_bytes()
{
    constexpr size_t stage_type = sizeof(stage_of<FORM, SCALING, SIDE>), sums = sizeof(struct block_sums<SIDE>);
    return stages_of(stage_type) * stage_type > sums ? stages_of(stage_type) * stage_type : sums;
}

static int64_t blocks_of(const struct work &k, bool gated, int side)
{
    return (int64_t)blocks_for(k.part[0].w.tiles, side / TILE >> gated) * blocks_for(k.x.tiles, side / 8);
}

template <int FORM, int SCALING, int SIDE> static void launch(struct cuda *c, const struct work &k, bool gated)
{
    static uint64_t allowed;
    constexpr size_t bytes = shared_bytes<FORM, SCALING, SIDE>();
    cuda_allow_shared(c, (const void *)large_kernel<FORM, SCALING, SIDE>, bytes, &allowed);
    QUEUE(c, (large_kernel<FORM, SCALING, SIDE>), (unsigned)blocks_of(k, gated, SIDE), SIDE * 2, bytes, k, gated);
}

int64_t matmul_large_blocks(const struct work &k, bool gated)
{
    return blocks_of(k, gated, 64);
}

// Large blocks if there are enough of them to keep the processors busy. The choice does not change the result.
void matmul_large_run(struct cuda *c, const struct work &k, bool gated)
{
    with_form(k.part[0].w, [&]<int FORM, int SCALING>() {
        static_assert(stages_of(sizeof(stage_of<FORM, SCALING, 128>)) >= 3, "a ring");
        if (4 * blocks_of(k, gated, 128) >= 3 * c->processors)
            launch<FORM, SCALING, 128>(c, k, gated);
        else
            launch<FORM, SCALING, 64>(c, k, gated);
    });
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
