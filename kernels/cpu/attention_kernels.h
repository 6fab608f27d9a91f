// attend.h - attention and the cache's rows, compiled once for each instruction set.
//
// A job is a few rows of one slot that stand together, one kv head with the heads that share it, and one stretch of
// SPLIT positions. What a stretch comes to is kept apart and joined in order at the end, always, so neither the number of
// threads nor the length of a neighbour's text changes an order of summation. In a stretch, scores stand with sixteen
// positions to a register and are sums over the head's elements in order; values are added in the order of positions. A row
// sees its slot's prefix and then its own ancestors, wherever those lie: a path through a tree has the sums of a chain.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

struct layout;

enum { SPLIT = 256, BLOCK_MOST = 48 };

struct attend_block { // rows first .. first + n of the pass
    int first, n;
};

struct attend_call {
    float *out;                 // (n, heads * head_dim)
    const float *q;             // (n, heads * head_dim)
    struct tensor keys, values; // (slots * length, kv_heads * head_dim) F32, BF16 or Q8_0
    size_t row_bytes;           // of a row of either
    const struct layout *see;
    int heads, kv_heads, head_dim;
    const int32_t *positions, *dense; // (n) rows that a row sees; how many of them lie where their position says
    int splits;                       // that the longest row has; 1: partial is not used
    // (rows from row0 on, heads_kept from head0 on, splits, head_dim + 2): sums, largest score, sum of exponents
    float *partial;
    int row0, head0, heads_kept;
};

struct attention {
    // One stretch of a block; with splits == 1 straight into out. work: attention_scratch() bytes at a multiple of 64.
    void (*chunk)(const struct attend_call *c, struct attend_block b, int kv_head, int split, void *work);
    void (*join)(const struct attend_call *c, int row, int head); // a row's stretches, in order
};

// Bytes for `work` with so many queries (rows times heads that share a kv head): keys, values, scores, sums, queries, and
// two floats of each, as attention_kernels.c lays them out at most.
static inline size_t attention_scratch(int queries, int head_dim)
{
    size_t wide = ((size_t)head_dim + 15) / 16 * 16, q = (size_t)queries;
    return sizeof(float) * (32 * (size_t)head_dim + 64 * wide + q * (SPLIT + 32 + wide + (size_t)head_dim + 2));
}

static inline float *attend_partial(const struct attend_call *c, int row, int head, int split)
{
    int64_t of = (int64_t)(row - c->row0) * c->heads_kept + head - c->head0;
    return c->partial + (of * c->splits + split) * (c->head_dim + 2);
}
