// matmul_kernels.h - rows times panels: the inner loops of matmul, compiled once for each instruction set.
//
// Sixteen outputs stand in the lanes, so a sum never crosses lanes: every output of every row is one chain of operations
// over k in order, whatever else is in the call. What does depend on the call, and on nothing but speed, is how many
// rows are in registers together.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "kernels/cpu/packed.h"

// What a row is rounded to before it is multiplied. PAIRS: bfloat16 for instructions that multiply pairs of them.
enum rounding { ROUND_NONE, ROUND_BF16, ROUND_PAIRS, ROUND_INT8, ROUNDINGS };

// Rows in the order in which the loops read them: chunks of up to `most` rows, in a chunk k by k, of each k all rows.
//     NONE, BF16   float [k][rows]
//     PAIRS        two bfloat16 [k / 2][rows]
//     INT8         for each group of 32 k, words [13][rows]: 8 quads of bytes, -128 times their sum, the scale, the scale
//                  times the sum, and -128 times the sums of the group's two halves
enum { INT8_WORDS = 13 };
struct rounded {
    enum rounding how;
    int64_t n, k, words; // words of a row
    int chunks;
    const uint32_t *data; // (n, words) in all
};

static inline int64_t chunk_first(const struct rounded *x, int chunk)
{
    return x->n * chunk / x->chunks;
}

enum { PANELS = 2 }; // at most so many in one call
// Room for what is unpacked of so many panels at a time.
struct tile {
    _Alignas(64) float scale[PANELS][16][2][PANEL], least[PANELS][16][PANEL];
    float spread[PANELS][128][PANEL];
};

// A panel, and what will be read after it (NULL: not known), which is asked for in time.
struct panel {
    const uint8_t *data, *then;
};

struct products {
    bool pairs;                            // bfloat16 weights and rows go through ROUND_PAIRS
    int most[ROUNDINGS], alone[ROUNDINGS]; // rows of a chunk; of one that is alone
    // The rows x (rows, k) of a chunk, numbers from .. to of each; from: a multiple of GROUP; to: that, or k
    void (*round)(uint32_t *chunk, int rows, const float *x, int64_t k, int64_t from, int64_t to, enum rounding how);
    // sums (count, x->n, PANEL) = x times `count` panels, all packed alike
    void (*run)(float *sums, const struct packed *p, const struct panel *panel, int count, const struct rounded *x,
                struct tile *t);
    // A panel's sums to out (n, m) from column `first` on, `wide` of them.
    void (*put)(float *out, int64_t m, int64_t first, int wide, const float *sums, int64_t n, const float *bias,
                bool add);
    void (*put_gated)(float *out, int64_t m, int64_t first, int wide, const float *gate, const float *up, int64_t n);
};
