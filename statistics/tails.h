// tails.h - tail probabilities of test statistics, as log10 (statistics.h), and Holm's correction for many tests.
#pragma once

// Chi-square test of counts of two or more equally probable cells against uniformity. *chi: the statistic; without counts NAN.
double tail_even(const double *count, int cells, double *chi);
// Of a sum s of many independent terms of mean 0, none beyond width: a normal tail is too small for few rare events,
// whose distribution is Poisson. This is the normal tail of the signed root of Bennett's exponent (Bennett 1962):
// within a few percent of a Poisson tail, and the normal one where the variance is many times the square of the width.
// width > 0. A variance of 0: all terms are 0, so that of a sum beside 0 the tail is 0.
double tail_sum(double s, double variance, double width);
// Of a largest distance of d or more between n > 0 points and their distribution.
double tail_kolmogorov(double d, double n);

// Holm's correction (1979): the probability that any true null hypothesis among n is rejected stays below a level, for
// any dependence between the tests. Rejected are those with adjusted[i] below log10 of the level. NAN: not a test.
void holm(double *adjusted, const double *log10_p, int n);
