// statistics.h - tails and quantiles of distributions, and least squares; by GSL.
//
// A tail is a log10: 10^-400 is no double, but its log10 is. The log10 of a tail of 0 is -INFINITY.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Domains are asserted: freedom > 0, 0 < tail < 1, 0 < probability < 1. Of x or z = NAN the tail is NAN.
double tail_chi_square(double x, double freedom);      // of x or more
double tail_normal(double z);                          // of |z| or more, two-sided
double quantile_normal(double tail);                   // the z that is exceeded, on one side, with this probability
double quantile_t(double probability, double freedom); // of Student's t

// x (terms): minimises |a x - b|, with a (rows, terms) and b (rows), rows >= terms > 0, by QR decomposition. Returns false, and leaves
// x as it is, if a column depends on those before it within 1e-12 of its length.
bool least_squares(double *x, const double *a, const double *b, size_t rows, size_t terms);

// Uniform integers for resampling, by the Mersenne Twister: the same seed gives the same numbers everywhere.
struct uniform_source;
struct uniform_source *uniform_source_create(unsigned long seed);
void uniform_source_destroy(struct uniform_source *u);
size_t uniform_below(struct uniform_source *u, size_t n); // from 0 to n - 1, n < 2^32

double select_smallest(double *x, size_t n, size_t k); // the k-th smallest of n, from 0; reorders x; no NANs
