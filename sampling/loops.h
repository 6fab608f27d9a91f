// loops.h - vectorized loops over whole rows: logits, probabilities, uniforms. Each group has one source, which is
// compiled once per instruction set, and all versions give the same bits.
//
// The result of a loop is a function of its row. It does not depend on the width of registers or on the order of
// summation, so a GPU, which sums in another order, gives the same result. This holds for two reasons. Probabilities
// are integer multiples of 2^-52: a double adds up to 2^53 of these units without rounding. Weights e^x, before they
// are probabilities, are summed in two parts, each without rounding. Only e^x uses fused multiply-adds, on every
// processor (slowly where there is no instruction for it).
//
// Rounding to the grid moves less than 2^-52 of probability per token, and the most probable token receives the
// difference: at most 1.1e-11 in total variation for a row of 49,152 tokens, where float rows lose about 3e-8.
// Probabilities below 2^-52 become 0.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/grid.h"

enum { LOOP_STEP = 16 };

struct block { // key and counter of a Philox block: sampling/rng.h
    uint32_t key[2], counter[4];
};

// Logits: (n) floats, in place; `max` is an upper bound of x. (logit_loops.c)
struct logit_loops {
    // NaN becomes -INFINITY, INFINITY becomes FLT_MAX; returns the largest logit.
    float (*sanitize)(float *x, int n);
    float (*largest)(const float *x, int n);
    void (*temperature)(float *x, int n, float max, double by); // x := (x - max) * by
    // x := e^(x - max); returns the sum of the exponentials before they are rounded to floats. The relative error of e^
    // is below 1e-15; results below 2^-127 become 0.
    struct exact_sum (*exponentials)(float *x, int n, float max);
    struct exact_sum (*weights)(double *to, const float *x, int n, float max); // weights written as doubles
    void (*scale)(float *x, int n, double by);                                 // x := x * by, rounded to the grid
    void (*drop_below)(float *x, int n, double min);                           // x := -INFINITY where x < min
    // Writes the indices with x >= min, ascending, up to capacity; returns how many there are in total.
    int (*find_at_least)(const float *x, int n, float min, int32_t *index, int capacity);
};

// Probabilities: (n) doubles on the grid, whose sums are exact. (probability_loops.c)
struct probability_loops {
    double (*copy)(double *to, const float *from, int n); // rounds to the grid; returns the sum
    double (*sum)(const double *w, int n);
    void (*multiply)(double *w, int n, double by); // w := w * by, rounded to the grid
    // w := w * (1 / sum), rounded down to the grid; exactly 1 where w == sum
    void (*divide)(double *w, int n, double sum);
    int (*argmax)(const double *w, int n);                     // the first of the largest
    double (*excess)(const double *p, const double *q, int n); // sum of (p - q)+
    void (*take_excess)(double *p, const double *q, int n);    // p := (p - q)+
};

// An exponential race (sampling/rng.h). Its uniforms come from consecutive blocks beginning with `first`: counters
// differ in word 0 alone. (race_loops.c)
struct race_loops {
    void (*uniforms)(double *u, int n, struct block first); // the capacity of u is n rounded up to LOOP_STEP
    // Returns the first i >= from with u[i] < by * w[i]; n: there is none.
    int (*first_below)(const double *u, const double *w, double by, int from, int n);
    // Race candidates of a row of floats: writes to index (n), ascending, all i with u[i] < bound * w[i], w rounded to
    // the grid, and some i just above that bound; returns how many. It compares 24 bits of u and makes no full
    // uniforms.
    int (*candidates)(const float *w, int n, struct block first, double bound, int32_t *index);
};

struct loops {        // all loops for one instruction set
    const char *name; // "plain", "avx2", "avx512"
    const struct logit_loops *logits;
    const struct probability_loops *probabilities;
    const struct race_loops *race;
};

extern const struct loops *const all_loops[]; // fastest first; ends with NULL
bool loops_supported(const struct loops *l);  // returns whether this processor supports them
const struct loops *loops(void);              // the fastest that this processor supports (choose.c)
