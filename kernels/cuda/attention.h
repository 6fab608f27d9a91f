// attention.h - the arguments of an attention call, and how its kernels divide it among blocks. For attention*.cu only.
//
// A block computes consecutive rows of one slot, heads that share a kv head, and one split: SPLIT positions (split-KV, as in
// FlashDecoding). Splits begin at multiples of SPLIT for every row, and their partial results are combined in order.
//
// A row attends to its slot's prefix and then to its own ancestors, wherever they lie in the cache. Its positions are these in
// order, so a path through a draft tree has the same sums as a chain. The first `dense` positions lie in the cache row of
// their position, and rows share what is read there; the others are found from the row's ancestor mask.
#pragma once
#include "kernels/cuda/cuda.h"

namespace DEVICE_SPACE
{

constexpr int SPLIT = 256;

struct attend_call {
    float *out;                   // (n, heads * head_dim)
    const float *q;               // (n, heads * head_dim)
    const uint8_t *keys, *values; // (slots * length, kv_heads * head_dim) of the cache's type
    size_t row_bytes;             // of a cache row of keys or of values
    int n, words, length;         // as in struct layout
    const int32_t *slot, *prefix; // (n)
    const uint64_t *ancestors;    // (n, words)
    int heads, kv_heads, head_dim;
    float scale;     // of scores
    int rows;        // maximum per block
    int row_blocks;  // upper bound of the number of row blocks
    int block_heads; // maximum heads per block
    int head_blocks; // blocks per kv head
    int splits;      // upper bound, for the longest row
    // (n, heads, splits, head_dim + 2): weighted sums of values, maximum score, sum of exponentials; of rows with several splits
    float *partial;
};

struct share {                // the work of a block
    int first, rows;          // of the pass; rows 0: the block has no work
    int kv_head, head, heads; // heads from `head` on
    int64_t base;             // the slot's first row in the cache
    int start;                // first position
};

// Whether a row block starts at row i: at multiples of c.rows, and where the slot changes. Padding rows belong to the block before.
__device__ inline bool starts_block(const struct attend_call &c, int i)
{
    return i < c.n && (i % c.rows == 0 || (c.slot[i] != c.slot[i - 1] && c.slot[i] >= 0));
}

// The first row of row block `number`; n if there are fewer blocks. Called by all lanes of a warp together.
__device__ inline int first_row(const struct attend_call &c, int number)
{
    if (c.row_blocks == (c.n + c.rows - 1) / c.rows)
        return number * c.rows;
    const int lane = threadIdx.x % WARP;
    for (int i = 0; i < c.n; i += WARP) {
        uint32_t starts = __ballot_sync(0xFFFFFFFF, starts_block(c, i + lane));
        const int count = __popc(starts);
        if (number < count) {
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
    const int group = c.heads / c.kv_heads, block_heads = (int)blockIdx.y % c.head_blocks;
    a.first = first_row(c, (int)blockIdx.x);
    for (a.rows = 0; a.first + a.rows < c.n && (a.rows == 0 || !starts_block(c, a.first + a.rows));)
        a.rows++;
    a.kv_head = (int)blockIdx.y / c.head_blocks;
    a.head = a.kv_head * group + block_heads * c.block_heads;
    a.heads = min(c.block_heads, group - block_heads * c.block_heads);
    a.base = (int64_t)c.slot[min(a.first, c.n - 1)] * c.length;
    a.start = (int)blockIdx.z * SPLIT;
    return a;
}

// Number of positions that row i attends to.
__device__ inline int positions_of(const struct attend_call &c, int i)
{
    int positions = c.prefix[i];
    for (int w = 0; w < c.words; w++)
        positions += __popcll(c.ancestors[(int64_t)i * c.words + w]);
    return positions;
}

// Number of these that lie in the cache row of their position: the prefix, and pending rows from the first on without a gap.
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

// place (count) = the slot's cache rows of positions from .. from + count of row i, as far as row i has them. Computed by
// `threads` threads together.
__device__ inline void find_places(const struct attend_call &c, int i, int from, int count, int32_t *place, int thread,
                                   int threads)
{
    const int prefix = c.prefix[i];
    for (int k = thread; k < count && from + k < prefix; k += threads)
        place[k] = from + k;
    int at = prefix - from; // index in place of the word's first bit, if set
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

// Writes element d of a split's result for (row, head): to out if it is the row's only split, else to partial. Rows without
// positions are written as zeros.
__device__ inline void write_sum(const struct attend_call &c, int i, int head, int d, int positions, float sum,
                                 float max_score, float total)
{
    if (positions <= SPLIT) {
        c.out[((int64_t)i * c.heads + head) * c.head_dim + d] = positions > 0 ? sum * (1.0f / total) : 0;
        return;
    }
    float *p = partial_of(c, i, head, (int)blockIdx.z);
    p[d] = sum;
    if (d == 0) {
        p[c.head_dim] = max_score;
        p[c.head_dim + 1] = total;
    }
}

// Sets the division into blocks of at most `queries` queries (rows times heads). runs: number of runs of rows of one slot.
void attention_divide(struct attend_call *c, int runs, int queries);

// Attention on tensor cores (attention_mma.cu): whether it supports a cache type and head size; and its launch.
bool attention_has_mma(enum type type, int head_dim);
void attention_mma(struct cuda *c, struct attend_call call, int runs);

} // namespace DEVICE_SPACE
