// attention_mma.cu - attention on tensor cores, for BF16 caches and common head sizes.
//
// The four warps of a block compute one unit after the other together (attention_unit.h), while copies of the next ones
// are on the way. Where rows of the block have different cache rows at the same position, a unit is computed once per
// row, with places from the row's ancestor mask.
//
// An element of an MMA's result depends on its own row and column only (true on the known devices, and checked by
// tests), and the units of a query are combined in order: neither neighbours nor the tree change its bits.
#include "kernels/cuda/attention_unit.h"

namespace DEVICE_SPACE
{

// ---- sums

// Sums of a lane's queries: g and g + 8 of the warp's tile. None of a query that is not in the block.
template <int HD, int QUERY_TILES> struct lane_sums {
    weighted<2 * EIGHTS<HD, QUERY_TILES>> of[2];
};

// The query of the block that is a lane's first or second.
template <int QUERY_TILES> static __device__ inline int query_of_lane(int half)
{
    return 16 * tile_of_warp<QUERY_TILES>() + 8 * half + (int)threadIdx.x % WARP / 4;
}

// Adds a unit, for queries first .. first + m.
template <int HD, int QUERY_TILES>
static __device__ inline void add_unit(lane_sums<HD, QUERY_TILES> &to, const mma_scratch<HD, QUERY_TILES> *scratch,
                                       int from, int first, int m, const float (&sum)[EIGHTS<HD, QUERY_TILES>][4],
                                       bool begins)
{
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int u = query_of_lane<QUERY_TILES>(half);
        if (scratch->seen[u] <= from || u < first || u >= first + m)
            continue;
        weighted<2 * EIGHTS<HD, QUERY_TILES>> x;
        x.s = { scratch->max[u], scratch->total[u] };
        UNROLL
        for (int j = 0; j < EIGHTS<HD, QUERY_TILES>; j++) {
            x.x[2 * j] = sum[j][2 * half];
            x.x[2 * j + 1] = sum[j][2 * half + 1];
        }
        combine(to.of[half], x, begins);
    }
}

// Whether a sum of some query that has positions in the unit is not finite.
template <int HD, int QUERY_TILES>
static __device__ inline bool has_nonfinite(const mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v,
                                            const float (&sum)[EIGHTS<HD, QUERY_TILES>][4])
{
    bool nonfinite = false;
    UNROLL
    for (int half = 0; half < 2; half++) {
        const bool reached = scratch->seen[query_of_lane<QUERY_TILES>(half)] > v.from;
        UNROLL
        for (int j = 0; j < EIGHTS<HD, QUERY_TILES>; j++)
            nonfinite =
                nonfinite ||
                (reached && (!(fabsf(sum[j][2 * half]) < INFINITY) || !(fabsf(sum[j][2 * half + 1]) < INFINITY)));
    }
    return __any_sync(0xFFFFFFFF, nonfinite) != 0;
}

// The weighted sum of a unit's values, added to `split`. A value that is not finite and that some row does not attend
// to would contribute 0 * infinity to that row; then sums are computed row by row.
template <int HD, int QUERY_TILES>
static __device__ inline void add_values(lane_sums<HD, QUERY_TILES> &split, const struct share &a,
                                         mma_scratch<HD, QUERY_TILES> *scratch, const struct range &p,
                                         const struct view &v, int slot, bool first)
{
    float sum[EIGHTS<HD, QUERY_TILES>][4];
    const bool differ = v.row == ALL && p.shortest - v.from < v.count;
    bool by_row = false;
    UNROLL_BY(1)
    for (int i = 0; i < (by_row ? a.rows : 1);) {
        const int limit = by_row ? scratch->positions[i] - v.from : v.count;
        unit_values(sum, scratch, v, limit, slot);
        if (!by_row && differ && has_nonfinite(scratch, v, sum)) {
            by_row = true;
            continue;
        }
        add_unit(split, scratch, v.from, by_row ? i * a.heads : v.first, by_row ? a.heads : v.m, sum, first);
        i++;
    }
}

// Adds a finished split to the group, for the queries that have positions from `from` on.
template <int HD, int QUERY_TILES>
static __device__ inline void add_split(lane_sums<HD, QUERY_TILES> &group, const lane_sums<HD, QUERY_TILES> &split,
                                        const mma_scratch<HD, QUERY_TILES> *scratch, int from, bool first)
{
    UNROLL
    for (int half = 0; half < 2; half++)
        if (scratch->seen[query_of_lane<QUERY_TILES>(half)] > from)
            combine(group.of[half], split.of[half], first);
}

// ---- the kernel

// Queries of a thread: their numbers in the pass take divisions, which are done before the wait.
struct queries {
    int row, query; // those of the first numbers that it loads
    int lane[2];    // query_of_lane
};

template <int HD, int QUERY_TILES>
static __device__ inline struct queries queries_of(const struct attend_call &c, const struct share &a)
{
    struct queries q;
    const int end = a.rows * a.heads - 1, u = min((int)threadIdx.x / (HD / 4), end);
    q.row = a.first + u / a.heads;
    q.query = (int)query_of(c, a, u);
    forget(q.row), forget(q.query);
    UNROLL
    for (int half = 0; half < 2; half++) {
        q.lane[half] = (int)query_of(c, a, min(query_of_lane<QUERY_TILES>(half), end));
        forget(q.lane[half]);
    }
    return q;
}

template <int HD>
static __device__ inline struct pairs load_query(const struct attend_call &c, int row, int query, int at)
{
    return load_pairs<HD>(c.q + (int64_t)query * HD, c.angles + (int64_t)row * HD, at % (HD / 4) * 2);
}

// What a block has to know before it can load keys. The loads of different warps take one round trip together.
template <int HD, int QUERY_TILES>
static __device__ inline void load_queries(const struct attend_call &c, const struct share &a,
                                           mma_scratch<HD, QUERY_TILES> *scratch, const struct queries &q)
{
    static_assert(2 * WARP == STORED_ROWS && MAX_QUERIES <= WARP, "find_own: warps 0 and 1; here: warp 2; warp 3");
    constexpr int PAIRS = HD / 4;
    const int thread = (int)threadIdx.x, row = thread - 3 * WARP;
    struct pairs next = load_query<HD>(c, q.row, q.query, thread);
    if (row < 0 && thread - 2 * WARP < 16 * QUERY_TILES && thread - 2 * WARP >= a.rows * a.heads)
        scratch->seen[thread - 2 * WARP] = 0;
    else if (row >= 0 && row < a.rows) {
        const struct counts n = count_positions(c, a.first + row);
        scratch->positions[row] = n.all, scratch->dense[row] = n.dense;
        UNROLL_BY(1)
        for (int u = row * a.heads; u < (row + 1) * a.heads; u++)
            scratch->seen[u] = n.all;
    }
    UNROLL_BY(1)
    for (int at = thread, end = a.rows * a.heads * PAIRS; at < end; at += THREADS) {
        const int u = at / PAIRS, d = at % PAIRS * 2;
        struct pairs x = next;
        if (at + THREADS < end) {
            const int then = (at + THREADS) / PAIRS;
            next = load_query<HD>(c, a.first + then / a.heads, (int)query_of(c, a, then), at + THREADS);
        }
        rotate(&x);
        for (int half = 0; half < 2; half++) {
            float one = (half ? x.high.x : x.low.x) * c.scale, two = (half ? x.high.y : x.low.y) * c.scale;
            for (int plane = 0; plane < PLANES; plane++) // rotated and scaled
                *(uint32_t *)&scratch->q[plane][u][half * HD / 2 + d] = split_plane(&one, &two);
        }
    }
}

// The sums of the block's queries: to shared memory if the part is the whole row, else to c.sums.
template <int HD, int QUERY_TILES>
static __device__ inline void write_part(const struct attend_call &c, mma_scratch<HD, QUERY_TILES> *scratch,
                                         const struct range &p, const struct queries &q,
                                         const lane_sums<HD, QUERY_TILES> &group, bool whole)
{
    constexpr int WIDTH = HD + AFTER_SUMS;
    const int t = (int)threadIdx.x % 4;
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int u = query_of_lane<QUERY_TILES>(half);
        if (scratch->seen[u] <= p.first * KEYS)
            continue;
        float *to = whole ? (float *)scratch->ring + u * WIDTH
                          : c.sums + ((int64_t)q.lane[half] * c.parts + (int)blockIdx.z) * WIDTH;
        const weighted<2 * EIGHTS<HD, QUERY_TILES>> &x = group.of[half];
        UNROLL
        for (int j = 0; j < EIGHTS<HD, QUERY_TILES>; j++)
            if (eight_of_warp<HD, QUERY_TILES>(j) < HD)
                *(float2 *)(to + eight_of_warp<HD, QUERY_TILES>(j) + 2 * t) = make_float2(x.x[2 * j], x.x[2 * j + 1]);
        if (share_of_warp<QUERY_TILES>() == 0 && t == 0)
            *(float2 *)(to + HD) = make_float2(x.s.max, x.s.total);
    }
}

// The sums of a query from element d on, from all parts of its row. Each thread copies what it needs to the ring, many
// parts ahead.
template <int HD, int QUERY_TILES>
static __device__ inline weighted<4> combine_copies(const struct attend_call &c, mma_scratch<HD, QUERY_TILES> *scratch,
                                                    const float *from, int d, int parts)
{
    constexpr int WIDTH = HD + AFTER_SUMS,
                  AHEAD = (int)sizeof(scratch->ring) / (2 * BATCH * THREADS * (int)sizeof(float4)); // batches
    float4 *const ring = (float4 *)scratch->ring + threadIdx.x, *const end = ring + AHEAD * BATCH * 2 * THREADS;
    float4 *to = ring, *at = ring;
    const float *sums = from + d, *softmax = from + HD;
    int next = 0;
    const auto copy_batch = [&]() {
        UNROLL_BY(1)
        for (const int after = min(next + BATCH, parts); next < after; next++) {
            copy_async(to, sums);
            copy_async(to + THREADS, softmax);
            to += 2 * THREADS, sums += WIDTH, softmax += WIDTH;
        }
        to = to == end ? ring : to;
        commit_copies();
    };
    UNROLL_BY(1)
    for (int i = 0; i < AHEAD; i++)
        copy_batch();
    return combine_parts<4>(c.units, parts, [&](weighted<4>(&part)[BATCH]) {
        wait_for_copies<AHEAD - 1>();
        UNROLL
        for (int j = 0; j < BATCH; j++, at += 2 * THREADS) {
            const float4 x = at[0], s = at[THREADS];
            part[j] = { { s.x, s.y }, { x.x, x.y, x.z, x.w } };
        }
        at = at == end ? ring : at;
        copy_batch();
    });
}

template <int HD, int QUERY_TILES>
static __global__ void __launch_bounds__(THREADS, 2) mma_kernel(const struct attend_call c)
{
    launch_dependents();
    typedef mma_scratch<HD, QUERY_TILES> scratch_type;
    constexpr int SLOTS = scratch_type::SLOTS;
    DYNAMIC_SHARED(scratch_type, scratch);
    __shared__ bool last;
    const struct share a = share_of(c); // slots, places and prefixes are complete before a graph begins
    const struct queries q = queries_of<HD, QUERY_TILES>(c, a);
    int prefix = 0;
    if (a.rows > 0 && threadIdx.x < STORED_ROWS)
        find_own(c, a, scratch);
    if (a.rows > 0 && c.stores)
        prefix = load_prefix(c, a, scratch);
    wait_for_previous();
    if (a.rows <= 0)
        return;
    load_queries(c, a, scratch, q);
    __syncthreads();
    const struct range p = range_of(c, a, scratch);
    if (p.first >= p.end && blockIdx.z > 0)
        return;

    struct run r = run_from(a, scratch, p, p.first, 0);
    struct loader l = { r, false, 0, 0, prefix };
    lane_sums<HD, QUERY_TILES> split = {}, group = {};
    bool values = false; // what comes next of view r
    int slot = 0;
    // Keys, values, keys, .., of which SLOTS - 1 are loaded ahead.
    UNROLL_BY(1)
    for (int ahead = SLOTS - 1; r.unit < p.end;) {
        if (ahead == 0) {
            wait_for_copies<SLOTS - 2>();
            __syncthreads(); // they are here, and the last ones are no longer read
        }
        load_next(c, a, scratch, p, &l);
        if (ahead > 0) {
            if (--ahead == 0 && c.stores && blockIdx.z == 0 && blockIdx.y % c.head_blocks == 0)
                store_rows<HD>(c, a);
            continue;
        }
        const struct view v = view_of(a, scratch, p, r);
        if (!values) {
            unit_scores(scratch, v, slot);
            __syncthreads();
            unit_weights(scratch, v);
        } else {
            add_values(split, a, scratch, p, v, slot, r.unit == p.first || r.unit % SPLIT_UNITS == 0);
            const int unit = r.unit, from = max(unit / SPLIT_UNITS * SPLIT_UNITS, p.first);
            r = next_run(a, scratch, p, r);
            if (r.unit > unit && (r.unit % SPLIT_UNITS == 0 || r.unit == p.end))
                add_split(group, split, scratch, from * KEYS, from == p.first);
        }
        values = !values;
        slot = slot + 1 < SLOTS ? slot + 1 : 0;
    }
    __syncthreads(); // the ring becomes the result's
    const int parts = parts_of(c.units, p.longest);
    write_part(c, scratch, p, q, group, parts <= 1);
    if (parts > 1) {
        if (!is_last(c, parts, &last))
            return;
    } else
        __syncthreads();
    write_rows<4>(c, a, HD, scratch->positions, [&](int u, int64_t query, int d, int n) {
        constexpr int WIDTH = HD + AFTER_SUMS;
        if (parts > 1)
            return combine_copies(c, scratch, c.sums + query * c.parts * WIDTH, d, parts_of(c.units, n));
        const float *from = (const float *)scratch->ring + u * WIDTH;
        return weighted<4>{ { 0, from[HD + 1] }, { from[d], from[d + 1], from[d + 2], from[d + 3] } };
    });
}

// ---- launches

bool attention_has_mma(enum type type, int head_dim)
{
    return type == BF16 && (head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128);
}

template <int HD, int QUERY_TILES> static void launch(struct cuda *c, const struct attend_call &call)
{
    static uint64_t allowed;
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.head_blocks), (unsigned)call.parts);
    constexpr size_t bytes = sizeof(mma_scratch<HD, QUERY_TILES>);
    static_assert(bytes <= 98 << 10,
                  "two blocks at a time on the H200, one on every device from compute capability 8.0 on");
    cuda_allow_shared(c, (const void *)mma_kernel<HD, QUERY_TILES>, bytes, &allowed);
    // Outside a graph, kernels that are still running may write the layout, or move rows of the prefix.
    QUEUE_EARLY_IF(c, c->capturing, (mma_kernel<HD, QUERY_TILES>), grid, THREADS, bytes, call);
    cuda_launched(c, "attend");
}

template <int HD> static void launch_tiles(struct cuda *c, const struct attend_call &call, int query_tiles)
{
    query_tiles == 2 ? launch<HD, 2>(c, call) : launch<HD, 1>(c, call);
}

void attention_mma(struct cuda *c, const struct attend_call &call, int query_tiles)
{
    assert(((uintptr_t)call.keys | (uintptr_t)call.values | call.row_bytes) % 16 == 0);
    assert(((uintptr_t)call.q | (uintptr_t)call.k | (uintptr_t)call.v | (uintptr_t)call.angles) % 8 == 0);
    if (call.head_dim == 64)
        launch_tiles<64>(c, call, query_tiles);
    else if (call.head_dim == 80)
        launch_tiles<80>(c, call, query_tiles);
    else if (call.head_dim == 96)
        launch_tiles<96>(c, call, query_tiles);
    else
        launch_tiles<128>(c, call, query_tiles);
}

} // namespace DEVICE_SPACE
