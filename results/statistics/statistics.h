// statistics.h - tails and quantiles of distributions, and least squares, by GSL.
//
// A tail is a log10: 10^-400 is no double, but its log10 is. The log10 of a tail of 0 is -INFINITY.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Domains are asserted: freedom > 0, 0 < tail < 1, 0 < probability < 1. The tail of x or z = NAN is NAN.
double tail_chi_square(double x, double freedom); // probability of x or more
double tail_normal(double z);                     // probability of |z| or more, two-sided

// Tests counts of two or more equally probable cells against uniformity by chi-square. *chi: the statistic; NAN without
// counts.
double tail_even(const double *count, int cells, double *chi);
// Returns the tail of a sum s of many independent terms of mean 0, none beyond width. A normal tail is too small for
// few rare events, whose distribution is Poisson. This is the normal tail of the signed root of Bennett's exponent
// (Bennett 1962): it is within a few percent of a Poisson tail, and equals the normal one if the variance is many times
// the square of the width. width > 0. A variance of 0 means that all terms are 0, so any other sum has the tail 0.
double tail_sum(double s, double variance, double width);
// Returns the tail of a largest distance of d or more between n > 0 points and their distribution.
double tail_kolmogorov(double d, double n);

// Applies Holm's correction (1979): the probability that any true null hypothesis among n is rejected remains below a
// level, for any dependence between the tests. A hypothesis is rejected if adjusted[i] is below log10 of the level.
// NAN: not a test.
void holm(double *adjusted, const double *log10_p, int n);

// ---- quantiles and least squares

double quantile_normal(double tail);                   // the z that is exceeded, on one side, with this probability
double quantile_t(double probability, double freedom); // a quantile of Student's t

// x (terms): minimises |a x - b|, with a (rows, terms) and b (rows), rows >= terms > 0, by QR decomposition. Returns
// false, and leaves x unchanged, if a column depends on those before it within 1e-12 of its length.
bool least_squares(double *x, const double *a, const double *b, size_t rows, size_t terms);

// Uniform integers for resampling, by the Mersenne Twister: equal seeds give equal numbers everywhere.
struct uniform_source;
struct uniform_source *uniform_source_create(unsigned long seed);
void uniform_source_destroy(struct uniform_source *u);
size_t uniform_below(struct uniform_source *u, size_t n); // a number from 0 to n - 1, n < 2^32

double select_smallest(double *x, size_t n, size_t k); // the k-th smallest of n, from 0; reorders x; no NANs

// The median, quartiles and extremes of repeated measurements.
struct spread {
    int n;                                 // number of measurements; 0: all other fields are NAN
    double median, low, high, least, most; // low, high: quartiles, by linear interpolation between neighbours
};

struct spread spread_of(const double *x, int n); // NANs in x are skipped
