#include "results/statistics/statistics.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "results/statistics/distributions.h"

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

// Returns the log of Kolmogorov's tail by its two series: 2 sum (-1)^(k-1) exp(-2 k^2 x^2),
// which converges fast for large x and keeps its digits in the tail; below 1 the transformed theta function of the
// distribution itself, which converges fast for small x.
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

// This is the limiting distribution at a distance corrected for finite n (Vrbik 2018). From n = 10 on the tail is
// accurate to 2 %, and where it is small it errs on the large side. Stephens's well-known correction makes it too small
// there.
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

static int by_tail(const void *a, const void *b)
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
    qsort(by_size, (size_t)tests, sizeof(*by_size), by_tail);
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
    if (x > 1e300) // or infinite; otherwise (1 + x) log(1 + x) - x, without a product beyond the largest double
        return tail_normal(sqrt(2 * fabs(s) * width * (log(fabs(s) * width) - log(variance) - 1)) / width);
    double h = x < 1e-3 ? x * x * (0.5 - x / 6 + x * x / 12) : (1 + x) * log1p(x) - x;
    return tail_normal(sqrt(2 * variance * h) / width);
}

// ---- least squares

static double product(const double *x, const double *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

// Takes the part along q (unit length) from y and returns its length.
static double project(double *y, const double *q, size_t n)
{
    const double along = product(y, q, n);
    for (size_t i = 0; i < n; i++)
        y[i] -= along * q[i];
    return along;
}

bool least_squares(double *x, const double *a, const double *b, size_t rows, size_t terms)
{
    assert(rows >= terms && terms > 0);
    double *q = xcalloc((terms + 1) * rows, sizeof(*q)), *r = xcalloc(terms * terms, sizeof(*r)),
           *y = xcalloc(terms, sizeof(*y));
    double *right = q + terms * rows;
    memcpy(right, b, rows * sizeof(*b));
    bool ok = true;
    for (size_t k = 0; k < terms && ok; k++) {
        double *column = q + k * rows;
        for (size_t i = 0; i < rows; i++)
            column[i] = a[i * terms + k];
        const double all = sqrt(product(column, column, rows));
        for (size_t j = 0; j < k; j++)
            r[j * terms + k] = project(column, q + j * rows, rows);
        const double own = sqrt(product(column, column, rows));
        ok = own > 1e-12 * all;
        for (size_t i = 0; i < rows && ok; i++)
            column[i] /= own;
        r[k * terms + k] = own;
        y[k] = project(right, column, rows);
    }
    for (size_t k = terms; ok && k-- > 0;) {
        x[k] = y[k];
        for (size_t j = k + 1; j < terms; j++)
            x[k] -= r[k * terms + j] * x[j];
        x[k] /= r[k * terms + k];
    }
    free(y);
    free(r);
    free(q);
    return ok;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Returns the p-quantile of sorted numbers, by linear interpolation.
static double quantile(const double *x, int n, double p)
{
    double at = p * (n - 1);
    int below = (int)at, above = below + 1 < n ? below + 1 : below;
    return x[below] + (at - below) * (x[above] - x[below]);
}

struct spread spread_of(const double *x, int n)
{
    struct spread s = { 0, NAN, NAN, NAN, NAN, NAN };
    double *sorted = xcalloc((size_t)n + 1, sizeof(*sorted));
    for (int i = 0; i < n; i++)
        if (!isnan(x[i]))
            sorted[s.n++] = x[i];
    qsort(sorted, (size_t)s.n, sizeof(*sorted), ascending);
    if (s.n > 0)
        s = (struct spread){ s.n,
                             quantile(sorted, s.n, 0.5),
                             quantile(sorted, s.n, 0.25),
                             quantile(sorted, s.n, 0.75),
                             sorted[0],
                             sorted[s.n - 1] };
    free(sorted);
    return s;
}
