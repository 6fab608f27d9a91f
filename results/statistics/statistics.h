// statistics.h - tails and quantiles of distributions, and least squares; by GSL.
//
// A tail is a log10: 10^-400 is no double, but its log10 is. The log10 of a tail of 0 is -INFINITY.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Domains are asserted: freedom > 0, 0 < tail < 1, 0 < probability < 1. Of x or z = NAN the tail is NAN.
double tail_chi_square(double x, double freedom); // of x or more
double tail_normal(double z);                     // of |z| or more, two-sided

// Chi-square test of counts of two or more equally probable cells against uniformity. *chi: the statistic; without counts NAN.
double tail_even(const double *count, int cells, double *chi);
// Tail of a sum s of many independent terms of mean 0, none beyond width: a normal tail is too small for few rare events,
// whose distribution is Poisson. This is the normal tail of the signed root of Bennett's exponent (Bennett 1962):
// within a few percent of a Poisson tail, and the normal one where the variance is many times the square of the width.
// width > 0. A variance of 0: all terms are 0, so that of a sum beside 0 the tail is 0.
double tail_sum(double s, double variance, double width);
// Tail of a largest distance of d or more between n > 0 points and their distribution.
double tail_kolmogorov(double d, double n);

// Holm's correction (1979): the probability that any true null hypothesis among n is rejected stays below a level, for
// any dependence between the tests. Rejected are those with adjusted[i] below log10 of the level. NAN: not a test.
void holm(double *adjusted, const double *log10_p, int n);

// ---- quantiles and least squares

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

// Median, quartiles and extremes of repeated measurements.
struct spread {
    int n;                                 // measurements; 0: all other fields are NAN
    double median, low, high, least, most; // low, high: quartiles, by linear interpolation between neighbours
};

struct spread spread_of(const double *x, int n); // NANs in x are skipped
