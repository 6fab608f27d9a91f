// attention_mma.cu - attention on tensor cores, for BF16 caches and common head sizes.
//
// The lanes of a block compute a unit each, from scores to sums, without waiting for each other (attention_unit.h).
// Then all threads combine the units in order. Where rows of the block have different cache rows at the same position,
// a unit is computed once per row, with places from the row's ancestor mask.
//
// An element of an MMA's result depends on its own row and column only (true on the known devices, and checked by
// tests), and the units of a query are combined in order: neither neighbours nor the tree change its bits.
#include "kernels/cuda/attention_unit.h"

namespace DEVICE_SPACE
{

// ---- sums, by all threads of a block: the threads of a query have four elements each, in turn

template <typename F> constexpr int PER_QUERY = F::THREADS / F::QUERIES;
template <typename F>
constexpr int FOURS = (F::HD / 4 + PER_QUERY<F> - 1) / PER_QUERY<F>; // the last may lie beyond the head
template <typename F> using thread_sums = weighted<4 * FOURS<F>>;

template <typename F> static __device__ inline int element_of_thread(int four)
{
    return 4 * (PER_QUERY<F> * four + (int)threadIdx.x % PER_QUERY<F>);
}

template <int N> static __device__ inline void set_four(weighted<N> &to, int four, float4 x)
{
    to.x[4 * four] = x.x, to.x[4 * four + 1] = x.y, to.x[4 * four + 2] = x.z, to.x[4 * four + 3] = x.w;
}

// Sums of the units so far: those of the last split, and all before.
template <typename F> struct part_sums {
    thread_sums<F> split, group;
};

// Adds what the lanes have computed.
template <typename F>
static __device__ inline void add_units(part_sums<F> &to, mma_scratch<F> *scratch, const struct range &p)
{
    const int u = (int)threadIdx.x / PER_QUERY<F>, seen = scratch->seen[u];
    UNROLL_BY(1)
    for (int lane = 0; lane < F::LANES; lane++) {
        const struct run r = scratch->run[lane];
        const int in_split = r.unit % SPLIT_UNITS;
        if (r.unit >= p.end || r.unit * KEYS >= seen || (r.row != ALL && r.row != scratch->row[u]))
            continue;
        thread_sums<F> x;
        x.s = { scratch->max[lane][u], scratch->total[lane][u] };
        UNROLL
        for (int i = 0; i < FOURS<F>; i++)
            set_four(x, i, *(const float4 *)(scratch->sums(lane, u) + min(element_of_thread<F>(i), F::HD - 4)));
        if (in_split == 0 && r.unit > p.first)
            combine(to.group, to.split, r.unit == p.first + SPLIT_UNITS);
        combine(to.split, x, in_split == 0);
    }
}

// The sums of a unit's values. A value that is not finite and that some row does not attend to would contribute
// 0 * infinity to that row; then sums are computed row by row.
template <typename F>
static __device__ inline void add_values(const weights<F> &w, const struct share &a, mma_scratch<F> *scratch,
                                         const struct range &p, struct view v, int lane, int tile)
{
    const bool nonfinite = unit_sums<F, false>(w, scratch, v, 0, lane, tile);
    if (!nonfinite || v.row != ALL || p.shortest - v.from >= v.count)
        return;
    v.m = a.heads;
    UNROLL_BY(1)
    for (int i = 0; i < a.rows; i++) {
        v.first = i * a.heads;
        if (has_queries(v, tile))
            unit_sums<F, true>(w, scratch, v, scratch->positions[i] - v.from, lane, tile);
    }
}

// Writes a query's part.
template <typename F>
static __device__ inline void write_part(const struct attend_call &c, int64_t query, const thread_sums<F> &x)
{
    float *to = c.sums + (query * c.parts + (int)blockIdx.z) * (F::HD + AFTER_SUMS);
    UNROLL
    for (int i = 0; i < FOURS<F>; i++)
        if (element_of_thread<F>(i) < F::HD)
            *(float4 *)(to + element_of_thread<F>(i)) =
                make_float4(x.x[4 * i], x.x[4 * i + 1], x.x[4 * i + 2], x.x[4 * i + 3]);
    if (threadIdx.x % PER_QUERY<F> == 0)
        *(float2 *)(to + F::HD) = make_float2(x.s.max, x.s.total);
}

// The sums of a query from all parts of its row, which each thread copies to shared memory as far as it needs them,
// PARTS at a time. Splits make groups, groups make the row. most: parts of the block's longest row.
template <typename F>
static __device__ inline thread_sums<F> combine_parts(const struct attend_call &c, mma_scratch<F> *scratch,
                                                      int64_t query, int parts, int most)
{
    constexpr int WIDTH = F::HD + AFTER_SUMS, SPLITS = GROUP_UNITS / SPLIT_UNITS, N = FOURS<F>;
    constexpr int BYTES = (int)(sizeof(scratch->keys) + sizeof(scratch->values)),
                  FIT = BYTES / ((N * F::THREADS + F::QUERIES) * (int)sizeof(float4)),
                  PARTS = FIT < 64 / (N + 1) ? FIT : 64 / (N + 1); // a thread has at most 64 copies on the way
    float4 *const copy = (float4 *)scratch->keys + threadIdx.x;
    float4 *const softmax = (float4 *)scratch->keys + PARTS * N * F::THREADS + threadIdx.x / PER_QUERY<F>;
    const float *from = c.sums + query * c.parts * WIDTH;
    thread_sums<F> group = {}, row = {};
    UNROLL_BY(1)
    for (int first = 0; first < most; first += PARTS) { // the lanes of a warp go together
        const int n = min(PARTS, parts - first);
        UNROLL_BY(1)
        for (int j = 0; j < n; j++, from += WIDTH) {
            UNROLL
            for (int i = 0; i < N; i++)
                copy_async(&copy[(j * N + i) * F::THREADS], from + min(element_of_thread<F>(i), F::HD - 4));
            if (threadIdx.x % PER_QUERY<F> == 0)
                copy_async(&softmax[j * F::QUERIES], from + F::HD);
        }
        commit_copies();
        wait_for_copies<0>();
        __syncwarp();
        UNROLL_BY(1)
        for (int j = 0; j < n; j++) {
            const bool whole = c.units == GROUP_UNITS;
            const int k = first + j;
            const float4 s = softmax[j * F::QUERIES];
            thread_sums<F> x;
            x.s.max = s.x, x.s.total = s.y;
            UNROLL
            for (int i = 0; i < N; i++)
                set_four(x, i, copy[(j * N + i) * F::THREADS]);
            combine(group, x, whole || k % SPLITS == 0);
            if (whole || k % SPLITS == SPLITS - 1 || k == parts - 1)
                combine(row, group, k < (whole ? 1 : SPLITS));
        }
        __syncwarp(); // the softmax may be overwritten
    }
    return row;
}

// Writes the result of a row that attends to something, or 0.
template <typename F>
static __device__ inline void write_result(const struct attend_call &c, int row, int head, bool is, bool attends,
                                           const thread_sums<F> &sums)
{
    const float scale = 1.0f / sums.s.total;
    UNROLL
    for (int i = 0; i < FOURS<F>; i++) {
        const int d = element_of_thread<F>(i);
        const bool writes = is && d < F::HD;
        float x[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            x[j] = attends ? sums.x[4 * i + j] * scale : 0;
        if (writes)
            *(float4 *)(c.out + ((int64_t)row * c.heads + head) * F::HD + d) = make_float4(x[0], x[1], x[2], x[3]);
        round_four(c.rounded, row, head * F::HD + d, writes, x);
    }
}

// ---- the kernel

template <typename F> static __global__ void __launch_bounds__(F::THREADS, 1) mma_kernel(const struct attend_call c)
{
    launch_dependents();
    DYNAMIC_SHARED(mma_scratch<F>, scratch);
    __shared__ bool last;
    const struct share a = share_of(c);
    const int thread = (int)threadIdx.x, lane = lane_of_warp<F>(), tile = tile_of_warp<F>();
    if (a.rows <= 0)
        return;
    if (thread < STORED_ROWS)
        find_own(c, a, scratch);
    if (thread >= F::THREADS - WARP)
        find_queries(c, a, scratch, thread - (F::THREADS - WARP));
    __syncthreads();
    const struct range p = range_of(c, a, scratch);
    part_sums<F> sums = {};
    struct run r = run_from(a, scratch, p, { p.first, 0 });
    UNROLL_BY(1)
    for (bool begins = true; begins || r.unit < p.end; begins = false) {
        const struct view v = plan(c, a, scratch, p, r);
        UNROLL_BY(1)
        for (int values = 0; values < 2; values++) {
            load_unit(c, a, scratch, v, values != 0);
            commit_copies();
        }
        if (begins) {
            wait_for_previous();
            if (p.first >= p.end && blockIdx.z > 0)
                return;
            load_queries(c, a, scratch);
        }
        load_own(c, a, scratch, p);
        weights<F> w;
        wait_for_copies<1>();
        __syncthreads(); // queries and keys are here
        const bool computes = has_queries(v, tile);
        if (computes) {
            scores x;
            unit_scores(x, scratch, lane, tile);
            unit_weights(w, x, scratch, v, lane, tile);
        }
        wait_for_copies<0>();
        __syncthreads(); // values are here, and keys are no longer read
        if (computes)
            add_values(w, a, scratch, p, v, lane, tile);
        __syncthreads();
        add_units(sums, scratch, p);
        r = scratch->run[F::LANES - 1];
        r = r.unit < p.end ? next_run(a, scratch, p, r) : r;
        __syncthreads(); // sums and runs are no longer read
    }
    const int u = thread / PER_QUERY<F>, seen = scratch->seen[u], parts = parts_of(c.units, p.longest);
    const int64_t query = scratch->query[u];
    const int row = scratch->row[u], head = u - row * c.block_heads;
    const bool is = row < a.rows && head < a.heads;
    if (min(seen, p.end * KEYS) > (p.first + SPLIT_UNITS) * KEYS)
        combine(sums.group, sums.split, false);
    else
        sums.group = sums.split;
    if (parts > 1) {
        if (seen > p.first * KEYS)
            write_part<F>(c, query, sums.group);
        if (!is_last(c, parts, &last))
            return;
        sums.group = combine_parts(c, scratch, query, parts_of(c.units, seen), parts);
    }
    write_result<F>(c, a.first + row, a.head + head, is, parts_of(c.units, seen) > 0, sums.group);
}

// ---- launches

template <typename F> static void launch(struct cuda *c, const struct attend_call &call)
{
    static uint64_t allowed;
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.head_blocks), (unsigned)call.parts);
    cuda_allow_shared(c, (const void *)mma_kernel<F>, sizeof(mma_scratch<F>), &allowed);
    // The layout and the cache's other rows are read before the wait. Outside a graph, kernels that are still running
    // may write the layout, or move rows of the prefix.
    QUEUE_EARLY_IF(c, c->capturing && call.stores, mma_kernel<F>, grid, F::THREADS, sizeof(mma_scratch<F>), call);
    cuda_launched(c, "attend");
}

// A form for at most so many queries.
struct mma_form {
    int head_dim, queries;
    size_t shared;
    void (*launch)(struct cuda *c, const struct attend_call &call);
};
#define FORM(hd, queries, lanes) \
    { \
        hd, queries, sizeof(mma_scratch<block_form<hd, queries, lanes>>), launch<block_form<hd, queries, lanes>> \
    }
#define FORMS(hd) FORM(hd, FEW, SPLIT_UNITS), FORM(hd, 16, SPLIT_UNITS), FORM(hd, 32, SPLIT_UNITS)
static const struct mma_form forms[] = {
    FORMS(64), FORMS(80), FORMS(96), FORM(96, 16, 2), FORMS(128), FORM(128, 16, 2)
};

static const struct mma_form *form_of(const struct cuda *c, int head_dim, int queries)
{
    for (const struct mma_form &f : forms)
        if (f.head_dim == head_dim && f.queries >= queries && f.shared <= c->shared)
            return &f;
    return NULL;
}

int attention_mma_queries(const struct cuda *c, enum type type, int head_dim, int queries)
{
    const struct mma_form *f = type == BF16 ? form_of(c, head_dim, queries) : NULL;
    return f != NULL ? f->queries : 0;
}

void attention_mma(struct cuda *c, const struct attend_call &call, int queries)
{
    assert(((uintptr_t)call.keys | (uintptr_t)call.values | call.row_bytes) % 16 == 0);
    assert(((uintptr_t)call.q | (uintptr_t)call.k | (uintptr_t)call.v | (uintptr_t)call.angles) % 8 == 0);
    form_of(c, call.head_dim, queries)->launch(c, call);
}

} // namespace DEVICE_SPACE
