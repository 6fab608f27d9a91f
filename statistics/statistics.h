// statistics.h - tails and quantiles of distributions, and least squares; by GSL.
//
// A tail is a log10: 10^-400 is no double, but its log10 is. The log10 of a tail of 0 is -INFINITY.
#pragma once
#include <stddef.h>

double tail_chi_square(double x, double freedom);      // of x or more
double tail_normal(double z);                          // of |z| or more, two-sided
double quantile_normal(double tail);                   // the z that is exceeded, on one side, with this probability
double quantile_t(double probability, double freedom); // of Student's t

// x (terms): minimises |a x - b|, with a (rows, terms) of independent columns and b (rows), by QR decomposition.
void least_squares(double *x, const double *a, const double *b, size_t rows, size_t terms);
