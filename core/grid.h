// grid.h - arithmetic on probabilities and random numbers that gives the same bits on a CPU and on a GPU.
//
// Probabilities are doubles that are integer multiples of 2^-52 ("the grid"). A sum of up to 2^53 such units is exact,
// so it does not depend on the order of summation, and each reduction may use its own order. The remaining functions
// take single numbers. They are written here, for C and for CUDA, in operations that round once each (no compiler of
// this project contracts).
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__) || defined(EMULATED)
#define GRID_FUNCTION static __host__ __device__ inline
#else
#define GRID_FUNCTION static inline
#endif

// Keeps nvcc from unrolling a loop: code that is run once is as slow as it is long.
#if defined(__CUDA_ARCH__) // not for the host compiler, which warns
#define GRID_ROLLED _Pragma("unroll 1")
#else
#define GRID_ROLLED
#endif

// Rounds x in [0, 1] to the grid, to nearest, ties to even: doubles between 1 and 2 are spaced by 2^-52. Larger x is
// rounded to the spacing of doubles at x + 1.
GRID_FUNCTION double grid_round(double x)
{
    return x + 1 - 1;
}

// Rounds x in [0, 1] down to the grid. Shares rounded down never add up to more than the whole, and the missing part
// can be added to the largest share without changing the order of the shares.
GRID_FUNCTION double grid_round_down(double x)
{
    const double near = grid_round(x);
    return near > x ? near - 0x1p-52 : near;
}

// Weights from 0 to 1 that are not normalized yet are summed exactly in two parts, for up to 2^20 weights: `whole` is a
// multiple of 2^-32, and `rest`, the remainder, is a multiple of 2^-65. Neither sum needs more than 53 bits.
struct exact_sum {
    double whole, rest;
};

GRID_FUNCTION struct exact_sum grid_split(double x)
{
    struct exact_sum s;
    s.whole = x + 0x1.8p20 - 0x1.8p20;
    s.rest = x - s.whole + 0x1.8p-13 - 0x1.8p-13;
    return s;
}

GRID_FUNCTION struct exact_sum grid_sum(struct exact_sum a, struct exact_sum b)
{
    a.whole += b.whole;
    a.rest += b.rest;
    return a;
}

GRID_FUNCTION double grid_total(struct exact_sum s)
{
    return s.whole + s.rest;
}

// The sums of a row of probabilities on a device, over ROW_PARTS parts of row_part(n) entries each. The last part may
// be shorter or empty.
enum { ROW_PARTS = 32 };
struct part_sum {
    double sum;
    int64_t positive; // number of its entries above 0
};
GRID_FUNCTION int row_part(int n)
{
    return (n + ROW_PARTS - 1) / ROW_PARTS;
}

// Maps a float to an integer such that integers compare as the floats do; -0 maps to the same integer as 0.
// grid_of_ordered is the inverse.
GRID_FUNCTION uint32_t grid_ordered(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

GRID_FUNCTION float grid_of_ordered(uint32_t bits)
{
    float x;
    bits = bits & 0x80000000u ? bits ^ 0x80000000u : ~bits;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

// e^x = 2^n e^r with |r| <= ln 2 / 2. n is rounded by adding 1.5 * 2^52, which leaves it in the last bits of the sum.
// ln 2 is split into two pieces such that n times the first is exact. e^r = 1 + r g(r), where g is the polynomial of
// degree 9 through (e^r - 1) / r at the Chebyshev nodes, so e^0 is 1. The constants: coefficients of g from r^0
// upwards; 1 / ln 2; the two pieces of ln 2; the smallest x, ln 2^-127.
#define GRID_EXP_SERIES \
    { \
        0x1.0000000000006p+0, 0x1.0000000000001p-1, 0x1.5555555550d79p-3, 0x1.5555555553d63p-5, 0x1.11111123c1f47p-7, \
            0x1.6c16c1788bd90p-10, 0x1.a01994bd214e7p-13, 0x1.a019b90d2ae7ap-16, 0x1.72e1150d0c9b6p-19, \
            0x1.289185613a3d6p-22 \
    }
#define GRID_EXP_PER_LN2 0x1.71547652b82fep+0
#define GRID_EXP_LN2 0x1.62e42fefa38p-1
#define GRID_EXP_LN2_REST 0x1.ef35793c7673p-45
#define GRID_EXP_MIN (-0x1.601e678fc457bp+6)

// Returns e^x for x <= 0, with a relative error below 1e-15; results below 2^-127 become 0. No other function here uses
// fused multiply-adds. sampling/logit_loops.c has the vector version.
GRID_FUNCTION double grid_exp(double x)
{
    const double g[] = GRID_EXP_SERIES;
    if (!(x >= GRID_EXP_MIN))
        return 0;
    const double shifted = fma(x, GRID_EXP_PER_LN2, 0x1.8p52), n = shifted - 0x1.8p52;
    const double r = fma(n, -GRID_EXP_LN2_REST, fma(n, -GRID_EXP_LN2, x));
    double p = g[9];
    for (int k = 8; k >= 0; k--)
        p = fma(p, r, g[k]);
    p = fma(p, r, 1.0);
    uint64_t bits, by;
    memcpy(&bits, &p, sizeof(bits));
    memcpy(&by, &shifted, sizeof(by));
    bits += by << 52;
    memcpy(&p, &bits, sizeof(p));
    return p;
}

// Returns -log(1 - u) for 0 < u <= 1, an exponential variate of rate 1 if u is uniform, with a relative error below
// 1e-15. 1 - u = y + c with y a double; y = m 2^e with m between sqrt(1/2) and sqrt(2); log m = 2 artanh(s), s = (m -
// 1) / (m + 1), |s| < 0.172, whose series needs twelve terms; log(1 + c / y) is taken as c / y. ln 2 is split into two
// pieces such that e times the first is exact.
GRID_FUNCTION double grid_exponential(double u)
{
    const double y = 1 - u, c = 1 - y - u;
    uint64_t bits;
    if (y == 0)
        return 1 / y; // infinity
    memcpy(&bits, &y, sizeof(bits));
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000;
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 0x1.6a09e667f3bcdp+0) { // sqrt(2)
        m *= 0.5;
        e++;
    }
    const double s = (m - 1) / (m + 1), z = s * s;
    double sum = 1.0 / 23;
    for (int k = 21; k > 1; k -= 2)
        sum = sum * z + 1.0 / k;
    const double log_m = 2 * s + 2 * s * (sum * z);
    return -(e * 0x1.62e42fefa38p-1 + (log_m + (e * 0x1.ef35793c7673p-45 + c / y)));
}

// ---- random numbers (core/philox.h)

// FOR_OWN is for a drafter whose tokens are not declared as drawn, but whose choice of drafts depends on draws.
enum purpose { FOR_DRAFT, FOR_ACCEPT, FOR_RESIDUAL, FOR_BONUS, FOR_TOKEN, FOR_OWN };
enum { GRID_NODE_SHIFT = 19, GRID_PURPOSE_SHIFT = 29 }; // fields of word 0 of the counter, see sampling/rng.h
