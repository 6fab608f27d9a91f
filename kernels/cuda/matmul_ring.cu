// matmul_ring.cu - products of up to 64 rows on devices with bulk copies (compute capability 9.0): the sums of
// matmul_small.cu, bit for bit, with weights and input on their way through shared memory.
//
// What a memory delivers is bounded by what is asked of it ahead of time, and registers hold too little of that. Here a
// block has a multiprocessor, and each of its eight warps one slice of k, for ROWS tiles of rows of weights and all
// COLUMNS tiles of x, and a ring of its own in shared memory: a stage is a unit of k, filled by bulk copies a whole
// ring ahead. A warp waits for its own copies only. A block has several groups of tiles, one after the other, and its
// rings run on from one to the next: while the slices of a group are added, weights of the next one arrive. The first
// weights are under way while the previous kernel ends. Every group reads all of x, from L2: more tiles in a group mean
// fewer such reads, but groups that cannot be shared out as evenly (rows_of chooses). PTX ISA, cp.async.bulk and
// mbarrier.
#include "kernels/cuda/unit.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256, MAX_STAGES = 16 };
static_assert((int)THREADS == (int)SLICES * (int)WARP, "a warp for each slice");

// Tiles of rows whose slices are added together, those of gate and up among them, and tiles of x.
__host__ __device__ constexpr int together_of(int rows)
{
    return rows < 2 ? rows : 2;
}

__host__ __device__ constexpr int width_of(int columns)
{
    return columns < 4 ? columns : 4;
}

template <int COLUMNS, int ROWS> using sums_of_slice = float[together_of(ROWS)][width_of(COLUMNS) * 4][WARP];

template <int FORM, int SCALING, int COLUMNS, int ROWS> struct ring_shape {
    typedef struct stage<FORM, SCALING, ROWS, COLUMNS> stage_type;
    static constexpr int TOGETHER = together_of(ROWS), WIDTH = width_of(COLUMNS);
    static constexpr int FIT = (RING_SHARED - SLICES * (int)sizeof(sums_of_slice<COLUMNS, ROWS>)) /
                               (SLICES * (int)(sizeof(stage_type) + sizeof(struct arrival)));
    static constexpr int STAGES = FIT < MAX_STAGES ? FIT : (int)MAX_STAGES;
    static_assert(STAGES >= 2, "a ring");
    struct block { // shared memory
        stage_type ring[SLICES][STAGES];
        sums_of_slice<COLUMNS, ROWS> sums[SLICES];
        struct arrival arrival[SLICES][STAGES];
    };
};

// Tile number r of a group: of the weights side by side, or (gated) of gate and up in turn. A tile beyond the last one
// is that.
template <int ROWS> __device__ inline struct place place_in_group(const struct work &k, bool gated, int group, int r)
{
    if (gated)
        return { r % 2, min(group * (ROWS / 2) + r / 2, k.part[0].w.tiles - 1) };
    struct place p = place_of(k, group * ROWS + r);
    if (p.part == k.count)
        p = { k.count - 1, k.part[k.count - 1].w.tiles - 1 };
    return p;
}

// Where a warp's copies of weights are: unit `unit` of the tiles of a group.
template <int FORM, int SCALING, int COLUMNS, int ROWS> struct reader {
    const uint4 *quants[ROWS];
    const uint32_t *scales[ROWS], *supers[ROWS];
    int group, unit;

    __device__ inline void begin(const struct work &k, bool gated, int at_group, int slice)
    {
        group = at_group;
        unit = slice;
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            const struct place at = place_in_group<ROWS>(k, gated, group, r);
            const struct packed &p = k.part[at.part].w;
            const int64_t first = (int64_t)at.tile * p.units;
            quants[r] = p.quants + first * form_loads(FORM) * WARP;
            scales[r] = p.scales + first * 8 * scale_words(SCALING);
            supers[r] = p.supers + first / 4 * 8 * super_words(SCALING);
        }
    }

    // Copies the unit, by one thread.
    __device__ inline void copy(struct stage<FORM, SCALING, ROWS, COLUMNS> *to, struct arrival *a) const
    {
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            copy_bulk(to->quants[r], quants[r] + unit * form_loads(FORM) * WARP, (int)sizeof(to->quants[r]), a, true);
            if constexpr (scale_words(SCALING) > 0)
                copy_bulk(&to->scales[r * 8 * scale_words(SCALING)], scales[r] + unit * 8 * scale_words(SCALING),
                          32 * scale_words(SCALING), a, true);
            if constexpr (super_words(SCALING) > 0)
                copy_bulk(&to->supers[r * 8 * super_words(SCALING)], supers[r] + unit / 4 * 8 * super_words(SCALING),
                          32 * super_words(SCALING), a, true);
        }
    }

    __device__ inline void go_on(const struct work &k, bool gated, int slice)
    {
        unit += SLICES;
        if (unit >= k.part[0].w.units)
            begin(k, gated, group + (int)gridDim.x, slice);
    }
};

// Copies a unit of x, by one thread. Of one tile only its rows.
template <int FORM, int SCALING, int COLUMNS, int ROWS>
__device__ inline void copy_input(struct stage<FORM, SCALING, ROWS, COLUMNS> *to, const struct rounded &x, int unit,
                                  struct arrival *a)
{
    constexpr int BLOCKS = form_unit(FORM) / GROUP;
    if constexpr (COLUMNS > 1)
        copy_bulk(to->x, x.data + unit * BLOCKS * COLUMNS * WARP, (int)sizeof(to->x), a, false);
    else {
        UNROLL
        for (int b = 0; b < BLOCKS; b++)
            copy_bulk(to->x[b], x.data + (unit * BLOCKS + b) * WARP, min(x.n, 8) * 4 * (int)sizeof(uint4), a, false);
    }
    if constexpr (has_offset(SCALING))
        copy_bulk(to->sums, x.sums + unit * BLOCKS * 16 * COLUMNS, (int)sizeof(to->sums), a, false);
}

// What both copy.
template <int FORM, int SCALING, int COLUMNS, int ROWS> __device__ inline int bytes_of(const struct rounded &x)
{
    constexpr int BLOCKS = form_unit(FORM) / GROUP;
    return ROWS * (form_loads(FORM) * 512 + 32 * scale_words(SCALING) + 32 * super_words(SCALING)) +
           BLOCKS * ((COLUMNS > 1 ? 512 * COLUMNS : min(x.n, 8) * 64) + 64 * COLUMNS * has_offset(SCALING));
}

// sum += the products of a unit.
template <int FORM, int SCALING, int COLUMNS, int ROWS>
__device__ inline void multiply(float (&sum)[ROWS][COLUMNS][4], const struct stage<FORM, SCALING, ROWS, COLUMNS> &from,
                                uint32_t minus, int as)
{
    constexpr int BLOCKS = form_unit(FORM) / GROUP;
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        struct fragment<FORM, SCALING> w = load_fragment<FORM, SCALING>(from, r);
        UNROLL_BY(COLUMNS == 8 ? 1 : BLOCKS) // registers do not suffice for more
        for (int b = 0; b < BLOCKS; b++) {
            uint32_t a[2][2][4];
            weights_of<FORM>(a[0], w.quants, 0, minus);
            weights_of<FORM>(a[1], w.quants, 1, minus);
            UNROLL
            for (int c = 0; c < COLUMNS; c++) {
                float2 of_x = make_float2(0, 0);
                if constexpr (has_offset(SCALING))
                    of_x = sums_of(&from.sums[b * 16 * COLUMNS + c * 8 + lane % 4 * 2], 8 * COLUMNS);
                add_block<FORM, SCALING>(sum[r][c], a, from.x[b][c][as], w, of_x);
            }
            next_block(&w);
        }
    }
}

// Adds the slices of each output of the tiles `row` and, of two together, row + 1 of a group, in order; column: first
// tile of x.
template <int COLUMNS, int ROWS>
__device__ inline void write_outputs(const struct work &k, bool gated, int group, int row, int column,
                                     const sums_of_slice<COLUMNS, ROWS> *sums)
{
    constexpr int OF_TILE = 8 * width_of(COLUMNS) * TILE;
    for (int o = threadIdx.x; o < (gated ? 1 : together_of(ROWS)) * OF_TILE; o += THREADS) {
        const int v = o / OF_TILE, n = o % OF_TILE / TILE, r = o % TILE;
        const struct corner_of_sum in = sum_at(n, r);
        const float total = total_of_slices(sums, v, in);
        if (gated) {
            const int tile = group * (ROWS / 2) + row / 2;
            const float up = total_of_slices(sums, together_of(ROWS) - 1, in);
            if (tile < k.part[0].w.tiles)
                write_gated(k, 8 * column + n, (int64_t)tile * TILE + r, total, up);
        } else {
            const struct place at = place_of(k, group * ROWS + row + v);
            if (row + v < ROWS && at.part < k.count)
                write_total(k, k.part[at.part], 8 * column + n, (int64_t)at.tile * TILE + r, total);
        }
    }
}

template <int FORM, int SCALING, int COLUMNS, int ROWS>
static __global__ void __launch_bounds__(THREADS, 1)
    ring_kernel(const __grid_constant__ struct work k, bool gated, int groups)
{
#if defined(HAS_90) // not launched on older devices
    typedef struct ring_shape<FORM, SCALING, COLUMNS, ROWS> shape;
    constexpr int STAGES = shape::STAGES, TOGETHER = shape::TOGETHER, WIDTH = shape::WIDTH;
    launch_dependents();
    DYNAMIC_SHARED(typename shape::block, shared);
    const int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP, units = k.part[0].w.units;
    const int own = (groups - 1 - (int)blockIdx.x) / (int)gridDim.x + 1; // groups of the block
    const int of_unit = bytes_of<FORM, SCALING, COLUMNS, ROWS>(k.x);
    auto *const ring = shared->ring[slice];
    struct arrival *const arrival = shared->arrival[slice];
    int left = own * ((units - slice + SLICES - 1) / SLICES); // units to copy
    struct reader<FORM, SCALING, COLUMNS, ROWS> w;
    w.begin(k, gated, (int)blockIdx.x, slice);
    const int ahead = min(left, STAGES - 1);
    if (lane == 0) {
        for (int i = 0; i < STAGES; i++)
            arrival_init(&arrival[i]);
        arrivals_ready();
    }
    __syncwarp();
    for (int i = 0; i < ahead; i++) {
        if (lane == 0) {
            arrival_expect(&arrival[i], of_unit);
            w.copy(&ring[i], &arrival[i]);
        }
        w.go_on(k, gated, slice);
    }
    wait_for_previous(); // weights are not written by kernels
    for (int i = 0, unit = slice; i < ahead; i++) {
        if (lane == 0)
            copy_input(&ring[i], k.x, unit, &arrival[i]);
        unit = unit + SLICES < units ? unit + SLICES : slice;
    }
    left -= ahead;
    const int as =
        COLUMNS > 1 ? lane : min(lane / 4, k.x.n - 1) * 4 + lane % 4; // lanes of missing rows read the last one
    const uint32_t minus = 0xC300C300 + (uint32_t)k.part[0].w.zero * 0x00010001; // -128 - zero
    int now = 0, phase = 0;
    for (int group = (int)blockIdx.x; group < groups; group += (int)gridDim.x) {
        float sum[ROWS][COLUMNS][4] = {};
        UNROLL_BY(1)
        for (int unit = slice; unit < units; unit += SLICES) {
            if (left > 0) {
                const int free = now == 0 ? STAGES - 1 : now - 1;
                if (lane == 0) {
                    arrival_expect(&arrival[free], of_unit);
                    w.copy(&ring[free], &arrival[free]);
                    copy_input(&ring[free], k.x, w.unit, &arrival[free]);
                }
                if (--left > 0)
                    w.go_on(k, gated, slice);
            }
            arrival_wait(&arrival[now], phase);
            __syncwarp();
            multiply(sum, ring[now], minus, as);
            __syncwarp(); // the stage may be filled again
            now++;
            phase ^= now == STAGES;
            now = now == STAGES ? 0 : now;
        }
        UNROLL
        for (int part = 0; part < (ROWS + TOGETHER - 1) / TOGETHER * (COLUMNS / WIDTH); part++) {
            const int row = part / (COLUMNS / WIDTH) * TOGETHER, column = part % (COLUMNS / WIDTH) * WIDTH;
            UNROLL
            for (int v = 0; v < TOGETHER; v++)
                if (row + v < ROWS)
                    keep_sums<WIDTH>(shared->sums[slice][v], &sum[row + v][column]);
            __syncthreads();
            write_outputs<COLUMNS, ROWS>(k, gated, group, row, column, shared->sums);
            __syncthreads();
        }
    }
#endif
}

// ---- the choice of a kernel

template <int FORM, int SCALING, int COLUMNS, int ROWS>
static void launch(struct cuda *c, const struct work &k, bool gated, int tiles)
{
    static uint64_t allowed;
    const int groups = blocks_for(tiles, ROWS);
    const size_t shared = sizeof(typename ring_shape<FORM, SCALING, COLUMNS, ROWS>::block);
    cuda_allow_shared(c, (const void *)ring_kernel<FORM, SCALING, COLUMNS, ROWS>, shared, &allowed);
    QUEUE(c, (ring_kernel<FORM, SCALING, COLUMNS, ROWS>), groups < c->processors ? groups : c->processors, THREADS,
          shared, k, gated, groups);
}

enum { MAX_ROWS = 4 };

// Tiles of a group: those with which the busiest multiprocessor reads least, of weights and of x. Of 64 rows of x, one
// or two tiles, for want of registers; gated, two or four.
static int rows_of(const struct cuda *c, const struct work &k, bool gated, int tiles)
{
    const struct packed *p = &k.part[0].w;
    const int64_t of_x = form_unit(p->form) * 2 * (k.x.n < 8 ? k.x.n : 8 * k.x.tiles),
                  of_tile = TILE * form_unit(p->form) * form_bits(p->form) / 8;
    int best = 0;
    int64_t least = INT64_MAX;
    for (int rows = gated ? 2 : 1; rows <= (k.x.tiles == 8 ? 2 : (int)MAX_ROWS); rows += gated ? 2 : 1) {
        const int64_t bytes = blocks_for(tiles, rows * c->processors) * (rows * of_tile + of_x);
        if (bytes < least) {
            best = rows;
            least = bytes;
        }
    }
    return best;
}

template <int FORM, int SCALING, int COLUMNS> static void choose_rows(struct cuda *c, const struct work &k, bool gated)
{
    int tiles = 0;
    for (int i = 0; i < k.count; i++)
        tiles += k.part[i].w.tiles;
    const int rows = rows_of(c, k, gated, tiles);
    rows == 1   ? launch<FORM, SCALING, COLUMNS, 1>(c, k, gated, tiles)
    : rows == 2 ? launch<FORM, SCALING, COLUMNS, 2>(c, k, gated, tiles)
    : rows == 3 ? launch<FORM, SCALING, COLUMNS, COLUMNS == 8 ? 1 : 3>(c, k, gated, tiles)
                : launch<FORM, SCALING, COLUMNS, COLUMNS == 8 ? 2 : 4>(c, k, gated, tiles);
}

void matmul_ring_run(struct cuda *c, const struct work &k, bool gated)
{
    const int tiles = k.x.tiles;
    assert(tiles == 1 || tiles == 2 || tiles == 4 || tiles == 8);
    with_form(k.part[0].w, [&]<int FORM, int SCALING>() {
        tiles == 1   ? choose_rows<FORM, SCALING, 1>(c, k, gated)
        : tiles == 2 ? choose_rows<FORM, SCALING, 2>(c, k, gated)
        : tiles == 4 ? choose_rows<FORM, SCALING, 4>(c, k, gated)
                     : choose_rows<FORM, SCALING, 8>(c, k, gated);
    });
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
