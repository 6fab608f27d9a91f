// attention.cu - attention for every shape and cache type, RoPE's angles, writes to the cache, and what the kernels
// share on the host.
//
// In the plain kernel here a block's part is a split, and a thread computes one sum at a time, in order: a score over
// the elements of a head, or a value over positions. Keys and values pass through shared memory as floats and are read
// once for all queries that have them at the same position. attention_mma.cu has the fast kernels for common shapes.
#include "kernels/cuda/attention.h"

namespace DEVICE_SPACE
{

constexpr int THREADS = 256, QUERIES = 8, SPLITS = GROUP_UNITS / SPLIT_UNITS; // SPLITS: of a group
constexpr float LOG2_E = 1.4426950408889634f;

// ---- the plain kernel

// Element `at` of a cache row.
template <enum type TYPE> static __device__ float number_at(const uint8_t *row, int at)
{
    if (TYPE == F32)
        return ((const float *)row)[at];
    if (TYPE == BF16)
        return bf16_to_float(((const uint16_t *)row)[at]);
    const uint8_t *block = row + at / 32 * 34; // Q8_0
    return half_to_float(*(const uint16_t *)block) * (float)((const int8_t *)block)[2 + at % 32];
}

// Shared memory of a block.
struct plain_scratch {
    int width;    // a row of the tile: odd, so that the elements of a column lie in different banks
    float *q;     // (QUERIES, head_dim) scaled
    float *score; // (QUERIES, SPLIT) scores, then weights
    float *sums;  // (QUERIES, head_dim)
    float *tile;  // (tile, width) keys or values
};

static __device__ struct plain_scratch plain_scratch(float *scratch, int head_dim)
{
    struct plain_scratch r;
    r.width = head_dim | 1;
    r.q = scratch;
    r.score = r.q + QUERIES * head_dim;
    r.sums = r.score + QUERIES * SPLIT;
    r.tile = r.sums + QUERIES * head_dim;
    return r;
}

static size_t plain_bytes(int head_dim, int tile)
{
    return sizeof(float) * (size_t)(QUERIES * (2 * head_dim + SPLIT) + tile * (head_dim | 1));
}

// Loads the cache rows `place` to the tile.
template <enum type TYPE>
static __device__ void load_tile(const struct attend_call &c, const struct share &a, const struct plain_scratch &r,
                                 const uint8_t *cache, const int32_t *place, int count)
{
    const int hd = c.head_dim;
    for (int at = (int)threadIdx.x; at < count * hd; at += THREADS) {
        const int k = at / hd, d = at % hd;
        const uint8_t *row = cache + ((size_t)a.slot * (size_t)c.length + (size_t)place[k]) * c.row_bytes;
        r.tile[k * r.width + d] = number_at<TYPE>(row, a.kv_head * hd + d);
    }
}

// score = q . keys of the tile, for queries first .. first + m and `count` positions from `column` on
static __device__ void score_tile(const struct plain_scratch &r, int hd, int first, int m, int column, int count)
{
    for (int at = (int)threadIdx.x; at < m * count; at += THREADS) {
        const int u = first + at / count, k = at % count;
        const float *q = r.q + u * hd, *key = r.tile + k * r.width;
        float sum = 0;
        for (int d = 0; d < hd; d++)
            sum = fmaf(q[d], key[d], sum);
        r.score[u * SPLIT + column + k] = sum;
    }
}

// sums += score . values of the tile, as far as a query's row has these positions
static __device__ void add_values(const struct plain_scratch &r, int hd, int first, int m, int column, int count,
                                  const int *seen, int heads)
{
    for (int at = (int)threadIdx.x; at < m * hd; at += THREADS) {
        const int u = first + at / hd, d = at % hd, end = min(count, seen[u / heads] - column);
        const float *weight = r.score + u * SPLIT + column, *value = r.tile + d;
        float sum = r.sums[u * hd + d];
        for (int k = 0; k < end; k++)
            sum = fmaf(weight[k], value[k * r.width], sum);
        r.sums[u * hd + d] = sum;
    }
}

// One query, by a warp: replaces scores by weights, which are 0 before its window. A split that lies before it has a
// maximum of minus infinity, and adds nothing to the others.
static __device__ void find_weights(const struct attend_call &c, float *score, int hidden, int count,
                                    struct softmax *out)
{
    const int lane = threadIdx.x % WARP;
    struct softmax s = { -INFINITY, 0 };
    for (int k = lane; k < count; k += WARP) {
        if (c.cap > 0)
            score[k] = LOG2_E * c.cap * tanhf(score[k] / c.cap);
        s.max = k < hidden ? s.max : fmaxf(s.max, score[k]);
    }
    s.max = ceilf(warp_max(s.max));
    for (int k = lane; k < count; k += WARP) {
        score[k] = k < hidden ? 0 : exp2f(score[k] - s.max);
        s.total += score[k];
    }
    s.total = warp_sum(s.total);
    if (lane == 0)
        *out = s;
}

// Writes the block's sums as a part's.
static __device__ void write_part(const struct attend_call &c, const struct share &a, const float *sums,
                                  const struct softmax *softmax, const int *seen)
{
    const int hd = c.head_dim;
    for (int at = (int)threadIdx.x; at < a.rows * a.heads * hd; at += THREADS) {
        const int u = at / hd, d = at % hd;
        const int64_t part = query_of(c, a, u) * c.parts + (int)blockIdx.z;
        if (seen[u / a.heads] <= 0)
            continue;
        float *to = c.sums + part * (hd + AFTER_SUMS);
        to[d] = sums[at];
        if (d == 0)
            to[hd] = softmax[u].max, to[hd + 1] = softmax[u].total;
    }
}

template <enum type TYPE>
static __global__ void __launch_bounds__(THREADS, 3) plain_kernel(const struct attend_call c, int tile)
{
    kernel_prologue();
    DYNAMIC_SHARED(float, scratch);
    __shared__ int positions[QUERIES]; // (rows)
    __shared__ int seen[QUERIES];      // (rows) positions in this split
    __shared__ int dense[QUERIES];     // (rows) dense positions in this split
    __shared__ int hidden[QUERIES];    // (rows) positions of this split before the row's window
    __shared__ int32_t place[WARP];    // (tile)
    __shared__ struct softmax softmax[QUERIES];
    __shared__ struct share a;
    __shared__ bool last;
    const struct share share = share_of(c);
    const int start = (int)blockIdx.z * SPLIT;
    if (share.rows <= 0)
        return;
    const struct plain_scratch r = plain_scratch(scratch, c.head_dim);
    const int hd = c.head_dim, thread = (int)threadIdx.x, queries = share.rows * share.heads;
    if (thread == 0)
        a = share; // shared memory saves registers
    __syncthreads();
    if (thread < a.rows) {
        const struct counts n = count_positions(c, a.first + thread);
        positions[thread] = n.all;
        seen[thread] = min(n.all - start, SPLIT);
        dense[thread] = n.dense - start;
        hidden[thread] = c.window > 0 ? min(max(n.all - c.window - start, 0), SPLIT) : 0;
    }
    __syncthreads();
    int longest = 0, parts = 0, begin = SPLIT; // positions begin .. longest are computed
    for (int i = 0; i < a.rows; i++) {
        longest = max(longest, seen[i]);
        begin = min(begin, hidden[i]);
        parts = max(parts, (positions[i] + SPLIT - 1) / SPLIT);
    }
    if (longest <= 0 && start > 0)
        return;
    for (int at = thread; at < queries * hd; at += THREADS) {
        const int u = at / hd;
        r.q[at] = rotated(c, c.q + query_of(c, a, u) * hd, a.first + u / a.heads, at % hd) * c.scale;
        r.sums[at] = 0;
    }
    for (int values = 0; values < 2; values++) { // keys, then values
        for (int column = begin / tile * tile; column < longest; column += tile) {
            const int end = min(column + tile, longest);
            bool uniform = true; // every row has its positions of this tile in the same cache rows
            for (int i = 0; i < a.rows; i++)
                uniform = uniform && min(seen[i], end) <= max(dense[i], column);
            for (int i = 0; i < (uniform ? 1 : a.rows); i++) {
                const int count = (uniform ? end : min(seen[i], end)) - column;
                const int first = i * a.heads, m = uniform ? queries : a.heads;
                if (count <= 0)
                    continue;
                __syncthreads();
                if (!uniform)
                    find_places(c, a.first + i, start + column, count, place, thread, THREADS);
                else if (thread < count)
                    place[thread] = start + column + thread;
                __syncthreads();
                load_tile<TYPE>(c, a, r, values ? c.values : c.keys, place, count);
                __syncthreads();
                if (values)
                    add_values(r, hd, first, m, column, count, seen, a.heads);
                else
                    score_tile(r, hd, first, m, column, count);
            }
        }
        __syncthreads();
        for (int u = thread / WARP; !values && u < queries; u += THREADS / WARP)
            if (seen[u / a.heads] > 0)
                find_weights(c, r.score + u * SPLIT, hidden[u / a.heads], seen[u / a.heads], &softmax[u]);
    }
    if (parts > 1) {
        write_part(c, a, r.sums, softmax, seen);
        if (!is_last(c, parts, &last))
            return;
    }
    __syncthreads();
    UNROLL_BY(1)
    for (int from = 0, end = queries * hd; from < end; from += THREADS) {
        const int at = from + thread, u = min(at, end - 1) / hd, d = at % hd, i = u / a.heads, n = positions[i];
        const int64_t query = query_of(c, a, u);
        weighted<1> sums = { { 0, softmax[u].total }, { r.sums[u * hd + d] } };
        if (parts > 1) {
            const float *x = c.sums + query * c.parts * (hd + AFTER_SUMS);
            weighted<1> group = {};
            UNROLL_BY(4)
            for (int j = 0, last_part = parts_of(SPLIT_UNITS, n) - 1; j <= last_part; j++, x += hd + AFTER_SUMS) {
                combine(group, { { x[hd], x[hd + 1] }, { x[d] } }, j % SPLITS == 0);
                if (j % SPLITS == SPLITS - 1 || j == last_part)
                    combine(sums, group, j < SPLITS);
            }
        }
        const float result = n > 0 ? sums.x[0] * (1.0f / sums.s.total) : 0;
        if (at < end) {
            c.out[query * hd + d] = result;
            round_number(c.rounded, a.first + i, (a.head + u - i * a.heads) * hd + d, result);
        }
    }
}

// ---- RoPE's angles, and writes to the cache where the fast kernel does not write it itself: rotated keys and values

// A thread has a number of a row. A warp has 32 consecutive ones, which is a block of Q8_0, and never mixes k and v.

// Angles as in HF transformers: position * frequency is rounded to float, then its cosine and sine are taken.
static __global__ void angles_kernel(float *out, const int32_t *position, const float *frequency, int n, int half)
{
    kernel_prologue();
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t i = at / half;
    const int d = (int)(at % half);
    if (i >= n)
        return;
    const float angle = (float)position[i] * frequency[d];
    out[i * 2 * half + d] = cosf(angle);
    out[i * 2 * half + half + d] = sinf(angle);
}

void cuda_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency)
{
    struct cuda *c = (struct cuda *)b;
    const int half = (int)inverse_frequency.width;
    assert(out.rows == s->n && out.width == 2 * half && out.type == F32 && inverse_frequency.type == F32);
    const struct layout *d = cuda_see(c, s);
    QUEUE(c, angles_kernel, blocks_for((int64_t)s->n * half, THREADS), THREADS, 0, (float *)out.data, d->position,
          (const float *)inverse_frequency.data, s->n, half);
    cuda_launched(c, "angles");
}

// Writes number `at` of a row to the cache; x is 0 beyond the end of the row.
static __device__ void write_kv(uint8_t *cache, enum type type, int at, int width, float x)
{
    if (type == Q8_0) { // a warp has one block, and the width is a multiple of a block
        const float scale = warp_max(fabsf(x)) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
        uint8_t *block = cache + at / 32 * 34;
        if (at >= width)
            return;
        if (at % 32 == 0)
            *(uint16_t *)block = float_to_half(scale);
        ((int8_t *)block)[2 + at % 32] = (int8_t)rintf(x * inverse); // round to nearest even
        return;
    }
    if (at >= width)
        return;
    if (type == BF16)
        ((uint16_t *)cache)[at] = float_to_bf16(x);
    else
        ((float *)cache)[at] = x;
}

// A row's keys and its values, each padded to whole warps. Padding rows are not written.
static __global__ void store_kernel(const struct attend_call c, enum type type, int width)
{
    kernel_prologue();
    const int64_t i = blockIdx.x, place = c.place[i], row = place * (int64_t)c.row_bytes;
    const int padded = (width + WARP - 1) / WARP * WARP;
    int at = (int)(blockIdx.y * THREADS + threadIdx.x);
    if (place < 0)
        return;
    if (at < padded) {
        write_kv(c.keys + row, type, at, width, at < width ? rotated(c, c.k + i * width, i, at) : 0);
        return;
    }
    at -= padded;
    if (at < padded)
        write_kv(c.values + row, type, at, width, at < width ? c.v[i * width + at] : 0);
}

static void store(struct cuda *c, const struct attend_call &call, enum type type)
{
    const int width = call.kv_heads * call.head_dim, threads = 2 * ((width + WARP - 1) / WARP * WARP);
    QUEUE(c, store_kernel, dim3((unsigned)call.n, (unsigned)blocks_for(threads, THREADS)), THREADS, 0, call, type,
          width);
    cuda_launched(c, "store");
}

// ---- launches

// Sets the division into blocks of at most `queries` queries (rows times heads). runs: number of runs of rows of one
// slot.
static void divide(struct attend_call *c, int runs, int queries)
{
    const int group = c->group;
    c->block_heads = group < queries ? group : queries;
    c->reciprocal = (1 << 16) / c->block_heads + 1;
    c->head_blocks = (group + c->block_heads - 1) / c->block_heads;
    c->rows = queries / group > 1 ? queries / group : 1;
    const int max_blocks = blocks_for(c->n, c->rows) + runs - 1; // a run that starts between two multiples adds a block
    c->row_blocks = max_blocks < c->n ? max_blocks : c->n;
    c->one_slot = c->row_blocks == blocks_for(c->n, c->rows);
}

// Sets the parts, of rows of at most `splits` splits. Returns the number of blocks.
static int64_t set_parts(struct attend_call *c, int splits, int units)
{
    c->units = units;
    c->parts = blocks_for((int64_t)splits * SPLIT_UNITS, units);
    return (int64_t)c->row_blocks * c->kv_heads * c->head_blocks * c->parts;
}

// Splits are parts only of passes with few blocks, so these need no more memory than is reserved first: a later pass
// does not enlarge it, which would end all graphs.
enum { FIRST_COUNTS = 1 << 14 };
static size_t first_sums(const struct cuda *c)
{
    return (size_t)c->processors * (GROUP_UNITS / SPLIT_UNITS) * MAX_QUERIES * (128 + AFTER_SUMS) * sizeof(float);
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Memory for the results of parts. false: out of memory.
static bool reserve(struct cuda *c, struct attend_call *call)
{
    const size_t results = (size_t)call->n * (size_t)call->heads * (size_t)call->parts;
    const size_t counts = (size_t)call->row_blocks * (size_t)(call->kv_heads * call->head_blocks);
    if (call->parts <= 1)
        return true;
    call->sums = (float *)cuda_reserve(
        c, &c->partial, largest(results * (size_t)(call->head_dim + AFTER_SUMS) * sizeof(float), first_sums(c)),
        "attend");
    const size_t cleared = c->arrived.bytes;
    call->arrived =
        (unsigned *)cuda_reserve(c, &c->arrived, largest(counts, FIRST_COUNTS) * sizeof(unsigned), "attend");
    if (call->arrived != NULL && c->arrived.bytes > cleared) { // kernels leave zeros
        const cudaError_t e = cudaMemsetAsync(call->arrived, 0, c->arrived.bytes, c->stream);
        cuda_note(c, e, "attend");
        c->arrived.bytes = e == cudaSuccess ? c->arrived.bytes : 0;
    }
    return call->sums != NULL && c->arrived.bytes > 0;
}

static void queue_plain(struct cuda *c, struct attend_call call, const struct reach &extent, enum type type)
{
    divide(&call, extent.runs, QUERIES);
    set_parts(&call, extent.splits, SPLIT_UNITS);
    if (!reserve(c, &call))
        return;
    const int tile = call.head_dim <= 192 ? WARP : WARP / 2; // shared memory stays below 48 KiB
    const size_t bytes = plain_bytes(call.head_dim, tile);
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.head_blocks), (unsigned)call.parts);
    const auto attend_kernel = type == F32 ? plain_kernel<F32> : type == BF16 ? plain_kernel<BF16> : plain_kernel<Q8_0>;
    QUEUE(c, attend_kernel, grid, THREADS, bytes, call, tile);
    cuda_launched(c, "attend");
}

// More queries per block read keys less often, larger parts leave fewer results to combine; both leave fewer blocks, of
// which every processor should have one. The choice does not change the result. Returns the queries of a block.
static int divide_for_mma(const struct cuda *c, struct attend_call *call, const struct reach &extent)
{
    const int of_run = blocks_for(call->n, extent.runs > 0 ? extent.runs : 1) * call->group;
    const int large = attention_mma_queries(c, BF16, call->head_dim, MAX_QUERIES);
    int queries = attention_mma_queries(c, BF16, call->head_dim, of_run < 16 ? of_run : 16);
    divide(call, extent.runs, queries);
    const int row_blocks = call->row_blocks;
    if (of_run > queries && large > 0 && set_parts(call, extent.splits, SPLIT_UNITS) > c->processors) {
        divide(call, extent.runs, large);
        if (call->row_blocks < row_blocks)
            queries = large;
        else
            divide(call, extent.runs, queries);
    }
    if (set_parts(call, extent.splits, GROUP_UNITS) < c->processors)
        set_parts(call, extent.splits, SPLIT_UNITS);
    return queries;
}

struct reach attention_extent(const struct layout *s)
{
    struct reach extent = { 0, 0 };
    for (int i = 0; i < s->n; i++) {
        int positions = s->prefix[i];
        for (int w = 0; w < s->words; w++)
            positions += __builtin_popcountll(s->ancestors[(int64_t)i * s->words + w]);
        const int splits = blocks_for(positions, SPLIT);
        extent.splits = splits > extent.splits ? splits : extent.splits;
        extent.runs += s->slot[i] >= 0 && (i == 0 || s->slot[i] != s->slot[i - 1]);
    }
    return extent;
}

// Whether rows of a slot have places one after the other.
[[maybe_unused]] static bool has_runs_of_places(const struct layout *s)
{
    for (int i = 0; i < s->n; i++)
        for (int j = i - 1; j >= 0 && s->slot[i] >= 0; j--)
            if (s->slot[j] == s->slot[i]) {
                if (s->place[i] != s->place[j] + 1)
                    return false;
                break;
            }
    return true;
}

struct tensor cuda_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor k, struct tensor v,
                          struct tensor angles, struct tensor keys, struct tensor values, const struct layout *s,
                          struct attention a)
{
    struct cuda *c = (struct cuda *)b;
    const int head_dim = a.head_dim, rotated = angles.data != NULL ? (int)angles.width : 0;
    assert(out.rows == s->n && q.rows == s->n && k.rows == s->n && v.rows == s->n);
    assert(rotated == 0 || (angles.rows == s->n && rotated % 2 == 0 && rotated <= head_dim));
    assert(out.width == q.width && q.width % head_dim == 0 && head_dim <= 256 && head_dim % 2 == 0);
    assert(keys.type == values.type && keys.width == values.width && keys.width % head_dim == 0);
    assert(keys.width == k.width && values.width == v.width && q.width % keys.width == 0);
    assert(keys.type == F32 || keys.type == BF16 || (keys.type == Q8_0 && head_dim % 32 == 0));
    const struct layout in_short = a.short_cache ? short_layout(cuda_see(c, s)) : *cuda_see(c, s), *d = &in_short;
    const struct reach extent = c->reach.splits > 0 ? c->reach : attention_extent(s);
    const bool fast =
        attention_mma_queries(c, keys.type, head_dim, 1) > 0 && rotated == head_dim && a.cap == 0 && a.window == 0;
    out = without_rounded(c, out);
    struct attend_call call = {};
    call.out = (float *)out.data;
    call.q = (const float *)q.data;
    call.k = (const float *)k.data;
    call.v = (const float *)v.data;
    call.angles = (const float *)angles.data;
    call.keys = (uint8_t *)keys.data;
    call.values = (uint8_t *)values.data;
    call.row_bytes = type_row_bytes(keys.type, keys.width);
    call.stores = fast && s->n <= STORED_ROWS;
    assert(!call.stores || has_runs_of_places(s));
    call.n = s->n;
    call.words = s->words;
    call.length = d->length;
    call.slot = d->slot;
    call.prefix = d->prefix;
    call.place = d->place;
    call.ancestors = d->ancestors;
    call.heads = (int)(q.width / head_dim);
    call.kv_heads = (int)(keys.width / head_dim);
    call.group = call.heads / call.kv_heads;
    call.head_dim = head_dim;
    call.rotated = rotated;
    call.scale = (a.cap > 0 ? 1 : LOG2_E) * (a.scale != 0 ? a.scale : 1 / sqrtf((float)head_dim));
    call.cap = a.cap;
    call.window = a.window;
    const bool rounds = head_dim % WARP == 0 && out.width == round_width(out.width) &&
                        rounding_for(c, -1, s->n, out.width, &call.rounded);
    if (!call.stores)
        store(c, call, keys.type);
    if (!fast)
        queue_plain(c, call, extent, keys.type);
    else {
        const int queries = divide_for_mma(c, &call, extent);
        if (reserve(c, &call))
            attention_mma(c, call, queries);
    }
    return rounds ? with_rounded(c, out) : out;
}

} // namespace DEVICE_SPACE
