// statistics.h - tests (their tails as log10, as in distributions.h), Holm's correction, least squares, spread.
#pragma once
#include <stdbool.h>
#include <stddef.h>

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

// x (terms): minimises |a x - b|, with a (rows, terms) and b (rows), rows >= terms > 0, by QR decomposition (modified
// Gram-Schmidt with b as the last column: Bjorck 1967). Returns
// false, and leaves x unchanged, if a column depends on those before it within 1e-12 of its length.
bool least_squares(double *x, const double *a, const double *b, size_t rows, size_t terms);

// The median, quartiles and extremes of repeated measurements.
struct spread {
    int n;                                 // number of measurements; 0: all other fields are NAN
    double median, low, high, least, most; // low, high: quartiles, by linear interpolation between neighbours
};

struct spread spread_of(const double *x, int n); // NANs in x are skipped
