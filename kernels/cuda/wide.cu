// wide.cu - products of long passes, such as prompts: the sums of skinny.cu, bit for bit, in blocks that read weights and
// input less often.
//
// A block has SIDE rows of weights and as many of x; gated, half as many rows of either weight. skinny.cu's order of a
// sum asks for no more than two numbers an output: a slice's sum so far, and that of the slices before it. So a warp
// walks through all of K, slice after slice (units 0, 8, 16, .., then 1, 9, ..), and nothing is joined between warps. A
// warp has two tiles of rows, SIDE / 16 of x; gated, one tile of each weight, in neighbouring places of the block.
//
// Weights and x lie in fragments, what a warp loads at once. So do they in shared memory: copies are straight, reads have
// no conflicts, and quants are unpacked when they are in registers. A ring of stages, each a unit of k, is filled ahead.
#include "kernels/cuda/unit.h"

namespace DEVICE_SPACE
{

enum {
    MOST_SHARED = (99 << 10) - 64, // bytes: what a block can have on every device from 8.0 on, less a corner
    MOST_STAGES = 4,
    BAND = 8, // blocks: see corner_of
};

template <int FORM, int SCALING, int PLANES, int SIDE> struct alignas(16) stage {
    static constexpr int BLOCKS = form_unit(FORM) / GROUP;
    uint4 quants[SIDE / TILE][form_loads(FORM)][WARP];
    uint4 x[BLOCKS][SIDE / 8][PLANES][WARP];
    alignas(16) uint32_t scales[at_least_1(SIDE / TILE * 8 * scale_words(SCALING))]; // (tiles, g, words)
    alignas(16) uint32_t supers[at_least_1(SIDE / TILE * 8 * super_words(SCALING))];
    alignas(16) float sums[at_least_1(has_offset(SCALING) * BLOCKS * 2 * SIDE)]; // (blocks, 2, SIDE)
};

__host__ __device__ constexpr int stages_of(size_t bytes) // of one
{
    return MOST_SHARED / (int)bytes < MOST_STAGES ? MOST_SHARED / (int)bytes : MOST_STAGES;
}

struct corner { // of a block: its first tiles
    int row, column;
};

// Blocks that run at the same time should share what they read of both: so they go through a band of x some columns wide,
// in which a row's blocks are neighbours. What the band has of x stays in the second cache.
template <int SIDE> __device__ static struct corner corner_of(const struct wide &s, bool gated)
{
    const int per_row = SIDE / TILE >> gated, rows = (s.w[0].tiles + per_row - 1) / per_row;
    const int columns = (s.x.tiles * 8 + SIDE - 1) / SIDE;
    const int band = (int)blockIdx.x / (BAND * rows), in = (int)blockIdx.x % (BAND * rows);
    const int width = min(BAND, columns - band * BAND);
    return { in / width * per_row, (band * BAND + in % width) * (SIDE / 8) };
}

// ---- a stage

// What a warp copies: of weights the block's tile of rows that has the warp's number, of x every so many fragments.
struct source {
    int weight, unit; // of struct wide; the tile's first unit
    int x, tiles;     // the first of the tiles of x, and how many there are from there on
};

template <int SIDE>
__device__ inline struct source source_of(const struct wide &s, bool gated, const struct corner &corner)
{
    const int warp = threadIdx.x / WARP,
              tile = min(corner.row + (warp >> gated), s.w[0].tiles - 1); // there are no more
    return { gated ? warp % 2 : 0, tile * s.w[0].units, corner.column, s.x.tiles - corner.column };
}

// Sends a warp's share of a unit on its way. Of tiles that x does not have nothing is sent: no output is made of them.
template <int FORM, int SCALING, int PLANES, int SIDE>
__device__ inline void send(struct stage<FORM, SCALING, PLANES, SIDE> *to, const struct wide &s,
                            const struct source &source, int unit)
{
    constexpr int WARPS = SIDE / TILE, BLOCKS = form_unit(FORM) / GROUP;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const struct packed &w = s.w[source.weight];
    const int64_t at = source.unit + unit;
    UNROLL
    for (int i = 0; i < form_loads(FORM); i++)
        copy_ahead(&to->quants[warp][i][lane], w.quants + (at * form_loads(FORM) + i) * WARP + lane);
    if (lane < 2 * scale_words(SCALING))
        copy_ahead(&to->scales[warp * 8 * scale_words(SCALING) + 4 * lane],
                   w.scales + at * 8 * scale_words(SCALING) + 4 * lane);
    if (lane < 2 * super_words(SCALING))
        copy_ahead(&to->supers[warp * 8 * super_words(SCALING) + 4 * lane],
                   w.supers + at / 4 * 8 * super_words(SCALING) + 4 * lane);
    UNROLL
    for (int b = 0; b < BLOCKS; b++) {
        const int64_t tile = (int64_t)(unit * BLOCKS + b) * s.x.tiles + source.x;
        const uint4 *x = s.x.data + (tile * PLANES + warp) * WARP + lane;
        UNROLL
        for (int i = 0; i < 2 * PLANES; i++)
            if (i * WARPS + warp < source.tiles * PLANES)
                copy_ahead(&to->x[b][0][0][0] + (i * WARPS + warp) * WARP + lane, x + i * WARPS * WARP);
        const int half = lane / 4, sum = 16 * warp + lane % 4 * 4; // of a block's 32 k; which rows' sums
        if (has_offset(SCALING) && 2 * warp < source.tiles && lane < 8)
            copy_ahead(&to->sums[(2 * b + half) * SIDE + sum],
                       s.x.sums + ((int64_t)(unit * BLOCKS + b) * 2 + half) * s.x.tiles * 8 + source.x * 8 + sum);
    }
}

// What lanes have of a tile of rows.
template <int FORM, int SCALING, int PLANES, int SIDE>
__device__ inline struct ahead<FORM, SCALING> taken(const struct stage<FORM, SCALING, PLANES, SIDE> &from, int tile) {
    const int lane = threadIdx.x % WARP;
    struct ahead<FORM, SCALING> w;
    UNROLL
    for (int i = 0; i < form_loads(FORM); i++)
        w.quants[i] = from.quants[tile][i][lane];
    UNROLL
    for (int i = 0; i < scale_words(SCALING); i++)
        w.scale[i] = from.scales[(tile * 8 + lane / 4) * scale_words(SCALING) + i];
    UNROLL
    for (int i = 0; i < super_words(SCALING); i++)
        w.super[i] = from.supers[(tile * 8 + lane / 4) * super_words(SCALING) + i];
    return w;
}

// Outputs of a warp: of two tiles of rows, so many of x, as the matrix instruction has them.
template <int COLUMNS>
struct of_warp {
    float at[2][COLUMNS][4];
    __device__ inline void fill(float x)
    {
        UNROLL
        for (int i = 0; i < 8 * COLUMNS; i++)
            at[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] = x;
    }
    __device__ inline void add(const struct of_warp &x)
    {
        UNROLL
        for (int i = 0; i < 8 * COLUMNS; i++)
            at[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] += x.at[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4];
    }
};

// sum += the products of a unit; row, column: the warp's first tiles of the block's.
template <int FORM, int SCALING, int PLANES, int SIDE>
__device__ inline void multiply(struct of_warp<SIDE / 16> *sum, const struct stage<FORM, SCALING, PLANES, SIDE> &from,
                                int row, int column, uint32_t minus)
{
    constexpr int BLOCKS = form_unit(FORM) / GROUP;
    const int lane = threadIdx.x % WARP;
    struct ahead<FORM, SCALING> w[2] = {
        taken(from, row), taken(from, row + 1)
    };
    UNROLL_BY(1)
    for (int b = 0; b < BLOCKS; b++) {
        uint32_t a[2][2][2][4];
        UNROLL
        for (int r = 0; r < 2; r++) {
            weights_of<FORM>(a[r][0], w[r].quants, 0, minus);
            weights_of<FORM>(a[r][1], w[r].quants, 1, minus);
        }
        UNROLL
        for (int c = 0; c < SIDE / 16; c++) {
            uint4 planes[PLANES];
            float2 of_x = make_float2(0, 0);
            UNROLL
            for (int p = 0; p < PLANES; p++)
                planes[p] = from.x[b][column + c][p][lane];
            if constexpr (has_offset(SCALING))
                of_x = sums_of(&from.sums[2 * b * SIDE + (column + c) * 8 + lane % 4 * 2], SIDE);
            UNROLL
            for (int r = 0; r < 2; r++)
                add_block<FORM, SCALING, PLANES>(sum->at[r][c], a[r], planes, w[r], of_x);
        }
        next_block(&w[0]);
        next_block(&w[1]);
    }
}

// ---- the kernel

// The unit after this one. After the last there is none, and nobody asks.
__device__ inline int unit_after(int unit, int units)
{
    return unit + SLICES < units ? unit + SLICES : unit % SLICES + 1;
}

// Outputs of a block, in shared memory: (SIDE of x, SIDE of weights), rows padded to keep lanes in different banks.
template <int SIDE> struct of_block {
    float at[SIDE][SIDE + 4];
};

template <int SIDE>
__device__ inline void collect(struct of_block<SIDE> *to, const struct of_warp<SIDE / 16> &total, int row, int column)
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

// What becomes of the sums, as in finish(). Warps write stretches of the output's rows; where there is something to add to,
// several at a time are read, since one by one each would be waited for. Gated, a tile's other weight is the next tile.
template <int SIDE>
__device__ inline void put(const struct wide &s, const struct of_block<SIDE> &sums, const struct corner &corner,
                           bool gated)
{
    enum { TIMES = 8 };
    const int width = SIDE >> gated, step = SIDE * 2 / width, m = (int)threadIdx.x % width;
    const int64_t rows = s.w[0].rows, out_m = (int64_t)corner.row * TILE + m;
    if (out_m >= rows)
        return;
    const int at = gated ? m / TILE * 2 * TILE + m % TILE : m, count = min(SIDE, s.x.n - corner.column * 8);
    const float bias = s.bias != NULL ? s.bias[out_m] : 0;
    float *out = s.out + corner.column * 8 * rows + out_m;
    UNROLL_BY(1)
    for (int first = (int)threadIdx.x / width; first < count; first += TIMES * step) {
        float was[TIMES];
        UNROLL
        for (int i = 0; i < TIMES; i++)
            was[i] = s.add && first + i * step < count ? out[(first + i * step) * rows] : 0;
        UNROLL
        for (int i = 0; i < TIMES; i++) {
            const int n = first + i * step;
            if (n >= count)
                continue;
            float sum = sums.at[n][at];
            if (gated)
                sum = silu(sum) * sums.at[n][at + TILE];
            if (s.bias != NULL)
                sum += bias;
            out[n * rows] = s.add ? was[i] + sum : sum;
        }
    }
}

template <int FORM, int SCALING, int PLANES, int SIDE>
static __global__ void __launch_bounds__(SIDE * 2, SIDE == 128   ? 1
                                                   : PLANES == 1 ? 3
                                                                 : 2)
    wide_kernel(const __grid_constant__ struct wide s, bool gated)
{
    in_turn();
    using one = struct stage<FORM, SCALING, PLANES, SIDE>;
    constexpr int COLUMNS = SIDE / 16, STAGES = stages_of(sizeof(one));
    DYNAMIC_SHARED(one, ring);
    const int warp = threadIdx.x / WARP, units = s.w[0].units;
    __shared__ struct corner kept; // until the end: registers are short
    const struct corner corner = corner_of<SIDE>(s, gated);
    if (threadIdx.x == 0)
        kept = corner;
    struct source source = source_of<SIDE>(s, gated, corner);
    // What the warp multiplies.
    const int row = warp / 2 * 2, column = warp % 2 * COLUMNS;
    const bool has = corner.row + (row >> gated) < s.w[0].tiles && corner.column + column < s.x.tiles;
    const uint32_t minus = 0xC300C300 + (uint32_t)s.w[0].zero * 0x00010001; // -128 - zero
    struct of_warp<COLUMNS> sum, total;
    sum.fill(0);
    total.fill(-0.0f);      // which plus x is x, whatever its sign
    int unit = 0, next = 0; // to be multiplied, to be sent
    UNROLL_BY(1)
    for (int i = 1 - STAGES, from = 1; i < units; i++, from = from == STAGES - 1 ? 0 : from + 1) {
        if (i >= 0) {
            wait_for_copies<STAGES - 2>();
            __syncthreads(); // so all are done with the stage before this one, too, which is filled again
        }
        forget(source.unit); // addresses are computed from it here: kept they would cost registers
        forget(source.x);
        if (i + STAGES - 1 < units)
            send(&ring[from == 0 ? STAGES - 1 : from - 1], s, source, next);
        next = unit_after(next, units);
        close_copies();
        if (i < 0)
            continue;
        if (has)
            multiply(&sum, ring[from], row, column, minus);
        if (unit + SLICES >= units) { // the slice ends
            total.add(sum);
            sum.fill(0);
        }
        unit = unit_after(unit, units);
    }
    if (units < SLICES)
        total.add(sum); // slices without units are zeros, which show where the sum is -0
    __syncthreads();
    struct of_block<SIDE> *all = (struct of_block<SIDE> *)ring;
    if (has)
        collect<SIDE>(all, total, row, column);
    __syncthreads();
    put<SIDE>(s, *all, kept, gated);
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int PLANES, int SIDE> constexpr size_t shared_bytes()
{
    constexpr size_t one = sizeof(struct stage<FORM, SCALING, PLANES, SIDE>), sums = sizeof(struct of_block<SIDE>);
    return stages_of(one) * one > sums ? stages_of(one) * one : sums;
}

// Large blocks read least. There have to be three stages; and six products of each pair of numbers, three planes with
// halves' two parts, are more than there are registers, and read little for what they take.
template <int FORM, int SCALING, int PLANES> constexpr bool has_large()
{
    return stages_of(sizeof(struct stage<FORM, SCALING, PLANES, 128>)) >= 3 && !(FORM == FORM_F16 && PLANES == 3);
}

static int64_t blocks_of(const struct wide *s, bool gated, int side)
{
    return (int64_t)blocks_for(s->w[0].tiles, side / TILE >> gated) * blocks_for(s->x.tiles, side / 8);
}

template <int FORM, int SCALING, int PLANES, int SIDE>
static void launch(struct cuda *c, const struct wide *s, bool gated)
{
    auto *kernel = wide_kernel<FORM, SCALING, PLANES, SIDE>;
    const size_t bytes = shared_bytes<FORM, SCALING, PLANES, SIDE>();
    QUEUE(c, kernel, (unsigned)blocks_of(s, gated, SIDE), SIDE * 2, bytes, *s, gated);
}

// Large blocks where there are enough of them to keep the processors busy. No bit depends on it.
template <int FORM, int SCALING, int PLANES> static void choose_side(struct cuda *c, const struct wide *s, bool gated)
{
    if constexpr (has_large<FORM, SCALING, PLANES>())
        if (4 * blocks_of(s, gated, 128) >= 3 * c->processors) {
            launch<FORM, SCALING, PLANES, 128>(c, s, gated);
            return;
        }
    launch<FORM, SCALING, PLANES, 64>(c, s, gated);
}

void wide_run(struct cuda *c, const struct wide *s, bool gated)
{
    every_form([&]<int FORM, int SCALING>() {
        if (s->w[0].form != FORM || s->w[0].scaling != SCALING)
            return;
        if (wants_three(&s->w[0]))
            choose_side<FORM, SCALING, 3>(c, s, gated);
        else
            choose_side<FORM, SCALING, 1>(c, s, gated);
    });
    cuda_launched(c, "matmul");
}

template <int FORM, int SCALING, int PLANES, int SIDE> static void grant(struct cuda *c)
{
    if constexpr (SIDE == 64 || has_large<FORM, SCALING, PLANES>())
        cuda_note(c,
                  cudaFuncSetAttribute(wide_kernel<FORM, SCALING, PLANES, SIDE>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       (int)shared_bytes<FORM, SCALING, PLANES, SIDE>()),
                  "shared memory for products");
}

void wide_grant(struct cuda *c)
{
    every_form([&]<int FORM, int SCALING>() {
        grant<FORM, SCALING, 1, 64>(c), grant<FORM, SCALING, 1, 128>(c);
        grant<FORM, SCALING, 3, 64>(c), grant<FORM, SCALING, 3, 128>(c);
    });
}

} // namespace DEVICE_SPACE
