// attend.cu - attention for every shape and cache, and the join of its splits.
//
// The kernel here is the plain one: a thread has one sum at a time, a score's over the elements of a head or a value's
// over positions, in their order. Keys and values pass through shared memory as floats, read once for the queries that
// see them in the same place. attend_mma.cu has what models mostly ask for.
#include "kernels/cuda/attend.h"
#include "kernels/cuda/round.h"

#include <math.h>

namespace DEVICE_SPACE
{

constexpr int THREADS = 256, QUERIES = 8;

// ---- the plain kernel

// Number `at` of a row of a cache.
template <enum type TYPE> static __device__ float number_at(const uint8_t *row, int at)
{
    if (TYPE == F32)
        return ((const float *)row)[at];
    if (TYPE == BF16)
        return bf16_to_float(((const uint16_t *)row)[at]);
    const uint8_t *block = row + at / 32 * 34; // Q8_0
    return half_to_float(*(const uint16_t *)block) * (float)((const int8_t *)block)[2 + at % 32];
}

// A block's shared memory.
struct plain_scratch {
    int width;    // of a row of the tile: an odd number, so that a column's lie in different banks
    float *q;     // (QUERIES, head_dim) scaled
    float *score; // (QUERIES, SPLIT) scores, then exponents
    float *sums;  // (QUERIES, head_dim)
    float *tile;  // (tile, width) keys or values
};

static __device__ struct plain_scratch plain_scratch(float *capacity, int head_dim)
{
    struct plain_scratch r;
    r.width = head_dim | 1;
    r.q = capacity;
    r.score = r.q + QUERIES * head_dim;
    r.sums = r.score + QUERIES * SPLIT;
    r.tile = r.sums + QUERIES * head_dim;
    return r;
}

static size_t plain_bytes(int head_dim, int tile)
{
    return sizeof(float) * (size_t)(QUERIES * (2 * head_dim + SPLIT) + tile * (head_dim | 1));
}

// The tile: what lies in these places.
template <enum type TYPE>
static __device__ void take_tile(const struct attend_call &c, const struct share &a, const struct plain_scratch &r,
                                 const uint8_t *cache, const int32_t *place, int count)
{
    const int hd = c.head_dim;
    for (int at = (int)threadIdx.x; at < count * hd; at += THREADS) {
        const int k = at / hd, d = at % hd;
        const uint8_t *row = cache + (size_t)(a.base + place[k]) * c.row_bytes;
        r.tile[k * r.width + d] = number_at<TYPE>(row, a.kv_head * hd + d);
    }
}

// score = q . keys of the tile, for queries first .. first + m and the positions from column on that it holds
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

// sums += score . values of the tile, as far as a query's row sees them
static __device__ void weigh_tile(const struct plain_scratch &r, int hd, int first, int m, int column, int count,
                                  const int *seen, int heads)
{
    for (int at = (int)threadIdx.x; at < m * hd; at += THREADS) {
        const int u = first + at / hd, d = at % hd, most = min(count, seen[u / heads] - column);
        const float *weight = r.score + u * SPLIT + column, *value = r.tile + d;
        float sum = r.sums[u * hd + d];
        for (int k = 0; k < most; k++)
            sum = fmaf(weight[k], value[k * r.width], sum);
        r.sums[u * hd + d] = sum;
    }
}

// A warp's query: scores to exponents; the largest score and the sum of exponents.
static __device__ void exponents(float *score, int count, float *most, float *total)
{
    const int lane = threadIdx.x % WARP;
    float largest = -INFINITY, sum = 0;
    for (int k = lane; k < count; k += WARP)
        largest = fmaxf(largest, score[k]);
    largest = warp_most(largest);
    for (int k = lane; k < count; k += WARP) {
        score[k] = expf(score[k] - largest);
        sum += score[k];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        *most = largest;
        *total = sum;
    }
}

template <enum type TYPE>
static __global__ void __launch_bounds__(THREADS) plain_kernel(const struct attend_call c, int tile)
{
    in_turn();
    DYNAMIC_SHARED(float, capacity);
    __shared__ int positions[QUERIES]; // (rows)
    __shared__ int seen[QUERIES];      // (rows) positions of the split
    __shared__ int dense[QUERIES];     // (rows) how many of them lie where they say
    __shared__ int32_t place[WARP];    // (tile)
    __shared__ float most[QUERIES], total[QUERIES];
    __shared__ struct share a;
    const struct share share = share_of(c);
    if (share.rows == 0)
        return;
    const struct plain_scratch r = plain_scratch(capacity, c.head_dim);
    const int hd = c.head_dim, thread = (int)threadIdx.x, queries = share.rows * share.heads;
    if (thread == 0)
        a = share; // registers are short
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
    for (int values = 0; values < 2; values++) { // keys before values
        for (int column = 0; column < longest; column += tile) {
            const int end = min(column + tile, longest);
            bool together = true;
            for (int i = 0; i < a.rows; i++)
                together = together && min(seen[i], end) <= max(dense[i], column);
            for (int i = 0; i < (together ? 1 : a.rows); i++) {
                const int count = (together ? end : min(seen[i], end)) - column;
                const int first = i * a.heads, m = together ? queries : a.heads;
                if (count <= 0)
                    continue;
                __syncthreads();
                if (!together)
                    find_places(c, a.first + i, a.start + column, count, place, thread, THREADS);
                else if (thread < count)
                    place[thread] = a.start + column + thread;
                __syncthreads();
                take_tile<TYPE>(c, a, r, values ? c.values : c.keys, place, count);
                __syncthreads();
                if (values)
                    weigh_tile(r, hd, first, m, column, count, seen, a.heads);
                else
                    score_tile(r, hd, first, m, column, count);
            }
        }
        __syncthreads();
        for (int u = thread / WARP; !values && u < queries; u += THREADS / WARP)
            exponents(r.score + u * SPLIT, seen[u / a.heads], &most[u], &total[u]);
    }
    for (int at = thread; at < queries * hd; at += THREADS) {
        const int u = at / hd, row = u / a.heads;
        if (seen[row] > 0 || a.start == 0)
            put_sum(c, a.first + row, a.head + u % a.heads, at % hd, positions[row], r.sums[at], most[u], total[u]);
    }
}

// ---- the join

// One (row, head) to a block. The largest score decides the scale; splits come in their order. Rows beyond n are there for
// the planes alone.
static __global__ void join_kernel(const struct attend_call c, const struct rounding left)
{
    in_turn();
    DYNAMIC_SHARED(float, by);       // (splits) a split's weight
    float *const of = by + c.splits; // (splits) its sum of exponents
    const int i = (int)blockIdx.x / c.heads, head = (int)blockIdx.x % c.heads, hd = c.head_dim;
    const int splits = i < c.n ? (positions_of(c, i) + SPLIT - 1) / SPLIT : 0, stride = hd + 2;
    const float *p = partial_of(c, i, head, 0);
    float *out = c.out + ((int64_t)i * c.heads + head) * hd;
    float most = -INFINITY, total = 0;
    if (splits > 1) {
        for (int s = (int)threadIdx.x % WARP; s < splits; s += WARP)
            most = fmaxf(most, p[(int64_t)s * stride + hd]);
        most = warp_most(most);
        for (int s = (int)threadIdx.x; s < splits; s += (int)blockDim.x) {
            by[s] = expf(p[(int64_t)s * stride + hd] - most);
            of[s] = p[(int64_t)s * stride + hd + 1];
        }
        __syncthreads();
        for (int s = 0; s < splits; s++)
            total = fmaf(by[s], of[s], total);
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
        round_number(left, i, (int64_t)head * hd + d, sum);
    }
}

// ---- launches

void attend_divide(struct attend_call *c, int runs, int queries)
{
    const int group = c->heads / c->kv_heads;
    c->portion = group < queries ? group : queries;
    c->portions = (group + c->portion - 1) / c->portion;
    c->rows = queries / group > 1 ? queries / group : 1;
    const int most = blocks_for(c->n, c->rows) + runs - 1; // a run that begins between two multiples is one more
    c->row_blocks = most < c->n ? most : c->n;
}

struct reach attend_reach(const struct layout *s)
{
    struct reach to = { 0, 0 };
    for (int i = 0; i < s->n; i++) {
        int positions = s->prefix[i];
        for (int w = 0; w < s->words; w++)
            positions += __builtin_popcountll(s->ancestors[(int64_t)i * s->words + w]);
        const int splits = blocks_for(positions, SPLIT);
        to.splits = splits > to.splits ? splits : to.splits;
        to.runs += s->slot[i] >= 0 && (i == 0 || s->slot[i] != s->slot[i - 1]);
    }
    return to;
}

static void attend_plain(struct cuda *c, struct attend_call call, int runs, enum type type)
{
    attend_divide(&call, runs, QUERIES);
    const int tile = call.head_dim <= 192 ? WARP : WARP / 2; // to stay below 48 KiB
    const size_t bytes = plain_bytes(call.head_dim, tile);
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.portions), (unsigned)call.splits);
    if (type == F32)
        QUEUE(c, plain_kernel<F32>, grid, THREADS, bytes, call, tile);
    else if (type == BF16)
        QUEUE(c, plain_kernel<BF16>, grid, THREADS, bytes, call, tile);
    else
        QUEUE(c, plain_kernel<Q8_0>, grid, THREADS, bytes, call, tile);
    cuda_launched(c, "attend");
}

void cuda_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                 const struct layout *s, int head_dim)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.rows == s->n && q.rows == s->n && out.width == q.width && q.width % head_dim == 0 && head_dim <= 256);
    assert(keys.type == values.type && keys.width == values.width && keys.width % head_dim == 0);
    assert(keys.type == F32 || keys.type == BF16 || (keys.type == Q8_0 && head_dim % 32 == 0));
    assert(q.width % keys.width == 0);
    const struct layout *d = cuda_see(c, s);
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
    const struct reach reach = c->reach.splits > 0 ? c->reach : attend_reach(s);
    call.splits = reach.splits;
    if (call.splits > 1) {
        const size_t sums = (size_t)s->n * (size_t)call.heads * (size_t)call.splits;
        call.partial = (float *)cuda_reserve(c, &c->partial, sums * (size_t)(head_dim + 2) * sizeof(float), "attend");
        if (call.partial == NULL)
            return;
    }
    if (attend_has_mma(keys.type, head_dim))
        attend_mma(c, call, reach.runs);
    else
        attend_plain(c, call, reach.runs, keys.type);
    struct rounding left = {};
    const bool planes =
        head_dim % WARP == 0 && out.width == round_width(out.width) && rounding_for(c, s->n, out.width, &left);
    if (call.splits > 1 || planes)
        QUEUE(c, join_kernel, (planes ? left.tiles * 8 : s->n) * call.heads, head_dim <= 64 ? 64 : 128,
              2 * (size_t)call.splits * sizeof(float), call, left);
    cuda_launched(c, "attend");
    if (planes)
        rounding_is(c, out);
}

} // namespace DEVICE_SPACE
