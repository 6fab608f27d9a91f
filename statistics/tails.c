// tails.c - Kolmogorov's distribution by its two series, which GSL does not have, and corrections of the others.
#include "statistics/tails.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "statistics/statistics.h"

static const double pi = 3.14159265358979323846;

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
    if (!(variance > 0))
        return s == 0 ? 0 : -INFINITY;
    double x = fabs(s) * width / variance;
    if (x > 1e300) // or infinite: (1 + x) log(1 + x) - x without a product beyond the largest double
        return tail_normal(sqrt(2 * fabs(s) * width * (log(fabs(s) * width) - log(variance) - 1)) / width);
    double h = x < 1e-3 ? x * x * (0.5 - x / 6 + x * x / 12) : (1 + x) * log1p(x) - x;
    return tail_normal(sqrt(2 * variance * h) / width);
}
