// distributions.h - tails and quantiles by Boost.Math; random numbers and selection by the C++ library.
//
// A tail is a log10: 10^-400 is no double, but its log10 is. The log10 of a tail of 0 is -INFINITY.
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Domains are asserted: freedom > 0, 0 < tail < 1, 0 < probability < 1. The tail of x or z = NAN is NAN.
double tail_chi_square(double x, double freedom); // probability of x or more
double tail_normal(double z);                     // probability of |z| or more, two-sided

double quantile_normal(double tail);                   // the z that is exceeded, on one side, with this probability
double quantile_t(double probability, double freedom); // a quantile of Student's t

// Uniform integers for resampling, by the Mersenne Twister: equal seeds give equal numbers everywhere.
struct uniform_source;
struct uniform_source *uniform_source_create(unsigned seed);
void uniform_source_destroy(struct uniform_source *u);
size_t uniform_below(struct uniform_source *u, size_t n); // a number from 0 to n - 1, n < 2^32

double select_smallest(double *x, size_t n, size_t k); // the k-th smallest of n, from 0; reorders x; no NANs

#ifdef __cplusplus
}
#endif
