// attention_kernels.h - the inner loops of attention, compiled once for each instruction set.
//
// A part is a block of consecutive rows of one slot, kv heads with the query heads that share them (GQA), and one split
// of SPLIT positions (split-KV, as in FlashDecoding). Partial results of splits are always stored separately and
// combined in order at the end, so neither the number of threads nor the length of a neighbour's sequence changes an
// order of summation. Within a split, scores are computed for sixteen positions per register and summed over the
// elements of the head in order; values are added in the order of positions. A row attends to its slot's prefix and
// then to its own ancestors, wherever they are in the cache: a path through a draft tree has the sums of a chain.
// Weights before a row's window are 0, so the bits do not depend on how much of the split other rows see.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "kernels/backend.h"

enum { SPLIT = SHORT_UNIT, MAX_PART_QUERIES = 48 };

struct attend_part {
    int first, n;          // rows first .. first + n of the pass, all of one slot
    int kv_head, kv_heads; // kv heads kv_head .. kv_head + kv_heads
    int split;
};

struct attend_call {
    float *out;                 // (n, heads * head_dim)
    const float *q;             // (n, heads * head_dim)
    struct tensor keys, values; // (slots * length, kv_heads * head_dim) F32, BF16 or Q8_0
    size_t row_bytes;           // bytes of a cache row of keys or of values
    const struct layout *layout;
    int heads, kv_heads, head_dim;
    float scale, cap; // scale and cap of struct attention, resolved
    int window;
    const int32_t *positions, *dense; // (n) positions of each row; how many are in the cache row of their position
    int splits;                       // splits of the longest row; 1: partial is not used
        // (rows from row0, n_heads from head0, splits, head_dim + 2): weighted sums of values, maximum score, sum of
        // exponentials
    float *partial;
    int row0, head0, n_heads;
};

struct attention_kernels {
    // Writes to c->out if splits == 1, else to c->partial. work: attention_scratch() bytes, aligned to 64.
    void (*run_split)(const struct attend_call *c, const struct attend_part *t, void *work);
    void (*combine)(const struct attend_call *c, int row, int head); // combines a row's splits, in order
};

// Returns the size of `work` in bytes. queries: rows times the part's heads. It is an upper bound of what scratch_of()
// of attention_kernels.c needs for keys, values, scores, sums, queries, and two floats per query.
static inline size_t attention_scratch(int queries, int head_dim)
{
    size_t padded = ((size_t)head_dim + 15) / 16 * 16, q = (size_t)queries;
    return sizeof(float) * (32 * (size_t)head_dim + 64 * padded + q * (SPLIT + 32 + padded + (size_t)head_dim + 2));
}

// Returns the first position that a row sees, with or without a window.
static inline int attend_first(const struct attend_call *c, int row)
{
    return c->window > 0 && c->positions[row] > c->window ? c->positions[row] - c->window : 0;
}

static inline float *attend_partial(const struct attend_call *c, int row, int head, int split)
{
    int64_t of = (int64_t)(row - c->row0) * c->n_heads + head - c->head0;
    return c->partial + (of * c->splits + split) * (c->head_dim + 2);
}
