// tails.c - chi-square and normal tails from the incomplete gamma function, Kolmogorov's from its two series.
#include "exact/tails.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

static const double pi = 3.14159265358979323846;

// log of x^a e^-x / Gamma(a), the common factor of both expansions of the incomplete gamma function.
static double front(double a, double x)
{
    return a * log(x) - x - lgamma(a);
}

// P(a, x) by its power series (DLMF 8.11.4): all terms positive, few of them while x < a + 1.
static double lower_gamma(double a, double x)
{
    double term = 1 / a, s = term;
    for (int k = 1; k < 100000 && term > s * DBL_EPSILON / 4; k++) {
        term *= x / (a + k);
        s += term;
    }
    return s * exp(front(a, x));
}

// log Q(a, x) by its continued fraction (DLMF 8.9.2, contracted), by Lentz's method; for x >= a + 1.
static double log_upper_gamma(double a, double x)
{
    double b = x + 1 - a, c = 1e300, d = 1 / b, f = d;
    for (int k = 1; k < 100000; k++) {
        double numerator = -k * (k - a);
        b += 2;
        d = 1 / (numerator * d + b);
        c = b + numerator / c;
        f *= c * d;
        if (fabs(c * d - 1) < DBL_EPSILON)
            break;
    }
    return front(a, x) + log(f);
}

double tail_chi_square(double x, double freedom)
{
    assert(freedom > 0);
    double a = freedom / 2;
    x /= 2;
    if (isnan(x))
        return NAN;
    if (x <= 0)
        return 0;
    if (isinf(x))
        return -INFINITY;
    return (x < a + 1 ? log1p(-lower_gamma(a, x)) : log_upper_gamma(a, x)) / log(10);
}

double tail_even(const double *count, int cells, double *chi)
{
    double n = 0;
    *chi = 0;
    for (int i = 0; i < cells; i++)
        n += count[i];
    const double expected = n / cells;
    for (int i = 0; i < cells; i++)
        *chi += (count[i] - expected) * (count[i] - expected) / expected;
    return tail_chi_square(*chi, cells - 1);
}

// The square of a normal variable is a chi-square one with one degree of freedom.
double tail_normal(double z)
{
    return tail_chi_square(z * z, 1);
}

// 2 sum (-1)^(k-1) exp(-2 k^2 x^2), which converges fast for large x and keeps its digits in the tail; below 1 the
// transformed theta function of the distribution itself, which converges fast for small x.
static double log_kolmogorov(double x)
{
    double s = 0;
    if (x < 1) {
        for (int k = 1; k < 10; k += 2)
            s += exp(-k * k * pi * pi / (8 * x * x));
        return log1p(-sqrt(2 * pi) / x * s);
    }
    for (int k = 1; k < 10; k++) // the series without its largest factor
        s += (k % 2 ? 1 : -1) * exp(-2 * (k * k - 1) * x * x);
    return log(2) - 2 * x * x + log(s);
}

// The limiting distribution at a distance corrected for finite n (Vrbik 2018): from n = 10 on the tail is accurate to 2
// %, and where it is small it errs on the large side. Stephens's well-known correction makes it too small there.
double tail_kolmogorov(double d, double n)
{
    assert(n > 0);
    double x = sqrt(n) * d;
    x += 1 / (6 * sqrt(n)) + (x - 1) / (4 * n);
    return isnan(x) ? NAN : x <= 0 ? 0 : fmin(0, log_kolmogorov(x)) / log(10);
}

double quantile_normal(double tail)
{
    assert(tail > 0 && tail < 1);
    if (tail > 0.5)
        return -quantile_normal(1 - tail);
    double low = 0, high = 40, wanted = log10(2 * tail);
    for (int i = 0; i < 100 && high - low > 1e-15 * high; i++) {
        double middle = low + (high - low) / 2;
        if (tail_normal(middle) > wanted)
            low = middle;
        else
            high = middle;
    }
    return low + (high - low) / 2;
}

struct place {
    double p;
    int at;
};

static int ascending(const void *a, const void *b)
{
    double x = ((const struct place *)a)->p, y = ((const struct place *)b)->p;
    return (x > y) - (x < y);
}

void holm(double *adjusted, const double *log10_p, int n)
{
    struct place *by_size = xcalloc((size_t)n + 1, sizeof(*by_size));
    int tests = 0;
    for (int i = 0; i < n; i++) {
        adjusted[i] = NAN;
        if (!isnan(log10_p[i]))
            by_size[tests++] = (struct place){ log10_p[i], i };
    }
    qsort(by_size, (size_t)tests, sizeof(*by_size), ascending);
    double max = -INFINITY;
    for (int i = 0; i < tests; i++) {
        max = fmax(max, fmin(0, by_size[i].p + log10(tests - i)));
        adjusted[by_size[i].at] = max;
    }
    free(by_size);
}

double tail_sum(double s, double variance, double width)
{
    double x = fabs(s) * width / variance;
    double h = x < 1e-3 ? x * x * (0.5 - x / 6 + x * x / 12) : (1 + x) * log1p(x) - x;
    return tail_normal(sqrt(2 * variance * h) / width);
}
