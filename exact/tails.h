// tails.h - how often chance alone gives at least this much: tails of the three laws that the tests of evidence.h refer
// to, as log10. A token that cannot be has a tail of 0, whose log10 is -INFINITY; what lies at 10^-400 is no double,
// but its log10 is.
#pragma once

double tail_chi_square(double x, double freedom); // of x or more
// Of counts of so many cells that are equally likely: as far from even as these, or farther. chi: the statistic.
double tail_even(const double *count, int cells, double *chi);
double tail_normal(double z); // of z or more, to either side
// Of a sum s of many independent parts of mean 0, none of them beyond width: a normal tail promises too much of few
// rare events, whose law is Poisson's. That of the signed root of Bennett's exponent (Bennett 1962) does not: it is a
// Poisson tail's to a few percent, and the normal one again where the variance is many times the square of the width.
double tail_sum(double s, double variance, double width);
double tail_kolmogorov(double d, double n); // of a greatest distance of d or more between n points and their law
double quantile_normal(double tail);        // the z that is exceeded, to one side, with this probability

// Holm (1979): which of n tests may be believed if the chance of believing any one wrongly is to stay below a level.
// Those with adjusted[i] below log10 of the level. The tests may depend on each other in any way. NAN is no test.
void holm(double *adjusted, const double *log10_p, int n);
