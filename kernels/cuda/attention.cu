// attention.cu - attention for every shape and cache type, and the kernel that combines splits.
//
// In the plain kernel here a thread computes one sum at a time, in order: a score over the elements of a head, or a value over
// positions. Keys and values pass through shared memory as floats and are read once for all queries that have them at the
// same position. attention_mma.cu has the fast kernels for common shapes.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/round.h"

#include <math.h>

namespace DEVICE_SPACE
{

constexpr int THREADS = 256, QUERIES = 8;

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
    int width;    // of a row of the tile: odd, so that the elements of a column lie in different banks
    float *q;     // (QUERIES, head_dim) scaled
    float *score; // (QUERIES, SPLIT) scores, then exponentials
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
        const uint8_t *row = cache + (size_t)(a.base + place[k]) * c.row_bytes;
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

// One query, by a warp: replaces scores by exp(score - max), and returns the maximum and the sum of exponentials.
static __device__ void softmax_exp(float *score, int count, float *max_out, float *total)
{
    const int lane = threadIdx.x % WARP;
    float max_score = -INFINITY, sum = 0;
    for (int k = lane; k < count; k += WARP)
        max_score = fmaxf(max_score, score[k]);
    max_score = warp_max(max_score);
    for (int k = lane; k < count; k += WARP) {
        score[k] = expf(score[k] - max_score);
        sum += score[k];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        *max_out = max_score;
        *total = sum;
    }
}

template <enum type TYPE>
static __global__ void __launch_bounds__(THREADS) plain_kernel(const struct attend_call c, int tile)
{
    kernel_prologue();
    DYNAMIC_SHARED(float, scratch);
    __shared__ int positions[QUERIES]; // (rows)
    __shared__ int seen[QUERIES];      // (rows) positions in this split
    __shared__ int dense[QUERIES];     // (rows) dense positions in this split
    __shared__ int32_t place[WARP];    // (tile)
    __shared__ float max_score[QUERIES], total[QUERIES];
    __shared__ struct share a;
    const struct share share = share_of(c);
    if (share.rows == 0)
        return;
    const struct plain_scratch r = plain_scratch(scratch, c.head_dim);
    const int hd = c.head_dim, thread = (int)threadIdx.x, queries = share.rows * share.heads;
    if (thread == 0)
        a = share; // in shared memory to save registers
    __syncthreads();
    if (thread < a.rows) {
        positions[thread] = positions_of(c, a.first + thread);
        seen[thread] = min(positions[thread] - a.start, SPLIT);
        dense[thread] = dense_of(c, a.first + thread) - a.start;
    }
    __syncthreads();
    int longest = 0;
    for (int i = 0; i < a.rows; i++)
        longest = max(longest, seen[i]);
    if (longest == 0 && a.start > 0)
        return;
    for (int at = thread; at < queries * hd; at += THREADS) {
        const int u = at / hd;
        const int64_t of = (int64_t)(a.first + u / a.heads) * c.heads + a.head + u % a.heads;
        r.q[at] = c.q[of * hd + at % hd] * c.scale;
        r.sums[at] = 0;
    }
    for (int values = 0; values < 2; values++) { // keys, then values
        for (int column = 0; column < longest; column += tile) {
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
                    find_places(c, a.first + i, a.start + column, count, place, thread, THREADS);
                else if (thread < count)
                    place[thread] = a.start + column + thread;
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
            softmax_exp(r.score + u * SPLIT, seen[u / a.heads], &max_score[u], &total[u]);
    }
    for (int at = thread; at < queries * hd; at += THREADS) {
        const int u = at / hd, row = u / a.heads;
        if (seen[row] > 0 || a.start == 0)
            write_sum(c, a.first + row, a.head + u % a.heads, at % hd, positions[row], r.sums[at], max_score[u],
                      total[u]);
    }
}

// ---- combining splits

// One (row, head) per block. Splits are rescaled to the maximum score and added in order. Rows beyond n are only written to the
// planes.
static __global__ void combine_kernel(const struct attend_call c, const struct rounding planes)
{
    kernel_prologue();
    DYNAMIC_SHARED(float, by);            // (splits) weight of a split
    float *const exp_sum = by + c.splits; // (splits) its sum of exponentials
    const int i = (int)blockIdx.x / c.heads, head = (int)blockIdx.x % c.heads, hd = c.head_dim;
    const int splits = i < c.n ? (positions_of(c, i) + SPLIT - 1) / SPLIT : 0, stride = hd + 2;
    const float *p = partial_of(c, i, head, 0);
    float *out = c.out + ((int64_t)i * c.heads + head) * hd;
    float max_score = -INFINITY, total = 0;
    if (splits > 1) {
        for (int s = (int)threadIdx.x % WARP; s < splits; s += WARP)
            max_score = fmaxf(max_score, p[(int64_t)s * stride + hd]);
        max_score = warp_max(max_score);
        for (int s = (int)threadIdx.x; s < splits; s += (int)blockDim.x) {
            by[s] = expf(p[(int64_t)s * stride + hd] - max_score);
            exp_sum[s] = p[(int64_t)s * stride + hd + 1];
        }
        __syncthreads();
        for (int s = 0; s < splits; s++)
            total = fmaf(by[s], exp_sum[s], total);
    }
    for (int d = (int)threadIdx.x; d < hd; d += (int)blockDim.x) {
        float sum = 0;
        if (splits > 1) {
            UNROLL_BY(8)
            for (int s = 0; s < splits; s++)
                sum = fmaf(by[s], p[(int64_t)s * stride + d], sum);
            out[d] = sum = sum * (1.0f / total);
        } else if (splits == 1)
            sum = out[d];
        round_number(planes, i, (int64_t)head * hd + d, sum);
    }
}

// ---- launches

void attention_divide(struct attend_call *c, int runs, int queries)
{
    const int group = c->heads / c->kv_heads;
    c->block_heads = group < queries ? group : queries;
    c->head_blocks = (group + c->block_heads - 1) / c->block_heads;
    c->rows = queries / group > 1 ? queries / group : 1;
    const int max_blocks = blocks_for(c->n, c->rows) + runs - 1; // a run that starts between two multiples adds a block
    c->row_blocks = max_blocks < c->n ? max_blocks : c->n;
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

static void attention_plain(struct cuda *c, struct attend_call call, int runs, enum type type)
{
    attention_divide(&call, runs, QUERIES);
    const int tile = call.head_dim <= 192 ? WARP : WARP / 2; // to stay below 48 KiB of shared memory
    const size_t bytes = plain_bytes(call.head_dim, tile);
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.head_blocks), (unsigned)call.splits);
    if (type == F32)
        QUEUE(c, plain_kernel<F32>, grid, THREADS, bytes, call, tile);
    else if (type == BF16)
        QUEUE(c, plain_kernel<BF16>, grid, THREADS, bytes, call, tile);
    else
        QUEUE(c, plain_kernel<Q8_0>, grid, THREADS, bytes, call, tile);
    cuda_launched(c, "attend");
}

struct tensor cuda_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor keys,
                          struct tensor values, const struct layout *s, int head_dim)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.rows == s->n && q.rows == s->n && out.width == q.width && q.width % head_dim == 0 && head_dim <= 256);
    assert(keys.type == values.type && keys.width == values.width && keys.width % head_dim == 0);
    assert(keys.type == F32 || keys.type == BF16 || (keys.type == Q8_0 && head_dim % 32 == 0));
    assert(q.width % keys.width == 0);
    const struct layout *d = cuda_see(c, s);
    out = without_planes(c, out);
    struct attend_call call = {};
    call.out = (float *)out.data;
    call.q = (const float *)q.data;
    call.keys = (const uint8_t *)keys.data;
    call.values = (const uint8_t *)values.data;
    call.row_bytes = type_row_bytes(keys.type, keys.width);
    call.n = s->n;
    call.words = s->words;
    call.length = s->length;
    call.slot = d->slot;
    call.prefix = d->prefix;
    call.ancestors = d->ancestors;
    call.heads = (int)(q.width / head_dim);
    call.kv_heads = (int)(keys.width / head_dim);
    call.head_dim = head_dim;
    call.scale = 1.0f / sqrtf((float)head_dim);
    const struct reach extent = c->reach.splits > 0 ? c->reach : attention_extent(s);
    call.splits = extent.splits;
    if (call.splits > 1) {
        const size_t sums = (size_t)s->n * (size_t)call.heads * (size_t)call.splits;
        call.partial = (float *)cuda_reserve(c, &c->partial, sums * (size_t)(head_dim + 2) * sizeof(float), "attend");
        if (call.partial == NULL)
            return out;
    }
    if (attention_has_mma(keys.type, head_dim))
        attention_mma(c, call, extent.runs);
    else
        attention_plain(c, call, extent.runs, keys.type);
    struct rounding planes = {};
    const bool has_planes =
        head_dim % WARP == 0 && out.width == round_width(out.width) && rounding_for(c, -1, s->n, out.width, &planes);
    if (call.splits > 1 || has_planes)
        QUEUE(c, combine_kernel, (has_planes ? planes.tiles * 8 : s->n) * call.heads, head_dim <= 64 ? 64 : 128,
              2 * (size_t)call.splits * sizeof(float), call, planes);
    cuda_launched(c, "attend");
    return has_planes ? with_planes(c, out) : out;
}

} // namespace DEVICE_SPACE
