// attend.h - attention's call, and how its kernels divide it among blocks. For attend*.cu alone.
//
// A block takes rows of one slot that stand together, heads that share a kv head, and a split: SPLIT positions. Splits
// begin at multiples of SPLIT whoever looks, and what they come to is joined in their order.
//
// A row sees its slot's prefix and then its own ancestors, wherever those lie. Its positions are these in order, so a
// path through a tree has the sums of a chain. The first `dense` of them lie where their position says, and rows share
// what is read there; the others are found by a row's bits.
#pragma once
#include "kernels/cuda/cuda.h"

namespace DEVICE_SPACE
{

constexpr int SPLIT = 256;

struct attend_call {
    float *out;                   // (n, heads * head_dim)
    const float *q;               // (n, heads * head_dim)
    const uint8_t *keys, *values; // (slots * length, kv_heads * head_dim) of the cache's type
    size_t row_bytes;             // of a row of either
    int n, words, length;         // as struct layout has them
    const int32_t *slot, *prefix; // (n)
    const uint64_t *ancestors;    // (n, words)
    int heads, kv_heads, head_dim;
    float scale;    // of scores
    int rows;       // of a block, at most
    int row_blocks; // blocks that the rows come to, at most
    int portion;    // heads of a block, at most
    int portions;   // blocks that the heads of a kv head come to
    int splits;     // that the longest row has, at most
    float *
        partial; // (n, heads, splits, head_dim + 2): sums, largest score, sum of exponents; of rows with several splits
};

struct share {                // what a block takes
    int first, rows;          // of the pass; no rows: nothing is left for it
    int kv_head, head, heads; // heads from `head` on
    int64_t base;             // the slot's first row in the cache
    int start;                // first position
};

// A block's rows begin at multiples of c.rows, and where another slot's begin. Padding goes with whoever is before it.
__device__ inline bool begins(const struct attend_call &c, int i)
{
    return i < c.n && (i % c.rows == 0 || (c.slot[i] != c.slot[i - 1] && c.slot[i] >= 0));
}

// The first row of row block `number`; n: there are not so many. Every lane of a warp asks together.
__device__ inline int first_row(const struct attend_call &c, int number)
{
    if (c.row_blocks == (c.n + c.rows - 1) / c.rows)
        return number * c.rows;
    const int lane = threadIdx.x % WARP;
    for (int i = 0; i < c.n; i += WARP) {
        uint32_t beginnings = __ballot_sync(0xFFFFFFFF, begins(c, i + lane));
        const int count = __popc(beginnings);
        if (number < count) {
            for (; number > 0; number--)
                beginnings &= beginnings - 1;
            return i + __ffs((int)beginnings) - 1;
        }
        number -= count;
    }
    return c.n;
}

__device__ inline struct share share_of(const struct attend_call &c)
{
    struct share a;
    const int group = c.heads / c.kv_heads, portion = (int)blockIdx.y % c.portions;
    a.first = first_row(c, (int)blockIdx.x);
    for (a.rows = 0; a.first + a.rows < c.n && (a.rows == 0 || !begins(c, a.first + a.rows));)
        a.rows++;
    a.kv_head = (int)blockIdx.y / c.portions;
    a.head = a.kv_head * group + portion * c.portion;
    a.heads = min(c.portion, group - portion * c.portion);
    a.base = (int64_t)c.slot[min(a.first, c.n - 1)] * c.length;
    a.start = (int)blockIdx.z * SPLIT;
    return a;
}

// How many positions row i sees.
__device__ inline int positions_of(const struct attend_call &c, int i)
{
    int positions = c.prefix[i];
    for (int w = 0; w < c.words; w++)
        positions += __popcll(c.ancestors[(int64_t)i * c.words + w]);
    return positions;
}

// How many of them lie where their position says: the prefix, and pending rows from the first on without a gap.
__device__ inline int dense_of(const struct attend_call &c, int i)
{
    int dense = c.prefix[i];
    for (int w = 0; w < c.words; w++) {
        const uint64_t bits = c.ancestors[(int64_t)i * c.words + w];
        if (bits != ~(uint64_t)0)
            return dense + __popcll(bits & ~(bits + 1));
        dense += 64;
    }
    return dense;
}

// place (count) = rows of the slot that hold positions from .. from + count of row i, as far as it sees them. Threads
// `thread` of `threads` do it together.
__device__ inline void find_places(const struct attend_call &c, int i, int from, int count, int32_t *place, int thread,
                                   int threads)
{
    const int prefix = c.prefix[i];
    for (int k = thread; k < count && from + k < prefix; k += threads)
        place[k] = from + k;
    int at = prefix - from; // the position of a word's first bit, were it set
    for (int w = 0; w < c.words && at < count; w++) {
        const uint64_t bits = c.ancestors[(int64_t)i * c.words + w];
        for (int j = thread; j < 64; j += threads) {
            const int k = at + __popcll(bits & (((uint64_t)1 << j) - 1));
            if ((bits >> j & 1) != 0 && k >= 0 && k < count)
                place[k] = prefix + 64 * w + j;
        }
        at += __popcll(bits);
    }
}

__device__ inline float *partial_of(const struct attend_call &c, int i, int head, int split)
{
    return c.partial + (((int64_t)i * c.heads + head) * c.splits + split) * (c.head_dim + 2);
}

// What a split of (row, head) comes to at element d: the result if the row has no other, else a share of it. Of a row that
// sees nothing the first is put as well: zeros.
__device__ inline void put_sum(const struct attend_call &c, int i, int head, int d, int positions, float sum,
                               float most, float total)
{
    if (positions <= SPLIT) {
        c.out[((int64_t)i * c.heads + head) * c.head_dim + d] = positions > 0 ? sum * (1.0f / total) : 0;
        return;
    }
    float *p = partial_of(c, i, head, (int)blockIdx.z);
    p[d] = sum;
    if (d == 0) {
        p[c.head_dim] = most;
        p[c.head_dim + 1] = total;
    }
}

// Sets what a block takes that has room for so many queries, rows times heads. runs: of rows of one slot.
void attend_divide(struct attend_call *c, int runs, int queries);

// The same on tensor cores (attend_mma.cu): whether there is such a form; and its launch, of a call not yet divided.
bool attend_has_mma(enum type type, int head_dim);
void attend_mma(struct cuda *c, struct attend_call call, int runs);

} // namespace DEVICE_SPACE
