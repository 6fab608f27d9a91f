// test_statistic_twin.c - quantiles, intervals, tails, sample sizes and fitted costs compared with forty-digit and exact fractions.
//
// tests/cases/make_statistics.py computes them from the formulas of the documentation: Student's quantiles by mpmath's
// incomplete beta function, intervals and least squares in fractions, tails by mpmath's gamma and error functions.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "verifier/exact/verdict.h"
#include "results/statistics/distributions.h"
#include "results/statistics/statistics.h"
#include "results/cost.h"
#include "results/statistics/intervals.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/numbers.h"

enum { MAX_COUNT = 128, MAX_UNITS = 512 };

static struct json *golden;

static int open_golden(void **state)
{
    golden = golden_json("statistics.json");
    return 0;
}

static int close_golden(void **state)
{
    json_free(golden);
    return 0;
}

// Entry i of a list as a number; NAN: null.
static double at(const struct json *list, size_t i)
{
    const struct json *j = json_at(list, i);
    assert_non_null(j);
    return json_is_null(j) ? NAN : json_number(j);
}

static double of(const struct json *object, const char *key)
{
    assert_true(json_is_number(json_get(object, key)));
    return json_number(json_get(object, key));
}

static void agree(double a, double b, double share)
{
    if (!(isnan(a) && isnan(b)))
        near(a, b, share * fabs(b) + 1e-16);
}

// ---- Student's t, and intervals that use it

TEST(quantiles_of_t_have_ten_digits)
{
    const struct json *list = json_get(golden, "quantile_t");
    assert_true(json_count(list) > 50);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i);
        const double t = quantile_t(at(one, 0), at(one, 1));
        near(t, at(one, 2), 1e-10 * fmax(0.1, fabs(at(one, 2))));
    }
}

static enum statistic statistic_named(const char *name)
{
    static const char *const names[] = { [STATISTIC_RATE] = "rate",
                                         [STATISTIC_RATIO] = "ratio",
                                         [STATISTIC_RATIO_OF_RATIOS] = "ratios",
                                         [STATISTIC_DIFFERENCE] = "difference",
                                         [STATISTIC_CHANGE] = "change" };
    for (int i = 0; i < (int)(sizeof(names) / sizeof(*names)); i++)
        if (strcmp(names[i], name) == 0)
            return (enum statistic)i;
    fail_msg("%s", name);
    return STATISTIC_RATE;
}

// Student's in fractions and forty digits, the bootstrap's in plain loops over Python's Mersenne Twister.
TEST(intervals_equal_those_in_fractions)
{
    const struct json *list = json_get(golden, "intervals");
    assert_true(json_count(list) > 120);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i), *rows = json_get(one, "rows"), *expected = json_get(one, "interval");
        const enum statistic of = statistic_named(json_text(json_get(one, "of")));
        double x[8][MAX_COUNT];
        const size_t n = json_count(json_at(rows, 0)), sums = json_count(rows);
        assert_true(n <= MAX_COUNT && sums == (of == STATISTIC_CHANGE ? 8 : 4));
        for (size_t r = 0; r < sums; r++)
            for (size_t k = 0; k < n; k++)
                x[r][k] = at(json_at(rows, r), k);
        const bool two = of == STATISTIC_RATE || of == STATISTIC_RATIO;
        const double *const columns[] = { x[0], x[1], two ? NULL : x[2], two ? NULL : x[3], x[4], x[5], x[6], x[7] };
        const struct interval got = interval_of(of, columns, n);
        agree(got.value, at(expected, 0), 1e-12);
        agree(got.low, at(expected, 1), 1e-9);
        agree(got.high, at(expected, 2), 1e-9);
        agree(got.prompts, at(expected, 3), 0);
    }
}

TEST(intervals_over_prompts_and_slices_equal_those_by_pairs)
{
    const struct json *list = json_get(golden, "units");
    int known = 0;
    assert_true(json_count(list) >= 30);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i), *rows = json_get(one, "rows"), *works = json_get(one, "work"),
                          *expected = json_get(one, "interval");
        const enum statistic of = statistic_named(json_text(json_get(one, "of")));
        double x[8][MAX_UNITS], w[4][MAX_UNITS];
        int64_t prompt[MAX_UNITS], slice[MAX_UNITS];
        const double *columns[8] = { 0 }, *work[4] = { 0 };
        const size_t n = json_count(json_get(one, "prompt")),
                     sums = of == STATISTIC_RATE || of == STATISTIC_RATIO ? 2 : json_count(rows);
        assert_true(n <= MAX_UNITS);
        for (size_t k = 0; k < n; k++) {
            prompt[k] = (int64_t)at(json_get(one, "prompt"), k);
            slice[k] = (int64_t)at(json_get(one, "slice"), k);
            for (size_t r = 0; r < sums; r++)
                x[r][k] = at(json_at(rows, r), k);
            for (size_t r = 0; !json_is_null(works) && r < json_count(works); r++)
                w[r][k] = json_is_null(json_at(works, r)) ? 0 : at(json_at(works, r), k);
        }
        for (size_t r = 0; r < sums; r++)
            columns[r] = x[r];
        for (size_t r = 0; !json_is_null(works) && r < json_count(works); r++)
            work[r] = json_is_null(json_at(works, r)) ? NULL : w[r];
        const struct interval got = interval_of_units(of, columns, json_is_null(works) ? NULL : work, prompt, slice, n);
        agree(got.value, at(expected, 0), 1e-12);
        agree(got.low, at(expected, 1), 1e-9);
        agree(got.high, at(expected, 2), 1e-9);
        agree(got.prompts, at(expected, 3), 0);
        known += !isnan(got.low);
    }
    assert_in_range(known, 20, json_count(list) - 1);
}

// What no formula of the twin covers: too few prompts, sums of zero, and slices of one prompt each, which change nothing.
TEST(intervals_at_the_limits_are_those_of_definitions)
{
    const double half[] = { 2, 4, 0.5, 2.5 }, one[] = { 4, 6, 2, 6 }, zero[4] = { 0 };
    const double *const x[] = { half, one, half, one, half, one, half, one };
    int64_t number[] = { 0, 1, 2, 3 }, same[] = { 3, 3, 3, 3 }, apart[] = { 0, 1, 0, 1 };
    for (int of = STATISTIC_RATE; of <= STATISTIC_CHANGE; of++) {
        const double value = of <= STATISTIC_RATIO ? 0.5 : of == STATISTIC_DIFFERENCE ? 0 : 1;
        const int sums = of == STATISTIC_RATE || of == STATISTIC_RATIO ? 2 : of == STATISTIC_CHANGE ? 8 : 4;
        const double *columns[8] = { NULL };
        memcpy(columns, x, (size_t)sums * sizeof(*x));
        const struct interval single = interval_of(of, columns, 1), equal = interval_of(of, columns, 4),
                              units = interval_of_units(of, columns, NULL, number, number, 4),
                              slice = interval_of_units(of, columns, NULL, number, same, 4);
        assert_true(single.value == value && isnan(single.low) && isnan(single.high));
        assert_true(isnan(interval_of(of, columns, 0).value));
        agree(units.low, equal.low, 0);
        agree(units.high, equal.high, 0);
        assert_true(slice.value == value && isnan(slice.low) && isnan(slice.high));
        for (int k = 0; k < sums; k++) {
            columns[k] = zero;
            const double found = interval_of(of, columns, 4).value;
            if (k % 2 == 1 || of == STATISTIC_RATIO_OF_RATIOS) // a denominator, or a ratio without a logarithm
                assert_true(isnan(found));
            columns[k] = x[k];
        }
    }
    // One side in a slice of its own, as when cells are decoded one after the other.
    const double left[] = { 10, 0, 10, 0 }, right[] = { 0, 10, 0, 10 };
    const double *const sides[] = { left, left, right, right };
    assert_true(
        isnan(interval_of_units(STATISTIC_RATIO_OF_RATIOS, sides, NULL, (int64_t[]){ 0, 0, 1, 1 }, apart, 4).low));
}

// ---- tails

TEST(tails_have_ten_digits)
{
    const struct json *tails = json_get(golden, "tails"), *list = json_get(tails, "chi");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i);
        agree(tail_chi_square(at(one, 0), at(one, 1)), at(one, 2), 1e-10);
    }
    list = json_get(tails, "sum");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i);
        agree(tail_sum(at(one, 0), at(one, 1), at(one, 2)), at(one, 3), 1e-8);
    }
    list = json_get(tails, "kolmogorov");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i);
        near(tail_kolmogorov(at(one, 0), at(one, 1)), at(one, 2), 1e-9 * fmax(1e-3, fabs(at(one, 2))));
    }
    list = json_get(tails, "normal");
    for (size_t i = 0; i < json_count(list); i++)
        near(quantile_normal(at(json_at(list, i), 0)), at(json_at(list, i), 1),
             1e-10 * fmax(1, at(json_at(list, i), 1)));
}

TEST(the_chi_square_of_uneven_counts_equals_that_in_fractions)
{
    const struct json *list = json_get(json_get(golden, "tails"), "even");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i), *cells = json_at(one, 0);
        double count[MAX_COUNT], chi;
        for (size_t k = 0; k < json_count(cells); k++)
            count[k] = at(cells, k);
        const double p = tail_even(count, (int)json_count(cells), &chi);
        agree(chi, at(one, 1), 1e-12);
        agree(p, at(one, 2), 1e-10);
    }
}

// ---- sample sizes

TEST(sample_sizes_equal_the_formulas)
{
    const struct json *list = json_get(golden, "sizes");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i);
        const struct power w = { at(one, 0), at(one, 1), (int)at(one, 2) };
        agree(power_tokens(POWER_SCORE, at(one, 3), w), at(one, 4), 1e-9);
        agree(power_tokens(POWER_KS, at(one, 3), w), at(one, 5), 1e-9);
        const double bet = power_tokens(POWER_E, at(one, 3), w);
        agree(isinf(bet) ? NAN : bet, at(one, 6), 1e-9);
    }
}

// ---- cost model

static struct cost_point point_of(const struct json *one)
{
    return (struct cost_point){ (int)at(one, 0), (int)at(one, 1), at(one, 2), 0 };
}

TEST(fitted_costs_equal_normal_equations_in_fractions)
{
    const struct json *fits = json_get(golden, "fits");
    int tables = 0;
    for (size_t i = 0; i < json_count(fits); i++) {
        const struct json *fit = json_at(fits, i), *points = json_get(fit, "points"), *steps = json_get(fit, "step"),
                          *predictions = json_get(fit, "table");
        struct cost_point p[MAX_COUNT];
        struct cost c;
        for (size_t k = 0; k < json_count(points); k++)
            p[k] = point_of(json_at(points, k));
        cost_fit(&c, p, (int)json_count(points));
        near(c.n0, of(fit, "n0"), 0);
        agree(c.a, of(fit, "a"), 1e-7);
        agree(c.b, of(fit, "b"), 1e-6);
        agree(c.s, of(fit, "s"), 1e-6);
        agree(c.d, of(fit, "d"), 1e-6);
        agree(c.e, of(fit, "e"), 1e-6);
        near(c.hinge_rms, of(fit, "rms"), 1e-9);
        near(c.hinge_max_error, of(fit, "max_error"), 1e-9);
        near(c.table_rms, of(fit, "table_rms"), 1e-12);
        near(c.table_max_error, of(fit, "table_max_error"), 1e-12);
        assert_string_equal(cost_form_names[c.form], json_text(json_get(fit, "form")));
        tables += c.form == COST_TABLE;
        for (size_t k = 0; k < json_count(predictions); k++) {
            const struct json *one = json_at(predictions, k);
            agree(cost_table_ns(&c, at(one, 0), at(one, 1)), at(one, 2), 1e-11);
            if (c.form == COST_TABLE)
                agree(cost_ns(&c, at(one, 0), at(one, 1)), at(one, 2), 1e-11);
        }
        for (size_t k = 0; k < json_count(steps); k++)
            p[k] = (struct cost_point){ 1, (int)at(json_at(steps, k), 0), at(json_at(steps, k), 1), 0 };
        cost_fit_step(&c, p, (int)json_count(steps));
        agree(c.step_a, of(fit, "step_a"), 1e-9);
        agree(c.step_d, of(fit, "step_d"), 1e-8);
        near(c.step_max_error, of(fit, "step_max_error"), 1e-9);
        cost_free(&c);
    }
    assert_in_range(tables, 1, json_count(fits) - 1);
}

// Neither the number of rows nor the context is a term where there is one of them.
TEST(one_pass_is_its_own_cost)
{
    const struct cost_point p = { 1, 0, 110, 0 };
    struct cost c;
    cost_fit(&c, &p, 1);
    assert_int_equal(c.form, COST_HINGE);
    near(cost_ns(&c, 1, 0), 110, 1e-9);
    assert_true(c.d == 0 && c.e == 0 && cost_table_ns(&c, 1, 0) == 110 && cost_table_ns(&c, 5, 7) == 110);
    cost_fit_step(&c, &p, 1);
    near(c.step_a, 110, 1e-9);
    assert_true(c.step_d == 0);
    cost_free(&c);
}

RUN_TESTS(open_golden, close_golden)
