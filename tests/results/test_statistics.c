// test_statistics.c - quantiles of t compared with printed tables; intervals at the limits of what is known. Coverage: test_coverage.c.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/splitmix.h"
#include "results/statistics/intervals.h"
#include "results/statistics/distributions.h"
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

static void expect(struct interval i, double value, double low, double high)
{
    near(i.value, value, 1e-12);
    if (isnan(low))
        assert_true(isnan(i.low) && isnan(i.high));
    else {
        near(i.low, low, 1e-12);
        near(i.high, high, 1e-12);
    }
}

static void equal_prompts_have_an_interval_of_zero_width(void **state)
{
    double a[60], b[60], c[60];
    for (int i = 0; i < 60; i++) {
        b[i] = 1 + i % 7;
        a[i] = 4 * b[i];
        c[i] = 8 * b[i];
    }
    static const size_t n[] = { 2, 10, 60 };
    for (int i = 0; i < 3; i++) {
        expect(interval_of(STATISTIC_RATIO, (const double *const[]){ a, b, NULL, NULL }, n[i]), 4, 4, 4);
        expect(interval_of(STATISTIC_RATE, (const double *const[]){ a, c, NULL, NULL }, n[i]), 0.5, 0.5, 0.5);
        expect(interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ a, b, c, b }, n[i]), 0.5, 0.5, 0.5);
        expect(interval_of(STATISTIC_DIFFERENCE, (const double *const[]){ a, b, c, b }, n[i]), -4, -4, -4);
        near(interval_of(STATISTIC_RATIO, (const double *const[]){ a, b, NULL, NULL }, n[i]).prompts, 2, 0);
    }
}

static void too_few_prompts_have_no_interval(void **state)
{
    const double one[] = { 4, 6 }, zero[] = { 0, 0 };
    expect(interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ one, one, one, one }, 1), 1, NAN, NAN);
    expect(interval_of(STATISTIC_DIFFERENCE, (const double *const[]){ one, one, one, one }, 1), 0, NAN, NAN);
    expect(interval_of(STATISTIC_RATE, (const double *const[]){ one, one, NULL, NULL }, 1), 1, NAN, NAN);
    assert_true(isnan(interval_of(STATISTIC_RATIO, (const double *const[]){ NULL, NULL, NULL, NULL }, 0).value));
    assert_true(isnan(interval_of(STATISTIC_RATIO, (const double *const[]){ one, zero, NULL, NULL }, 2).value));
    assert_true(isnan(interval_of(STATISTIC_DIFFERENCE, (const double *const[]){ one, one, one, zero }, 2).value));
    const double *const some[] = { one, one, one, one };
    for (int k = 0; k < 4; k++) {
        const double *x[4] = { some[0], some[1], some[2], some[3] };
        x[k] = zero;
        assert_true(
            isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ x[0], x[1], x[2], x[3] }, 2).value));
    }
    expect(interval_of(STATISTIC_RATIO, (const double *const[]){ zero, one, NULL, NULL }, 2), 0, NAN, NAN);
}

// That 5 prompts are alike has a probability of 2.5 % if 0.478 of all are: 0.478^5 = 0.025.
static void a_rate_of_0_or_1_in_all_prompts_has_the_interval_of_as_many_trials(void **state)
{
    const double none[] = { 0, 0, 0, 0, 0, 0 }, all[] = { 3, 9, 2, 4, 5, 0 }; // one has no draft token
    const double alike = pow(0.025, 0.2);
    expect(interval_of(STATISTIC_RATE, (const double *const[]){ none, all, NULL, NULL }, 6), 0, 0, 1 - alike);
    expect(interval_of(STATISTIC_RATE, (const double *const[]){ all, all, NULL, NULL }, 6), 1, alike, 1);
    assert_true(isnan(interval_of(STATISTIC_RATE, (const double *const[]){ none, all, NULL, NULL }, 6).prompts));
}

// One prompt of 20 has any: a third of the resamples are without it, and Student's quantiles are taken.
static void rare_events_have_an_interval_within_the_limits(void **state)
{
    double a[20] = { [7] = 3 }, b[20];
    for (int i = 0; i < 20; i++)
        b[i] = 5;
    const struct interval i = interval_of(STATISTIC_RATE, (const double *const[]){ a, b, NULL, NULL }, 20);
    near(i.value, 0.03, 1e-12);
    assert_true(i.low > 0 && i.low < 0.03 && i.high > 0.03 && i.high < 0.5);
}

// With as many prompts as an interval says, each as before, the half-width is 2 %, and with one fewer it is not.
static void the_prompts_that_resolve_two_percent_do(void **state)
{
    enum { MAX = 4000 };
    double *a = xcalloc(MAX, sizeof(*a)), *b = xcalloc(MAX, sizeof(*b));
    for (int i = 0; i < MAX; i++) {
        a[i] = 2 + (i % 2 == 0 ? 0.5 : -0.5);
        b[i] = 1;
    }
    const double n = interval_of(STATISTIC_RATIO, (const double *const[]){ a, b, NULL, NULL }, 100).prompts;
    assert_in_range(n, 500, 700);
    const struct interval at =
        interval_of(STATISTIC_RATIO, (const double *const[]){ a, b, NULL, NULL }, (size_t)n / 2 * 2);
    near(log(at.high / at.low) / 2, 0.02, 1e-4);
    free(a);
    free(b);
}

// ---- units of prompts and slices

enum { SLICES = 6, MAX_UNITS = 60 * SLICES };

struct unit_rows {
    size_t n;
    int64_t prompt[MAX_UNITS], slice[MAX_UNITS];
    double x[8][MAX_UNITS];
};

// Invented sums of `prompts` in SLICES slices each: its own, or the same for all.
static void make_units(struct unit_rows *u, size_t prompts, bool shared)
{
    uint64_t dice = 7;
    u->n = prompts * SLICES;
    for (size_t i = 0; i < u->n; i++) {
        u->prompt[i] = (int64_t)(i / SLICES);
        u->slice[i] = (int64_t)(shared ? i % SLICES : i);
        for (int k = 0; k < 8; k++)
            u->x[k][i] = 8 + (double)(splitmix(&dice) % 64); // integers: their sums have the same bits in any order
    }
}

static struct interval of_units(const struct unit_rows *u, enum statistic of)
{
    const bool one = of == STATISTIC_RATE || of == STATISTIC_RATIO;
    const double *const x[] = { u->x[0], u->x[1], one ? NULL : u->x[2], one ? NULL : u->x[3], u->x[4], u->x[5],
                                u->x[6], u->x[7] };
    return interval_of_units(of, x, NULL, u->prompt, u->slice, u->n);
}

static struct interval of_prompts(const struct unit_rows *u, enum statistic of)
{
    double sum[8][MAX_UNITS] = { { 0 } };
    const size_t n = u->n / SLICES;
    for (size_t i = 0; i < u->n; i++)
        for (int k = 0; k < 8; k++)
            sum[k][i / SLICES] += u->x[k][i];
    const bool one = of == STATISTIC_RATE || of == STATISTIC_RATIO;
    const double *const columns[] = { sum[0], sum[1], one ? NULL : sum[2], one ? NULL : sum[3], sum[4], sum[5],
                                      sum[6], sum[7] };
    return interval_of(of, columns, n);
}

static void slices_of_one_prompt_each_change_nothing(void **state)
{
    static const size_t n[] = { 2, 5, 20, 60 };
    static struct unit_rows u;
    for (int i = 0; i < 4; i++) {
        make_units(&u, n[i], false);
        for (size_t k = 0; k < u.n; k++)
            u.x[1][k] += 80; // so that the rate is below 1
        for (int of = STATISTIC_RATE; of <= STATISTIC_CHANGE; of++) {
            const struct interval a = of_units(&u, (enum statistic)of), b = of_prompts(&u, (enum statistic)of);
            near(a.value, b.value, 0);
            near(a.low, b.low, 0);
            near(a.high, b.high, 0);
            assert_true(a.prompts == b.prompts || of == STATISTIC_DIFFERENCE);
        }
    }
}

// Prompts that are all alike, in the same slices, which have nearly the same shares: the slices are the sample, with Student's quantiles for six.
static void alike_prompts_have_the_interval_over_their_slices(void **state)
{
    static const size_t n[] = { 2, 5, 60 };
    static struct unit_rows one, u;
    make_units(&one, 1, true);
    for (int k = 0; k < 8; k++)
        for (int i = 0; i < SLICES; i++)
            one.x[k][i] = k % 2 == 0 ? 20 : 2000 + one.x[k][i];
    const struct interval expected = interval_of(
        STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ one.x[0], one.x[1], one.x[2], one.x[3] }, SLICES);
    for (int i = 0; i < 3; i++) {
        make_units(&u, n[i], true);
        for (size_t k = 0; k < u.n; k++)
            for (int c = 0; c < 4; c++)
                u.x[c][k] = one.x[c][k % SLICES];
        const struct interval got = of_units(&u, STATISTIC_RATIO_OF_RATIOS);
        near(got.value, expected.value, 1e-12);
        near(log(got.low / got.value) / log(expected.low / expected.value), 1, 0.02);
        near(log(got.high / got.value) / log(expected.high / expected.value), 1, 0.02);
    }
}

static void one_slice_of_several_prompts_has_no_interval(void **state)
{
    static struct unit_rows u;
    make_units(&u, 20, true);
    assert_true(of_units(&u, STATISTIC_RATIO_OF_RATIOS).low > 0);
    for (size_t i = 0; i < u.n; i++)
        u.slice[i] = 3;
    const struct interval i = of_units(&u, STATISTIC_RATIO_OF_RATIOS);
    near(i.value, of_prompts(&u, STATISTIC_RATIO_OF_RATIOS).value, 1e-12);
    assert_true(isnan(i.low) && isnan(i.high) && isnan(i.prompts));
    // One side in a slice of its own, as when cells are decoded one after the other.
    for (size_t k = 0; k < u.n; k++) {
        u.slice[k] = (int64_t)(k % 2);
        for (int c = 0; c < 4; c++)
            u.x[c][k] = (int)k % 2 == c / 2 ? 10 : 0;
    }
    assert_true(isnan(of_units(&u, STATISTIC_RATIO_OF_RATIOS).low));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_of_t_equal_the_tables),
        cmocka_unit_test(equal_prompts_have_an_interval_of_zero_width),
        cmocka_unit_test(too_few_prompts_have_no_interval),
        cmocka_unit_test(a_rate_of_0_or_1_in_all_prompts_has_the_interval_of_as_many_trials),
        cmocka_unit_test(rare_events_have_an_interval_within_the_limits),
        cmocka_unit_test(the_prompts_that_resolve_two_percent_do),
        cmocka_unit_test(slices_of_one_prompt_each_change_nothing),
        cmocka_unit_test(alike_prompts_have_the_interval_over_their_slices),
        cmocka_unit_test(one_slice_of_several_prompts_has_no_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
