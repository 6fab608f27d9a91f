// test_tails.c - tails at their edges, and sample sizes against texts of that size. Values are those of twins (test_statistic_twin.c,
// test_evidence_twin.c).
#include <math.h>
#include <string.h>

#include "verifier/exact/evidence.h"
#include "verifier/exact/verdict.h"
#include "results/statistics/distributions.h"
#include "results/statistics/statistics.h"
#include "tests/support/tests.h"
#include "tests/support/numbers.h"

// ---- tails

// scipy 1.17.1: log10(kstwo.sf(d, n)), exact.
TEST(kolmogorov_tail_is_accurate_for_finite_samples)
{
    static const double exact[][3] = { { 10, 0.379473, -1.076721 },   { 100, 0.100000, -0.597407 },
                                       { 100, 0.160000, -1.977015 },  { 1000, 0.041110, -1.179034 },
                                       { 1000, 0.079057, -5.156938 }, { 20000, 0.019021, -5.990110 } };
    for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++) {
        double p = tail_kolmogorov(exact[i][1], exact[i][0]);
        near(p, exact[i][2], .01);
        assert_true(p > exact[i][2] || exact[i][2] > -1);
    }
}

TEST(tails_at_their_edges)
{
    assert_true(tail_chi_square(0, 3) == 0 && tail_kolmogorov(0, 3) == 0);
    assert_true(tail_normal(INFINITY) == -INFINITY);
    assert_true(isnan(tail_chi_square(NAN, 3)) && isnan(tail_normal(NAN)) && isnan(tail_kolmogorov(NAN, 3)));
}

// The tail of a sum s >> variance is near exp(-s (log(s / variance) - 1)), Poisson's.
TEST(a_sum_without_a_variance_is_certain)
{
    assert_true(tail_sum(0, 0, 1) == 0 && tail_sum(1, 0, 1) == -INFINITY && tail_sum(-1, 0, 2) == -INFINITY);
    assert_true(tail_sum(1, -1, 1) == -INFINITY && tail_sum(0, 1e-300, 1) == 0);
    for (int exponent = -290; exponent >= -320; exponent -= 5) {
        const double variance = pow(10, exponent), near_it = tail_sum(1, variance, 1);
        assert_true(near_it > 1.02 * (exponent - 1) && near_it < exponent + 1);
    }
}

TEST(dependent_columns_have_no_least_squares)
{
    const double dependent[] = { 1, 2, 1, 2, 1, 2 }, b[] = { 3, 4, 5 }, apart[] = { 1, 1, 1, 2, 1, 3 };
    const double zero[] = { 1, 0, 1, 0, 1, 0 }, tiny[] = { 1, 1e-20, 1, 2e-20, 1, 3e-20 };
    double x[2] = { 7, 7 };
    assert_false(least_squares(x, dependent, b, 3, 2));
    assert_false(least_squares(x, zero, b, 3, 2));
    assert_true(x[0] == 7 && x[1] == 7);
    assert_true(least_squares(x, apart, b, 3, 2));
    near(x[0], 2, 1e-12);
    near(x[1], 1, 1e-12);
    assert_true(least_squares(x, tiny, b, 3, 2)); // small, not dependent
    near(x[1], 1e20, 1e8);
}

TEST(holm_relaxes_the_level_step_by_step)
{
    const double p[] = { -1, -3, NAN, -INFINITY, -2.5, 0 };
    double adjusted[6];
    holm(adjusted, p, 6);
    assert_true(adjusted[3] == -INFINITY && isnan(adjusted[2]));
    near(adjusted[1], -3 + log10(4), 1e-15);
    near(adjusted[4], -2.5 + log10(3), 1e-15);
    near(adjusted[0], -1 + log10(2), 1e-15);
    near(adjusted[5], 0, 0);
    const double equal[] = { -1, -1 };
    holm(adjusted, equal, 2);
    near(adjusted[0], -1 + log10(2), 1e-15);
    near(adjusted[1], adjusted[0], 0); // never below that of a smaller one
}

// ---- sample sizes

TEST(detectable_bias_inverts_sample_size)
{
    const struct power w = { 1e-6, .999, 50 };
    for (int test = 0; test < POWER_TESTS; test++)
        for (double tokens = 1e3; tokens < 1e8; tokens *= 10) {
            double d = power_detectable((enum power_test)test, tokens, w);
            near(power_tokens((enum power_test)test, d, w) / tokens, 1, 1e-6);
        }
    assert_true(power_detectable(POWER_SCORE, 5, w) == INFINITY && power_tokens(POWER_SCORE, 0, w) == INFINITY);
    assert_true(power_tokens(POWER_E, .001, w) == INFINITY); // stakes of .01 and more are too high for this bias
}

// Of 100 texts of two tokens with the planned bias and length, the share detected is the planned power.
TEST(a_bias_of_the_planned_size_is_detected)
{
    const struct power w = { 1e-3, .9, 1 };
    const float half[] = { .5f, .5f };
    const double d = .1;
    const double tokens[] = { power_tokens(POWER_SCORE, d, w), power_tokens(POWER_KS, d, w),
                              power_tokens(POWER_E, d, w) };
    uint64_t seed = 12;
    int found[POWER_TESTS] = { 0 };
    for (int run = 0; run < 100; run++)
        for (int test = 0; test < POWER_TESTS; test++) {
            struct evidence e = { 0 };
            struct uniforms last = evidence_start;
            for (int i = 0; i < tokens[test]; i++) {
                struct observed_token t = { .vocab = 2, .p = half, .p_sum = 1, .before = -1, .end = 1, .index = 1 };
                t.token = uniform(&seed) < .5 + d;
                t.u = uniform(&seed);
                last = evidence_add(&e, &t, last);
            }
            struct exact_test list[EVIDENCE_TESTS];
            int n = evidence_tests(&e, list, EVIDENCE_TESTS);
            for (int i = 0; i < n; i++)
                if (!strcmp(list[i].part, "all") && !strcmp(list[i].of, test == POWER_KS ? "id" : "end") &&
                    !strcmp(list[i].kind, test == POWER_KS ? "KS" : "score") && test != POWER_E)
                    found[test] += list[i].log10_p < log10(w.alpha);
            found[test] += test == POWER_E && evidence_log_e(&e) > -log(w.alpha);
        }
    print_message("of 100: score %d, KS %d, e %d\n", found[0], found[1], found[2]);
    assert_in_range(found[POWER_SCORE], 75, 99);
    assert_in_range(found[POWER_KS], 80, 100);
    assert_in_range(found[POWER_E], 80, 100);
}

RUN_TESTS(NULL, NULL)
