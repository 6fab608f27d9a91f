// attention.h - the arguments of an attention call, how its kernels divide it among blocks, and the combination of
// their results. For attention*.cu only.
//
// Positions are divided into units of KEYS. A softmax over a row is computed in three levels: units are combined in
// splits, splits in groups, groups in the row, each in ascending order. A block computes consecutive rows of one slot,
// heads that share a kv head, and one *part*: a split or a group (split-KV, as in FlashDecoding). The last block of a
// row to end combines the parts that the others left in memory. So the order of additions depends on the
// row's own number of positions only, not on the division, which follows from the size of the pass.
//
// A row attends to its slot's prefix and then to its own ancestors, wherever they lie in the cache. Its positions are
// these in order, so a path through a draft tree has the same sums as a chain. The first `dense` positions lie in the
// cache row of their position, and rows share what is read there; the others are found from the row's ancestor mask.
#pragma once
#include "kernels/cuda/round.h"

#include <math.h>

namespace DEVICE_SPACE
{

constexpr int KEYS = 64, SPLIT_UNITS = 4, GROUP_UNITS = 32, SPLIT = SPLIT_UNITS * KEYS;
static_assert(SPLIT == SHORT_UNIT, "caches of windows begin at a split");
constexpr int MAX_QUERIES = 32; // rows times heads of a block
constexpr int AFTER_SUMS = 4;   // floats behind a part's sums: maximum, total, and what keeps the next ones aligned

struct attend_call {
    float *out;             // (n, heads * head_dim)
    const float *q, *k, *v; // the pass's (n, heads * head_dim), and (n, kv_heads * head_dim) twice; not rotated
    const float *angles;    // (n, rotated)
    uint8_t *keys, *values; // (slots * length, kv_heads * head_dim) of the cache's type
    size_t row_bytes;       // a cache row's, of keys or of values
    bool stores;            // the kernel writes k and v to the cache; false: store_kernel has
    int n, words, length;   // those of struct layout
    const int32_t *slot, *prefix, *place;          // (n)
    const uint64_t *ancestors;                     // (n, words)
    int heads, kv_heads, group, head_dim, rotated; // group: heads of a kv head; rotated: the first numbers of a head
    float scale;       // scores are logarithms to base 2 by it (with a cap: only once that is applied)
    float cap;         // 0: none
    int window;        // 0: none
    int rows;          // maximum per block
    int row_blocks;    // upper bound of the number of row blocks
    bool one_slot;     // which all rows belong to
    int block_heads;   // maximum heads per block
    int reciprocal;    // u / block_heads = u * reciprocal >> 16 of a query u
    int head_blocks;   // blocks per kv head
    int units;         // a part's: SPLIT_UNITS or GROUP_UNITS
    int parts;         // upper bound of the parts of a row
    float *sums;       // (n, heads, parts, head_dim + AFTER_SUMS): of rows with several parts, sums and struct softmax
    unsigned *arrived; // (row_blocks, kv_heads * head_blocks) blocks that have ended; 0 between launches
    struct rounding rounded; // out is written rounded, too
};

struct share {                // the work of a block
    int first, rows;          // rows of the pass; rows 0: the block has no work
    int kv_head, head, heads; // heads from `head` on
    int slot;
};

// ---- division

// Whether a row block starts at row i: at multiples of c.rows, and where the slot changes. Padding rows belong to the
// block before.
__device__ inline bool starts_block(const struct attend_call &c, int i)
{
    return i < c.n && (i % c.rows == 0 || (c.slot[i] != c.slot[i - 1] && c.slot[i] >= 0));
}

// The first row of row block `number`; n if there are fewer blocks. Called by all lanes of a warp together.
__device__ inline int first_row(const struct attend_call &c, int number)
{
    const int lane = threadIdx.x % WARP;
    UNROLL_BY(1)
    for (int i = 0; i < c.n; i += WARP) {
        uint32_t starts = __ballot_sync(0xFFFFFFFF, starts_block(c, i + lane));
        const int count = __popc(starts);
        if (number < count) {
            UNROLL_BY(1)
            for (; number > 0; number--)
                starts &= starts - 1;
            return i + __ffs((int)starts) - 1;
        }
        number -= count;
    }
    return c.n;
}

__device__ inline struct share share_of(const struct attend_call &c)
{
    struct share a;
    const int kv_head = c.head_blocks == 1 ? (int)blockIdx.y : (int)blockIdx.y / c.head_blocks,
              block_heads = (int)blockIdx.y - kv_head * c.head_blocks;
    if (c.one_slot) {
        a.first = (int)blockIdx.x * c.rows;
        a.rows = min(c.rows, c.n - a.first);
    } else {
        a.first = first_row(c, (int)blockIdx.x);
        UNROLL_BY(1)
        for (a.rows = 0; a.first + a.rows < c.n && (a.rows == 0 || !starts_block(c, a.first + a.rows));)
            a.rows++;
    }
    a.kv_head = kv_head;
    a.head = kv_head * c.group + block_heads * c.block_heads;
    a.heads = min(c.block_heads, c.group - block_heads * c.block_heads);
    a.slot = c.slot[min(a.first, c.n - 1)];
    return a;
}

// The row and head of query u of a block.
__device__ inline int64_t query_of(const struct attend_call &c, const struct share &a, int u)
{
    return (int64_t)(a.first + u / a.heads) * c.heads + a.head + u % a.heads;
}

// The positions of a row. Those are dense that lie in the cache row of their position: the prefix, and pending rows
// from the first on without a gap.
struct counts {
    int all, dense;
};

__device__ inline struct counts count_positions(const struct attend_call &c, int i)
{
    const int prefix = c.prefix[i];
    struct counts pending = { 0, 0 };
    bool gap = false;
    UNROLL_BY(1)
    for (int w = 0; w < c.words; w++) {
        const uint64_t bits = c.ancestors[(int64_t)i * c.words + w];
        pending.all += __popcll(bits);
        if (!gap)
            pending.dense += __popcll(bits & ~(bits + 1));
        gap = gap || bits != ~(uint64_t)0;
    }
    return { prefix + pending.all, prefix + pending.dense };
}

// place (count) = the slot's cache rows of positions from .. from + count of row i, as far as row i has them. Computed
// by `threads` threads together.
__device__ inline void find_places(const struct attend_call &c, int i, int from, int count, int32_t *place, int thread,
                                   int threads)
{
    const int prefix = c.prefix[i];
    UNROLL_BY(1)
    for (int k = thread; k < count && from + k < prefix; k += threads)
        place[k] = from + k;
    int at = prefix - from; // index in place of the word's first bit, if set
    UNROLL_BY(1)
    for (int w = 0; w < c.words && at < count; w++) {
        const uint64_t bits = c.ancestors[(int64_t)i * c.words + w];
        UNROLL_BY(1)
        for (int j = thread; j < 64; j += threads) {
            const int k = at + __popcll(bits & (((uint64_t)1 << j) - 1));
            if ((bits >> j & 1) != 0 && k >= 0 && k < count)
                place[k] = prefix + 64 * w + j;
        }
        at += __popcll(bits);
    }
}

// ---- rotation

// RoPE as "rotate half": number `at` of a row of heads, the first c.rotated of each of which are rotated. i: row of the
// pass.
__device__ inline float rotated(const struct attend_call &c, const float *x, int64_t i, int at)
{
    const float *angles = c.angles + i * c.rotated;
    const int half = c.rotated / 2, d = at % c.head_dim;
    if (d >= c.rotated)
        return x[at];
    if (d < half)
        return x[at] * angles[d] - x[at + half] * angles[d + half];
    return x[at] * angles[d - half] + x[at - half] * angles[d];
}

// ---- combination

// Weights are 2^(score - max), where max is the maximum score rounded up to an integer. So a change of max scales
// exactly.
struct softmax {
    float max, total; // total: of weights
};

template <int N> struct weighted { // N numbers of a sum of values
    struct softmax s;
    float x[N];
};

// 2^d for an integer d <= 0; 0 below 2^-126, and for NaN.
__device__ inline float power_of_two(float d)
{
    return __uint_as_float((uint32_t)(127 + (int)fmaxf(d, -127)) << 23);
}

// a = x, or a += x after both have been scaled to the same maximum.
template <int N> __device__ inline void combine(weighted<N> &a, const weighted<N> &x, bool first)
{
    if (first) {
        a = x;
        return;
    }
    const float most = fmaxf(a.s.max, x.s.max), scale = power_of_two(a.s.max - most),
                x_scale = power_of_two(x.s.max - most);
    a.s.max = most;
    a.s.total = fmaf(x.s.total, x_scale, a.s.total * scale);
    UNROLL
    for (int i = 0; i < N; i++)
        a.x[i] = fmaf(x.x[i], x_scale, a.x[i] * scale);
}

// After a block has written its part: whether it is the last of the `parts` blocks of these rows and heads, so that it
// can read the parts of all. `last` is in shared memory. Which block is the last changes no bits.
__device__ inline bool is_last(const struct attend_call &c, int parts, bool *last)
{
    const unsigned most = (unsigned)parts - 1;
    __syncthreads();
    if (threadIdx.x == 0)
        *last = count_arrival(&c.arrived[blockIdx.x * gridDim.y + blockIdx.y], most) == most;
    __syncthreads();
    return *last;
}

// The number of parts of a row of so many positions. Not a division, whose code is longer than the rest.
__device__ inline int parts_of(int units, int positions)
{
    const int n = (positions + KEYS - 1) / KEYS;
    return units == SPLIT_UNITS ? (n + SPLIT_UNITS - 1) / SPLIT_UNITS : (n + GROUP_UNITS - 1) / GROUP_UNITS;
}

// ---- launches

// Attention on tensor cores (attention_mma.cu): the queries of a block that are at least so many, 4, 16 or 32; 0: not
// with this cache type, head size or device. Its launch with blocks of so many.
constexpr int STORED_ROWS = 64; // so many rows of a pass, or fewer, are written to the cache by this kernel itself
int attention_mma_queries(const struct cuda *c, enum type type, int head_dim, int queries);
void attention_mma(struct cuda *c, const struct attend_call &call, int queries);

} // namespace DEVICE_SPACE
