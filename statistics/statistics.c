// statistics.c - the one includer of GSL (under the GPL: libspeclab.a is without this file).
#include "statistics/statistics.h"

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

#include "core/memory.h"

// GSL ends the program at an error, underflow included, unless it is told to return.
__attribute__((constructor)) static void return_errors(void)
{
    gsl_set_error_handler_off();
}

// log Q(a, x) where Q is below the smallest double: Q = x^a e^-x U(1, 1 + a, x) / Gamma(a) (DLMF 8.5.3).
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

// Whether no column is, beside the columns before it, shorter than 1e-12 of its length: R's diagonal against R's column.
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
