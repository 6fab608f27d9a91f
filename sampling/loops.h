// loops.h - the loops over whole rows: logits, probabilities, uniforms. One source (loops.c), compiled once for each
// instruction set, with the same bits in every one.
//
// What a loop answers is a function of its row, not of the width of registers, and not of the order in which a sum is
// taken either, so that a GPU, which has an order of its own, can give the same answer. Two things do that. Probabilities
// are whole numbers of 2^-52: a double adds up to 2^53 of those without a rounding. And weights e^x before they are
// probabilities are summed in two parts, each without a rounding. Only e^x has multiplications fused with additions, on
// every processor (without an instruction for it: slowly).
//
// The grid takes a probability less than 2^-52 from where it would be, and gives what is missing to the likeliest: at most
// 1.1e-11 in total variation for a row of 49,152 tokens, where float rows have lost some 3e-8. What is less than 2^-52
// becomes impossible.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/grid.h"

enum { LOOP_STEP = 16 };

struct block { // what Philox makes 128 bits of: sampling/rng.h
    uint32_t key[2], counter[4];
};

struct loops {
    const char *name; // "plain", "avx2", "avx512"

    // Logits: (n) floats, in place; `max` is not below any of them.
    // NaN becomes -INFINITY, INFINITY the largest number; answers the largest, -INFINITY where nothing else is.
    float (*tidy)(float *x, int n);
    float (*largest)(const float *x, int n);
    void (*temperature)(float *x, int n, float max, double by); // x := (x - max) * by
    // x := e^(x - max), and the sum of these before they were rounded to floats. e^ is off by less than 1e-15 of itself;
    // 0 where it is below 2^-127.
    struct exact_sum (*exponentials)(float *x, int n, float max);
    struct exact_sum (*weights)(double *to, const float *x, int n, float max); // the same, unrounded
    void (*multiply)(double *w, int n, double by);                             // w := w * by, on the grid
    void (*scale)(float *x, int n, double by);                                 // the same
    void (*drop_below)(float *x, int n, double least);                         // x := -INFINITY where it is less
    // Where x is `least` or more, ascending: how many there are. Those that are one too many are not written.
    int (*places_from)(const float *x, int n, float least, int32_t *place, int capacity);

    // Probabilities: (n) doubles, on the grid; sums of such are exact.
    double (*copy)(double *to, const float *from, int n); // put onto it, and their sum
    double (*sum)(const double *w, int n);
    void (*divide)(double *w, int n,
                   double whole);          // w := w * (1 / whole) on the grid or the next below, 1 where w is the whole
    int (*argmax)(const double *w, int n); // the first of the largest
    double (*excess)(const double *p, const double *q, int n); // sum of (p - q)+
    void (*take_excess)(double *p, const double *q, int n);    // p := (p - q)+

    // The uniforms of a race (sampling/rng.h), from blocks `first` on whose counters differ in word 0 alone. u has room
    // for n rounded up to LOOP_STEP.
    void (*uniforms)(double *u, int n, struct block first);
    // The first i from `from` on with u[i] < by * w[i]; n: there is none.
    int (*first_below)(const double *u, const double *w, double by, int from, int n);
    // Of a row of n floats, ascending in index (room for n): all i with u[i] < bound * w[i], w on the grid, and some that nearly
    // are; no uniform is made for it. Answers how many.
    int (*early)(const float *w, int n, struct block first, double bound, int32_t *index);
};

extern const struct loops *const all_loops[]; // the best first; ends with NULL
bool loops_can(const struct loops *l);        // whether this processor can run them
const struct loops *loops(void);              // the best that it can
