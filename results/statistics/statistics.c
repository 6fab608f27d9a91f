// statistics.c - the only file that includes GSL (under the GPL: libspeclab.a does not contain this file).
#include "results/statistics/statistics.h"

#include <assert.h>
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_statistics_double.h>
#include <gsl/gsl_sf_gamma.h>
#include <gsl/gsl_sf_hyperg.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/memory.h"

// GSL ends the program at an error, underflow included, unless it is told to return.
__attribute__((constructor)) static void return_errors(void)
{
    gsl_set_error_handler_off();
}

// Returns log Q(a, x) where Q is below the smallest double: Q = x^a e^-x U(1, 1 + a, x) / Gamma(a) (DLMF 8.5.3).
static double log_upper_gamma(double a, double x)
{
    return a * log(x) - x - gsl_sf_lngamma(a) + log(gsl_sf_hyperg_U(1, 1 + a, x));
}

double tail_chi_square(double x, double freedom)
{
    assert(freedom > 0);
    if (isnan(x))
        return NAN;
    if (x <= 0)
        return 0;
    if (isinf(x))
        return -INFINITY;
    double q = gsl_cdf_chisq_Q(x, freedom);
    double log_q = q > 0.5      ? log1p(-gsl_cdf_chisq_P(x, freedom))
                   : q > 1e-290 ? log(q)
                                : log_upper_gamma(freedom / 2, x / 2);
    return log_q / log(10);
}

// The square of a normal variable is a chi-square one with one degree of freedom.
double tail_normal(double z)
{
    return tail_chi_square(z * z, 1);
}

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

// Returns the log of Kolmogorov's tail by its two series, which GSL does not have: 2 sum (-1)^(k-1) exp(-2 k^2 x^2),
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

// ---- quantiles and least squares

double quantile_normal(double tail)
{
    assert(tail > 0 && tail < 1);
    return gsl_cdf_ugaussian_Qinv(tail);
}

double quantile_t(double probability, double freedom)
{
    assert(probability > 0 && probability < 1 && freedom > 0);
    return gsl_cdf_tdist_Pinv(probability, freedom);
}

// Returns whether no column is shorter than 1e-12 of its length after projection on those before it: R's diagonal is
// compared with R's column.
static bool independent(const gsl_matrix *r, size_t terms)
{
    for (size_t k = 0; k < terms; k++) {
        double square = 0, own = gsl_matrix_get(r, k, k);
        for (size_t i = 0; i <= k; i++)
            square += gsl_matrix_get(r, i, k) * gsl_matrix_get(r, i, k);
        if (!(fabs(own) > 1e-12 * sqrt(square)))
            return false;
    }
    return true;
}

bool least_squares(double *x, const double *a, const double *b, size_t rows, size_t terms)
{
    assert(rows >= terms && terms > 0);
    gsl_matrix_const_view from = gsl_matrix_const_view_array(a, rows, terms);
    gsl_vector_const_view right = gsl_vector_const_view_array(b, rows);
    gsl_vector_view to = gsl_vector_view_array(x, terms);
    gsl_matrix *qr = gsl_matrix_alloc(rows, terms);
    gsl_vector *tau = gsl_vector_alloc(terms), *residual = gsl_vector_alloc(rows);
    if (qr == NULL || tau == NULL || residual == NULL)
        memory_out(0);
    gsl_matrix_memcpy(qr, &from.matrix);
    gsl_linalg_QR_decomp(qr, tau);
    const bool ok = independent(qr, terms);
    if (ok)
        gsl_linalg_QR_lssolve(qr, tau, &right.vector, &to.vector, residual);
    gsl_vector_free(residual);
    gsl_vector_free(tau);
    gsl_matrix_free(qr);
    return ok;
}

struct uniform_source *uniform_source_create(unsigned long seed)
{
    gsl_rng *r = gsl_rng_alloc(gsl_rng_mt19937);
    if (r == NULL)
        memory_out(0);
    gsl_rng_set(r, seed);
    return (struct uniform_source *)r;
}

void uniform_source_destroy(struct uniform_source *u)
{
    gsl_rng_free((gsl_rng *)u);
}

size_t uniform_below(struct uniform_source *u, size_t n)
{
    return (size_t)((uint64_t)gsl_rng_get((gsl_rng *)u) * n >> 32);
}

double select_smallest(double *x, size_t n, size_t k)
{
    assert(k < n);
    return gsl_stats_select(x, 1, n, k);
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
