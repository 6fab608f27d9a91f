// grid.h - the arithmetic of chance that a processor and a GPU must do alike, bit for bit.
//
// Probabilities are whole numbers of 2^-52, in doubles: a sum of up to 2^53 of those is exact, so it is the same in
// whatever order it is taken, and reductions are free to have one of their own. What is left are functions of single
// numbers, written here in additions, multiplications and divisions alone, each rounded once (no compiler of this
// project contracts), for C and for CUDA.
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__) || defined(EMULATED)
#define GRID_FUNCTION static __host__ __device__ inline
#else
#define GRID_FUNCTION static inline
#endif

// x in [0, 1] on the grid, to the nearest, ties to even: between 1 and 2 that is where doubles are. Larger x: to where
// doubles are there.
GRID_FUNCTION double grid_of(double x)
{
    return x + 1 - 1;
}

// x in [0, 1] on the grid, or the next below. Rounded so, shares of a whole never add up to more than it, and what is
// missing can be given to the largest without changing who is larger.
GRID_FUNCTION double grid_below(double x)
{
    const double near = grid_of(x);
    return near > x ? near - 0x1p-52 : near;
}

// Weights from 0 to 1 that are no probabilities yet are summed in two parts, exactly, as long as they are no more than
// 2^20: in whole numbers of 2^-32, whose sum has no more than 53 bits, and what is left of them in whole numbers of 2^-65,
// whose sum has not either.
struct exact_sum {
    double whole, rest;
};

GRID_FUNCTION struct exact_sum grid_cut(double x)
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

// -log(1 - u) for 0 < u <= 1, off by less than 1e-15 of itself. 1 - u is y + c with y a double; y is m 2^e with m
// between sqrt(1/2) and sqrt(2); log m is 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172, whose series needs twelve
// terms; log(1 + c / y) is c / y. ln 2 is in two pieces, of which e times the first is exact.
GRID_FUNCTION double grid_wait(double u)
{
    const double y = 1 - u, c = 1 - y - u;
    uint64_t bits;
    if (y == 0)
        return 1 / y; // never
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
