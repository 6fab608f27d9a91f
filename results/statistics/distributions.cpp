// distributions.cpp - the only file that includes Boost (Boost.Math; Boost Software License).
#include "results/statistics/distributions.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <boost/math/tools/fraction.hpp>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>

namespace math = boost::math;

// What is beyond the doubles is 0 or infinite, nothing is thrown, and the arithmetic is that of doubles everywhere.
using quiet = math::policies::policy<math::policies::domain_error<math::policies::ignore_error>,
                                     math::policies::pole_error<math::policies::ignore_error>,
                                     math::policies::overflow_error<math::policies::ignore_error>,
                                     math::policies::underflow_error<math::policies::ignore_error>,
                                     math::policies::evaluation_error<math::policies::ignore_error>,
                                     math::policies::promote_double<false>>;

// The terms of the continued fraction of Gamma(a, x) / (x^a e^-x) (DLMF 8.9.2).
struct upper_gamma_fraction {
    using result_type = std::pair<double, double>;
    double a, x;
    int k;
    result_type operator()()
    {
        const result_type term(k * (a - k), x - a + 1 + 2 * k);
        k++;
        return term;
    }
};

// Returns log Q(a, x) where Q is below the smallest double, so that x is far beyond a.
static double log_upper_gamma(double a, double x)
{
    upper_gamma_fraction terms = { a, x, 0 };
    const double f = math::tools::continued_fraction_b(terms, 1e-16);
    return a * std::log(x) - x - math::lgamma(a, quiet()) - std::log(f);
}

double tail_chi_square(double x, double freedom)
{
    assert(freedom > 0);
    if (std::isnan(x))
        return NAN;
    if (x <= 0)
        return 0;
    if (std::isinf(x))
        return -INFINITY;
    const double a = freedom / 2, q = math::gamma_q(a, x / 2, quiet());
    const double log_q = q > 0.5      ? std::log1p(-math::gamma_p(a, x / 2, quiet()))
                         : q > 1e-290 ? std::log(q)
                                      : log_upper_gamma(a, x / 2);
    return log_q / std::log(10.0);
}

// The square of a normal variable is a chi-square one with one degree of freedom.
double tail_normal(double z)
{
    return tail_chi_square(z * z, 1);
}

double quantile_normal(double tail)
{
    assert(tail > 0 && tail < 1);
    return math::quantile(math::complement(math::normal_distribution<double, quiet>(), tail));
}

double quantile_t(double probability, double freedom)
{
    assert(probability > 0 && probability < 1 && freedom > 0);
    return math::quantile(math::students_t_distribution<double, quiet>(freedom), probability);
}

struct uniform_source {
    std::mt19937 numbers;
};

struct uniform_source *uniform_source_create(unsigned seed)
{
    return new uniform_source{ std::mt19937(seed) };
}

void uniform_source_destroy(struct uniform_source *u)
{
    delete u;
}

size_t uniform_below(struct uniform_source *u, size_t n)
{
    return static_cast<size_t>(static_cast<uint64_t>(u->numbers()) * n >> 32);
}

double select_smallest(double *x, size_t n, size_t k)
{
    assert(k < n);
    std::nth_element(x, x + k, x + n);
    return x[k];
}
