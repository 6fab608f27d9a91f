// test_statistics.c - quantiles of t compared with printed tables; intervals by simulation.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "statistics/intervals.h"
#include "statistics/statistics.h"
#include "tests/support/check.h"

static void near(double a, double b, double within)
{
    if (!(fabs(a - b) <= within))
        fail_msg("%.17g is not %.17g", a, b);
}

static void quantiles_of_t_equal_the_tables(void **state)
{
    // Abramowitz and Stegun, table 26.10.
    static const struct {
        double probability, freedom, t;
    } table[] = { { .975, 1, 12.706 },  { .975, 2, 4.3027 },  { .975, 5, 2.5706 }, { .975, 10, 2.2281 },
                  { .975, 30, 2.0423 }, { .975, 79, 1.9905 }, { .995, 1, 63.657 }, { .995, 10, 3.1693 },
                  { .9995, 5, 6.8688 }, { .95, 20, 1.7247 },  { .75, 3, 0.7649 },  { .025, 10, -2.2281 } };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        near(quantile_t(table[i].probability, table[i].freedom), table[i].t, 6e-5 * fmax(1, fabs(table[i].t) / 2));
    near(quantile_t(.5, 4), 0, 1e-12);
    near(quantile_t(.975, 1e7), 1.959964, 1e-5);                         // the normal distribution
    near(quantile_t(.975, 1), tan(.475 * 3.14159265358979323846), 1e-9); // Cauchy's: exact
    double p = .9, c = 2 * p - 1;
    near(quantile_t(p, 2), c * sqrt(2 / (1 - c * c)), 1e-12); // exact for 2 degrees
}

static void equal_ratios_have_an_interval_of_zero_width(void **state)
{
    const double a[] = { 10, 20, 30 }, b[] = { 1, 2, 3 }, c[] = { 5, 10, 15 };
    struct interval i = ratio_of_ratios(a, b, c, b, 3);
    near(i.value, 2, 1e-12);
    near(i.low, 2, 1e-12);
    near(i.high, 2, 1e-12);
}

static void too_few_prompts_have_no_interval(void **state)
{
    const double one[] = { 4, 6 }, zero[] = { 0, 0 };
    struct interval i = ratio_of_ratios(one, one, one, one, 1);
    near(i.value, 1, 0);
    assert_true(isnan(i.low) && isnan(i.high));
    assert_true(isnan(ratio_of_ratios(NULL, NULL, NULL, NULL, 0).value));
    assert_true(isnan(ratio_of_ratios(one, one, zero, one, 2).value));
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
    return sqrt(-2 * log(uniform(state))) * cos(2 * 3.14159265358979323846 * uniform(state));
}

// Prompts differ in acceptance (standard deviation 0.14), texts in length. An interval with tokens as the sample would cover
// the truth only half the time.
static void the_interval_has_its_nominal_coverage(void **state)
{
    enum { TRIALS = 4000, PROMPTS = 80 };
    const double mean_speedup = 2;
    uint64_t seed = 20240229;
    int covered = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        double b[PROMPTS], c[PROMPTS], d[PROMPTS];
        for (int i = 0; i < PROMPTS; i++) {
            double own = 0.14 * normal(&seed), length = 100 + 100 * uniform(&seed);
            b[i] = length;                                                   // tokens
            c[i] = length * (1 + 0.05 * normal(&seed));                      // time of one run
            d[i] = length * (mean_speedup + 2 * own + 0.05 * normal(&seed)); // time of the other
        }
        const struct interval s = ratio_of_ratios(b, c, b, d, PROMPTS);
        covered += s.low <= mean_speedup && mean_speedup <= s.high;
    }
    // 4,000 trials of a 95 % interval: a standard error of 0.34 %.
    near((double)covered / TRIALS, 0.95, 0.012);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_of_t_equal_the_tables),
        cmocka_unit_test(equal_ratios_have_an_interval_of_zero_width),
        cmocka_unit_test(too_few_prompts_have_no_interval),
        cmocka_unit_test(the_interval_has_its_nominal_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
