// matmul_ring.cu - products of up to 64 rows on devices with bulk copies (compute capability 9.0): the sums of
// matmul_small.cu, bit for bit, with weights and input on their way through shared memory.
//
// What a memory delivers is bounded by what is asked of it ahead of time, and registers hold too little of that. Here a
// block has a multiprocessor, and in its shared memory a ring of stages, each some units of k of all tiles of weights
// that the block works on, and of x. Few warps, the producers, fill them by bulk copies as soon as they are free; the
// others, the consumers, have a pair of tiles each, and read x from the same stage: so x comes from L2 once for up to
// sixteen tiles. More than 32 rows of x are divided between two consumers. The first weights are under way while the
// previous kernel ends, and a ring runs on from one group of tiles to the next.
//
// Large weights have a pair of tiles for several warps of every multiprocessor: a warp takes all slices of k one after
// the other. Others are spread over clusters of SLICES blocks, each with a slice of k, and a part of x; a consumer
// writes its sums to the block that adds them. PTX ISA, cp.async.bulk and mbarrier; CUTLASS's warp-specialized kernels.
#include "kernels/cuda/unit.h"

namespace DEVICE_SPACE
{

enum {
    MAX_WARPS = (int)RING_THREADS / (int)WARP,
    MAX_PRODUCERS = 4,
    MAX_PAIRS = 8,
    MAX_STAGES = 32,
    MIN_STAGES = 3,
    COPY = 16 << 10,     // bytes: a bulk copy of a tile's quants at most
    MAX_SUMS = 64 << 10, // bytes: sums of a block of a cluster at most
    BUSY = 4,            // pairs of tiles for each multiprocessor, from which on blocks take the slices in turn
    BATCH = 4,           // outputs of a thread whose old values are on their way together
};
static_assert((int)RING_CLUSTER == (int)SLICES, "a block for each slice");

// How a product is divided.
struct plan {
    bool gated, spread;
    int pairs;         // two tiles each: gate and up (gated), or neighbours
    int groups, most;  // groups of a block, one after the other; pairs of a group at most
    int parts;         // consumers of a pair, with COLUMNS tiles of x each
    int owned;         // spread: pairs of each group that a block of the cluster adds
    int chunk, stages; // units of a stage at most; stages
    int producers;
};

struct arrivals {
    struct arrival full[MAX_STAGES], empty[MAX_STAGES];
};

// ---- layout of shared memory: arrivals, sums (tiles, columns * 4, WARP), stages

// A stage: x of its units, the sums of x, then for each tile its quants, scales, supers.
template <int FORM, int SCALING> struct layout_of_stage {
    static constexpr int BLOCKS = form_unit(FORM) / GROUP, QUANTS = form_loads(FORM) * 512, // bytes of a unit of a tile
        SCALES = 32 * scale_words(SCALING), SUPERS = 32 * super_words(SCALING);             // supers: of four units
    int chunk, columns;

    __host__ __device__ int x_of_unit() const
    {
        return BLOCKS * 512 * columns;
    }
    __host__ __device__ int sums_of_unit() const
    {
        return has_offset(SCALING) ? BLOCKS * 64 * columns : 0;
    }
    __host__ __device__ int tile_bytes() const
    {
        return chunk * (QUANTS + SCALES) + (chunk + 6) / 4 * SUPERS;
    }
    __host__ __device__ int tile_at(int tile) const
    {
        return chunk * (x_of_unit() + sums_of_unit()) + tile * tile_bytes();
    }
};

// Bytes before the ring; columns: tiles of x.
static __host__ __device__ inline int ring_at(const struct plan &p, int columns)
{
    const int tiles = 2 * (p.spread ? p.groups * SLICES * p.owned : p.most);
    return (int)sizeof(struct arrivals) + tiles * columns * 4 * (int)sizeof(float[WARP]);
}

// ---- the walk of a block: groups of pairs, slices of k, stages of units

struct share { // the pairs of a block or cluster, and the slices of a block
    int first, pairs, first_slice, last_slice;
};

__device__ inline struct share share_of(const struct plan &p)
{
    const int count = (int)gridDim.x / blocks_in_cluster(), number = cluster_of_block();
    const int each = p.pairs / count, rest = p.pairs % count, slice = p.spread ? block_in_cluster() : 0;
    return { number * each + min(number, rest), each + (number < rest), slice, p.spread ? slice : SLICES - 1 };
}

__device__ inline int pairs_of_group(const struct plan &p, const struct share &own, int group)
{
    return own.pairs / p.groups + (group < own.pairs % p.groups);
}

__device__ inline int first_of_group(const struct plan &p, const struct share &own, int group)
{
    return own.first + own.pairs / p.groups * group + min(group, own.pairs % p.groups);
}

// Calls f(first pair of the group, its pairs, first unit, units) for each stage in turn, while it returns true.
template <typename F> __device__ inline void each_stage(const struct plan &p, int units, F f)
{
    const struct share own = share_of(p);
    for (int g = 0; g < p.groups; g++) {
        const int first = first_of_group(p, own, g), pairs = pairs_of_group(p, own, g);
        for (int s = own.first_slice; s <= own.last_slice; s++) {
            const struct slice in = slice_of(units, s);
            for (int u = in.first; u < in.end; u += p.chunk)
                if (!f(first, pairs, u, min(p.chunk, in.end - u)))
                    return;
        }
    }
}

// A tile of a pair. One beyond the last is that.
__device__ inline struct place tile_of_pair(const struct work &k, bool gated, int pair, int v)
{
    if (gated)
        return { v, pair };
    struct place at = place_of(k, 2 * pair + v);
    if (at.part == k.count)
        at = { k.count - 1, k.part[k.count - 1].w.tiles - 1 };
    return at;
}

// ---- producers

// A lane's share of copies: a tile of weights, if it has one, and, the last lane of the first producer, x.
template <int FORM, int SCALING> struct producer {
    typedef layout_of_stage<FORM, SCALING> layout;
    const struct work &k;
    const struct plan &p;
    struct arrivals *arrivals;
    uint8_t *ring;
    int number, lane, bytes_of_stage, stage, phase;
    layout in;
    // The producer's tiles in the current group, whose first pair is `first`, and the lane's tile.
    int first, tiles, at;
    bool has_tile;
    const uint4 *quants;
    const uint32_t *scales, *supers;

    __device__ inline void begin_group(int first_pair, int pairs)
    {
        const int tile = lane * p.producers + number;
        first = first_pair;
        tiles = (2 * pairs - number + p.producers - 1) / p.producers; // not negative, as pairs * 2 >= producers - 1
        has_tile = tile < 2 * pairs;
        at = in.tile_at(tile);
        if (!has_tile)
            return;
        const struct place of = tile_of_pair(k, p.gated, first + tile / 2, tile % 2);
        const struct packed &w = k.part[of.part].w;
        const int64_t from = (int64_t)of.tile * w.units;
        quants = w.quants + from * form_loads(FORM) * WARP;
        scales = w.scales + from * 8 * scale_words(SCALING);
        supers = w.supers + from / 4 * 8 * super_words(SCALING);
    }

    // Starts the copies of a stage. weights, x: which of them; the bytes of both are expected with the weights.
    __device__ inline void copy(int first_pair, int pairs, int unit, int units, bool weights, bool x)
    {
        struct arrival *const full = &arrivals->full[stage];
        uint8_t *const to = ring + stage * bytes_of_stage;
        const int of_supers = ((unit + units - 1) / 4 - unit / 4 + 1) * layout::SUPERS;
        if (weights && first != first_pair)
            begin_group(first_pair, pairs);
        if (weights && lane == 0)
            arrival_expect(full, tiles * (units * (layout::QUANTS + layout::SCALES) + of_supers) +
                                     (number == 0 ? units * (in.x_of_unit() + in.sums_of_unit()) : 0));
        __syncwarp();
        if (weights && has_tile) {
            copy_bulk(to + at, quants + unit * form_loads(FORM) * WARP, units * layout::QUANTS, full, true);
            if constexpr (layout::SCALES > 0)
                copy_bulk(to + at + in.chunk * layout::QUANTS, scales + unit * 8 * scale_words(SCALING),
                          units * layout::SCALES, full, true);
            if constexpr (layout::SUPERS > 0)
                copy_bulk(to + at + in.chunk * (layout::QUANTS + layout::SCALES),
                          supers + unit / 4 * 8 * super_words(SCALING), of_supers, full, true);
        }
        if (x && number == 0 && lane == WARP - 1) {
            copy_bulk(to, k.x.data + (int64_t)unit * (in.x_of_unit() / 16), units * in.x_of_unit(), full, false);
            if constexpr (has_offset(SCALING))
                copy_bulk(to + in.chunk * in.x_of_unit(), k.x.sums + (int64_t)unit * (in.sums_of_unit() / 4),
                          units * in.sums_of_unit(), full, false);
        }
    }

    __device__ inline void go_on()
    {
        stage++;
        phase ^= stage == p.stages;
        stage = stage == p.stages ? 0 : stage;
    }

    // Fills the ring once; weights are not written by kernels, x is.
    __device__ inline void fill(bool weights)
    {
        int left = p.stages;
        each_stage(p, k.part[0].w.units, [&](int first, int pairs, int unit, int units) {
            copy(first, pairs, unit, units, weights, !weights);
            go_on();
            return --left > 0;
        });
    }

    __device__ inline void refill()
    {
        int i = 0;
        each_stage(p, k.part[0].w.units, [&](int first, int pairs, int unit, int units) {
            if (i >= p.stages) {
                arrival_wait(&arrivals->empty[stage], phase ^ 1);
                __syncwarp(); // a lane that still waited could miss this phase once the stage is full again
                copy(first, pairs, unit, units, true, true);
            }
            i++;
            go_on();
            return true;
        });
    }
};

// ---- consumers

// Output (n, r) of tile v of a pair.
__device__ inline struct output output_of_pair(const struct work &k, int pair, int v, int n, int r)
{
    const struct place at = place_of(k, 2 * pair + v);
    if (at.part == k.count)
        return { NULL, 0, 0 };
    return output_of(k, k.part[at.part], n, (int64_t)at.tile * TILE + r);
}

// Writes outputs `from`, from + step, .. below `count`: n_of(o) and pair_of(o), r = o % TILE, from the sums of all
// slices, total_of(o, v). The old values of several are on their way together. The lanes of a warp call it together,
// with adjacent numbers.
template <typename F, typename G, typename H>
__device__ inline void write_outputs(const struct work &k, bool gated, int from, int step, int count, F pair_of, G n_of,
                                     H total_of)
{
    if (gated) {
        for (int o = from; o < count; o += step)
            write_gated(k, n_of(o), (int64_t)pair_of(o) * TILE + o % TILE, total_of(o, 0), total_of(o, 1));
        return;
    }
    UNROLL_BY(1)
    for (int o = from; o < count; o += BATCH * step) {
        struct output out[BATCH][2];
        UNROLL
        for (int i = 0; i < 2 * BATCH; i++) {
            const int one = o + i / 2 * step;
            out[i / 2][i % 2] = { NULL, 0, 0 };
            if (one < count)
                out[i / 2][i % 2] = output_of_pair(k, pair_of(one), i % 2, n_of(one), one % TILE);
        }
        UNROLL
        for (int i = 0; i < 2 * BATCH; i++) {
            if (out[i / 2][i % 2].at != NULL)
                write_sum(out[i / 2][i % 2], total_of(o + i / 2 * step, i % 2));
        }
    }
}

template <int FORM, int SCALING, int COLUMNS> struct consumer {
    static constexpr bool APART = COLUMNS > 2 && FORM == FORM_F16;
    typedef layout_of_stage<FORM, SCALING> layout;
    const struct work &k;
    const struct plan &p;
    struct arrivals *arrivals;
    float (*sums)[WARP];
    const uint8_t *ring;
    int pair, part; // pair: number in each group
    layout in;

    // Where the sums of a tile's part are: COLUMNS * 4 rows.
    __device__ inline float (*sums_of(int tile, int of_part) const)[WARP]
    {
        return sums + (tile * p.parts + of_part) * (COLUMNS * 4);
    }

    // sum += the products of a stage.
    __device__ inline void multiply(float (&sum)[2][COLUMNS][4], const uint8_t *stage, int unit, int units,
                                    uint32_t minus) const
    {
        const int lane = threadIdx.x % WARP;
        UNROLL_BY(COLUMNS > 1 ? 1 : 2)
        for (int u = 0; u < units; u++) {
            struct fragment<FORM, SCALING> w[2];
            UNROLL
            for (int v = 0; v < 2; v++) {
                const uint8_t *tile = stage + in.tile_at(2 * pair + v);
                const uint4 *quants = (const uint4 *)(tile + u * layout::QUANTS) + lane;
                UNROLL
                for (int i = 0; i < form_loads(FORM); i++)
                    w[v].quants[i] = quants[i * WARP];
                const uint32_t *scales =
                    (const uint32_t *)(tile + in.chunk * layout::QUANTS) + (u * 8 + lane / 4) * scale_words(SCALING);
                UNROLL
                for (int i = 0; i < scale_words(SCALING); i++)
                    w[v].scale[i] = scales[i];
                const uint32_t *supers = (const uint32_t *)(tile + in.chunk * (layout::QUANTS + layout::SCALES)) +
                                         (((unit + u) / 4 - unit / 4) * 8 + lane / 4) * super_words(SCALING);
                UNROLL
                for (int i = 0; i < super_words(SCALING); i++)
                    w[v].super[i] = supers[i];
            }
            const uint4 *x = (const uint4 *)(stage + u * in.x_of_unit()) + part * COLUMNS * WARP + lane;
            const float *of_x = (const float *)(stage + in.chunk * in.x_of_unit() + u * in.sums_of_unit()) +
                                part * COLUMNS * 8 + lane % 4 * 2;
            add_unit<FORM, SCALING, COLUMNS, APART>(sum, w, x, of_x, in.columns, minus);
        }
    }

    // Takes the sums of a slice over: to the block that adds the slices, or to the sum of those before it.
    __device__ inline void keep(const float (&sum)[2][COLUMNS][4], int group, bool first) const
    {
        if (p.spread) {
            const int to = ((group * SLICES + block_in_cluster()) * p.owned + pair % p.owned) * 2;
            UNROLL
            for (int v = 0; v < 2; v++)
                keep_sums<COLUMNS>(in_block(sums_of(to + v, part), pair / p.owned), sum[v]);
            return;
        }
        UNROLL
        for (int v = 0; v < 2; v++) {
            float(*to)[WARP] = sums_of(2 * pair + v, part), total[COLUMNS][4];
            UNROLL
            for (int i = 0; i < COLUMNS * 4; i++)
                total[i / 4][i % 4] = first ? 0 : to[i][threadIdx.x % WARP ^ (i % 4)];
            UNROLL
            for (int i = 0; i < COLUMNS * 4; i++)
                total[i / 4][i % 4] = first ? sum[v][i / 4][i % 4] : total[i / 4][i % 4] + sum[v][i / 4][i % 4];
            keep_sums<COLUMNS>(to, total);
        }
    }

    __device__ inline void run() const
    {
        const int units = k.part[0].w.units;
        const uint32_t minus = 0xC300C300 + (uint32_t)k.part[0].w.zero * 0x00010001; // -128 - zero
        int stage = 0, phase = 0;
        for (int g = 0; g < p.groups; g++) {
            const struct share own = share_of(p);
            const int pairs = pairs_of_group(p, own, g);
            for (int s = own.first_slice; s <= own.last_slice; s++) {
                const struct slice of_slice = slice_of(units, s);
                float sum[2][COLUMNS][4] = {};
                for (int u = of_slice.first; u < of_slice.end; u += p.chunk) {
                    arrival_wait(&arrivals->full[stage], phase);
                    __syncwarp();
                    if (pair < pairs)
                        multiply(sum, ring + stage * in.tile_at(2 * p.most), u, min(p.chunk, of_slice.end - u), minus);
                    __syncwarp();
                    if (threadIdx.x % WARP == 0)
                        arrival_arrive(&arrivals->empty[stage]);
                    stage++;
                    phase ^= stage == p.stages;
                    stage = stage == p.stages ? 0 : stage;
                }
                if (pair < pairs)
                    keep(sum, g, s == 0);
            }
            if (!p.spread && pair < pairs)
                write_own(g);
        }
    }

    // Writes the outputs of a group's pair, whose sums the warp has kept.
    __device__ inline void write_own(int group) const
    {
        const int of = first_of_group(p, share_of(p), group) + pair;
        __syncwarp();
        write_outputs(
            k, p.gated, threadIdx.x % WARP, WARP, COLUMNS * 8 * TILE, [&](int) { return of; },
            [&](int o) { return part * COLUMNS * 8 + o / TILE; },
            [&](int o, int v) {
                const struct corner_of_sum at = sum_at(o / TILE, o % TILE);
                return sums_of(2 * pair + v, part)[at.i][at.lane];
            });
        __syncwarp(); // the next group's sums may be kept
    }

    // Adds the slices of the pairs that the block of a cluster owns, in order, and writes the outputs. All threads of
    // the block call it.
    __device__ inline void write_owned() const
    {
        enum { OF_PART = COLUMNS * 8 * TILE };
        const struct share own = share_of(p);
        const int from = block_in_cluster() * p.owned;
        for (int g = 0; g < p.groups; g++) {
            const int first = first_of_group(p, own, g), count = min(p.owned, pairs_of_group(p, own, g) - from);
            write_outputs(
                k, p.gated, threadIdx.x, (int)blockDim.x, count * p.parts * OF_PART,
                [&](int o) { return first + from + o / OF_PART / p.parts; },
                [&](int o) { return o / OF_PART % p.parts * COLUMNS * 8 + o % OF_PART / TILE; },
                [&](int o, int v) {
                    const struct corner_of_sum at = sum_at(o % OF_PART / TILE, o % TILE);
                    float total = 0;
                    UNROLL
                    for (int s = 0; s < SLICES; s++) {
                        const int tile = ((g * SLICES + s) * p.owned + o / OF_PART / p.parts) * 2 + v;
                        const float x = sums_of(tile, o / OF_PART % p.parts)[at.i][at.lane];
                        total = s == 0 ? x : total + x;
                    }
                    return total;
                });
        }
    }
};

template <int FORM, int SCALING, int COLUMNS>
static __global__ void __launch_bounds__(RING_THREADS, 1)
    ring_kernel(const __grid_constant__ struct work k, const __grid_constant__ struct plan p)
{
#if defined(HAS_90) // not launched on older devices
    typedef layout_of_stage<FORM, SCALING> layout;
    launch_dependents();
    DYNAMIC_SHARED(uint8_t, shared);
    struct arrivals *const arrivals = (struct arrivals *)shared;
    float(*const sums)[WARP] = (float(*)[WARP])(shared + sizeof(struct arrivals));
    const layout in = { p.chunk, COLUMNS * p.parts };
    const int bytes = in.tile_at(2 * p.most);
    uint8_t *const ring = shared + ring_at(p, in.columns);
    const int warp = threadIdx.x / WARP, consumers = p.most * p.parts;
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.stages; i++) {
            arrival_init(&arrivals->full[i], p.producers);
            arrival_init(&arrivals->empty[i], consumers);
        }
        arrivals_ready();
    }
    __syncthreads();
    const auto producer_here = [&] {
        return producer<FORM, SCALING>{ k, p, arrivals, ring, warp - consumers, (int)(threadIdx.x % WARP), bytes,
                                        0, 0, in,       -1 };
    };
    if (warp >= consumers)
        producer_here().fill(true);
    if (p.spread)
        cluster_barrier(); // the others have begun: their memory may be written
    wait_for_previous();
    const struct consumer<FORM, SCALING, COLUMNS> consumer = {
        k, p, arrivals, sums, ring, warp / p.parts, warp % p.parts, in
    };
    if (warp >= consumers) {
        if (warp == consumers)
            producer_here().fill(false);
        producer_here().refill();
    } else
        consumer.run();
    if (p.spread) {
        cluster_barrier();
        consumer.write_owned();
    }
#endif
}

// ---- the choice of a kernel

// A stage has as many units as leave MIN_STAGES of them, and one copy may bring; a slice has more stages than that.
template <int FORM, int SCALING> static void divide_shared(struct plan *p, int columns, int units)
{
    typedef layout_of_stage<FORM, SCALING> layout;
    const int capacity = RING_SHARED - ring_at(*p, columns), slice = blocks_for(units, SLICES),
              few = blocks_for(slice, MIN_STAGES + 1);
    for (int most = COPY / layout::QUANTS;; most /= 2) {
        p->chunk = blocks_for(slice, blocks_for(slice, most < few ? most : few));
        p->stages = capacity / layout{ p->chunk, columns }.tile_at(2 * p->most);
        if (p->stages >= MIN_STAGES || most == 1)
            break;
    }
    p->stages = p->stages < MAX_STAGES ? p->stages : (int)MAX_STAGES;
}

template <int FORM, int SCALING, int COLUMNS> static void launch(struct cuda *c, const struct work &k, bool gated)
{
    typedef layout_of_stage<FORM, SCALING> layout;
    static uint64_t allowed;
    struct plan p = {};
    int tiles = 0;
    for (int i = 0; i < k.count; i++)
        tiles += k.part[i].w.tiles;
    p.gated = gated;
    p.parts = k.x.tiles / COLUMNS;
    p.pairs = blocks_for(tiles, 2);
    const int limit = p.parts == 1 ? (int)MAX_PAIRS : (MAX_WARPS - 1) / p.parts;
    // Spread: the sums of all groups are in shared memory until the end.
    const int most_groups = MAX_SUMS / (2 * MAX_PAIRS * k.x.tiles * 512);
    p.spread = p.pairs < BUSY * c->processors && p.pairs <= c->ring_clusters * limit * most_groups;
    const int shares = p.spread ? c->ring_clusters : c->processors, used = p.pairs < shares ? p.pairs : shares;
    const int most = blocks_for(p.pairs, used); // pairs of a share
    p.groups = blocks_for(most, limit);
    p.most = blocks_for(most, p.groups);
    p.owned = blocks_for(p.most, SLICES);
    p.producers = MAX_WARPS - p.most * p.parts;
    p.producers = p.producers < MAX_PRODUCERS ? p.producers : (int)MAX_PRODUCERS;
    p.producers = p.producers < 2 * p.most ? p.producers : 2 * p.most;
    divide_shared<FORM, SCALING>(&p, k.x.tiles, k.part[0].w.units);
    const size_t shared = (size_t)(ring_at(p, k.x.tiles) + p.stages * layout{ p.chunk, k.x.tiles }.tile_at(2 * p.most));
    assert(p.stages >= 2 && shared <= RING_SHARED);
    cuda_allow_shared(c, (const void *)ring_kernel<FORM, SCALING, COLUMNS>, RING_SHARED, &allowed);
    const int threads = (p.most * p.parts + p.producers) * WARP;
    if (p.spread)
        QUEUE_CLUSTERS(c, (ring_kernel<FORM, SCALING, COLUMNS>), SLICES, used * SLICES, threads, shared, k, p);
    else
        QUEUE(c, (ring_kernel<FORM, SCALING, COLUMNS>), used, threads, shared, k, p);
}

void matmul_ring_run(struct cuda *c, const struct work &k, bool gated)
{
    const int tiles = k.x.tiles;
    assert(tiles == 1 || tiles == 2 || tiles == 4 || tiles == 8);
    with_form(k.part[0].w, [&]<int FORM, int SCALING>() {
        tiles == 1   ? launch<FORM, SCALING, 1>(c, k, gated)
        : tiles == 2 ? launch<FORM, SCALING, 2>(c, k, gated)
                     : launch<FORM, SCALING, 4>(c, k, gated);
    });
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
