// intervals.c - a ratio of ratios of sums, with the prompt as the unit of replication.
//
// It is linearised: the relative error of a sum is the sum of the prompts' contributions, so a prompt's influence
// on the result is a difference of its shares. Cochran, Sampling Techniques, 3rd ed., section 6.4 (with n - 1 for n,
// and t for z). The nominal 95 % interval covers the truth in 95.3 % of 4,000 trials (tests/results/test_statistics.c).
#include "statistics/intervals.h"

#include <math.h>

#include "statistics/statistics.h"

static double sum(const double *x, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

// t times the standard error of a sum of n influences with this sum of squares.
static double half_width(double squares, size_t n)
{
    return quantile_t(0.975, (double)n - 1) * sqrt((double)n / ((double)n - 1) * squares);
}

struct interval ratio_of_ratios(const double *a, const double *b, const double *c, const double *d, size_t n)
{
    double A = sum(a, n), B = sum(b, n), C = sum(c, n), D = sum(d, n), squares = 0;
    if (!(A > 0 && B > 0 && C > 0 && D > 0))
        return (struct interval){ NAN, NAN, NAN };
    double ratio = (A / B) / (C / D);
    if (n < 2)
        return (struct interval){ ratio, NAN, NAN };
    for (size_t i = 0; i < n; i++) {
        double u = a[i] / A - b[i] / B - c[i] / C + d[i] / D;
        squares += u * u;
    }
    double half = half_width(squares, n);
    return (struct interval){ ratio, ratio * exp(-half), ratio * exp(half) };
}
