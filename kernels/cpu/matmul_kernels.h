// matmul_kernels.h - the inner loops of matmul, rows times panels (matmul_*_kernels.c), compiled for each instruction
// set.
//
// Sixteen outputs occupy the lanes, so a sum never crosses lanes: each output of each row is one chain of operations
// over k in order, independent of the rest of the call. Only the register blocking (rows per chunk) depends on the
// call, and it affects speed only.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "kernels/backend.h"
#include "kernels/cpu/packed.h"

// The type to which rows are rounded before the product. PAIRS: bfloat16 for instructions that multiply pairs of them.
enum rounding { ROUND_NONE, ROUND_BF16, ROUND_PAIRS, ROUND_INT8, ROUNDINGS };

// Rounded rows in the order in which the loops read them: chunks of up to max_rows rows; within a chunk, all rows of
// the first k, then of the next.
//     NONE, BF16   float [k][rows]
//     PAIRS        two bfloat16 [k / 2][rows]
//     INT8         per group of 32 k, words [13][rows]: 8 quads of int8, -128 * their sum, the scale, scale * sum, and
//                  -128 * the sum of each half of the group
enum { INT8_WORDS = 13 };
struct rounded { // all rows of a pass, or a block of its chunks
    enum rounding rounding;
    int64_t n, k, words; // words: number of words of a row
    int chunks;
    const uint32_t *data; // (n, words) in total
    int64_t pass_rows;    // number of rows in the pass: the chunks are equal shares of them
    int pass_chunks, first_chunk;
};

// Returns the first row of a chunk, counted from the first row in x.
static inline int64_t chunk_first(const struct rounded *x, int chunk)
{
    return x->pass_rows * (x->first_chunk + chunk) / x->pass_chunks - x->pass_rows * x->first_chunk / x->pass_chunks;
}

// Returns block number `block` of `blocks`; *first: its first row.
static inline struct rounded rounded_block(const struct rounded *x, int block, int blocks, int64_t *first)
{
    const int from = x->chunks * block / blocks, to = x->chunks * (block + 1) / blocks;
    struct rounded part = *x;
    *first = chunk_first(x, from);
    part.n = chunk_first(x, to) - *first;
    part.chunks = to - from;
    part.first_chunk += from;
    part.data += *first * x->words;
    return part;
}

enum { MAX_PANELS = 2 };                 // maximum panels of one call
enum { TILE_GROUPS = 16, TILE_K = 128 }; // groups and numbers that are unpacked at a time, to stay in the L1 cache
struct tile {                            // workspace for unpacked scales and weights
    _Alignas(64) float scale[MAX_PANELS][TILE_GROUPS][2][PANEL], min[MAX_PANELS][TILE_GROUPS][PANEL];
    float weights[MAX_PANELS][TILE_K][PANEL];
};

// A panel, and the panel that is read after it (NULL: unknown), for prefetching.
struct panel {
    const uint8_t *data, *next;
};

// The loops for one or several roundings of the rows.
struct matmul_kernels {
    int max_rows, max_rows_single; // rows per chunk; rows that may form a single chunk
    // sums (count, x->n, PANEL) += x times `count` panels of the same shape
    void (*run)(float *sums, const struct packed *p, const struct panel *panel, int count, const struct rounded *x,
                struct tile *t);
};

struct matmul_row_kernels {
    // Rounds numbers from .. to of the rows x (rows, k) of a chunk. from: a multiple of GROUP; to: a multiple of GROUP,
    // or k.
    void (*round)(uint32_t *chunk, int rows, const float *x, int64_t k, int64_t from, int64_t to,
                  enum rounding rounding);
    // Writes a panel's sums to columns first .. first + width of out (n, m).
    void (*write)(float *out, int64_t m, int64_t first, int width, const float *sums, int64_t n, const float *bias,
                  bool add);
    // Writes f(gate) * up to these columns.
    void (*write_gated)(float *out, int64_t m, int64_t first, int width, const float *gate, const float *up, int64_t n,
                        enum gate_function f);
};
