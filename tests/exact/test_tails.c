// test_tails.c - tails against other programs, Holm's correction, and sample sizes against texts of that size.
#include <math.h>
#include <string.h>

#include "verifier/exact/evidence.h"
#include "verifier/exact/verdict.h"
#include "results/statistics/distributions.h"
#include "results/statistics/statistics.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"

// ---- tails

// mpmath 1.4.1, 40 digits: log10(gammainc(mpf(k)/2, mpf(x)/2, inf, regularized=True)), log10(erfc(mpf(z)/sqrt(2))),
// log10(2*sum((-1)**(i-1)*exp(-2*i*i*mpf(x)**2) for i in range(1, 200))), findroot of erfc(z/sqrt(2))/2 = tail.
static void tails_match_mpmath(void **state)
{
    static const double chi[][3] = {
        { 0.5, 1, -0.31921127782572033 },     { 3.841458820694124, 1, -1.3010299956639807 },
        { 25, 1, -6.2416156767266733 },       { 1000, 1, -218.74573410420501 },
        { 10, 31, -5.4673091958312467e-5 },   { 31, 31, -0.33141608064726554 },
        { 100, 31, -8.460375700158585 },      { 2000, 31, -402.31298053267925 },
        { 63, 63, -0.32211724534541401 },     { 49, 49, -0.32502107799401561 },
        { 900, 999, -0.0049700864356121907 }, { 1300, 999, -9.4687488283764335 },
    };
    static const double normal[][2] = {
        { 0.1, -0.036049661062642284 }, { 1, -0.4985155458279893 },  { 1.959963984540054, -1.301029995663981 },
        { 6, -8.704834331812723 },      { 40, -349.13597646368186 }, { 200, -8688.2887388558992 },
    };
    static const double limit[][2] = {
        { 0.3, -4.041476973910279e-6 },  { 0.5, -0.015947635235754491 }, { 0.9, -0.40590513955521088 },
        { 0.99, -0.55148870938894474 },  { 1, -0.56863676394767902 },    { 1.2, -0.94981493997523828 },
        { 1.6276, -1.9999332396050027 }, { 3, -7.5162706785945517 },     { 20, -347.13455552693748 },
    };
    static const double quantile[][2] = {
        { 0.5, 0 },
        { 0.3, 0.52440051270804078 },
        { 0.001, 3.0902323061678135 },
        { 5e-7, 4.8916384756985904 },
        { 0.7, -0.52440051270804078 },
        { 1e-100, 21.273453560965324 },
    };
    for (size_t i = 0; i < sizeof(chi) / sizeof(chi[0]); i++)
        near(tail_chi_square(chi[i][0], chi[i][1]), chi[i][2], 1e-11 * fmax(1, -chi[i][2]));
    for (size_t i = 0; i < sizeof(normal) / sizeof(normal[0]); i++)
        near(tail_normal(-normal[i][0]), normal[i][1], 1e-11 * fmax(1, -normal[i][1]));
    for (size_t i = 0; i < sizeof(limit) / sizeof(limit[0]); i++)
        near(tail_kolmogorov(limit[i][0] / 1e10, 1e20), limit[i][1], 1e-9 * fmax(1, -limit[i][1]));
    for (size_t i = 0; i < sizeof(quantile) / sizeof(quantile[0]); i++)
        near(quantile_normal(quantile[i][0]), quantile[i][1], 1e-10);
    near(tail_chi_square(0, 3), 0, 0);
    near(tail_kolmogorov(0, 3), 0, 0);
    assert_true(tail_normal(INFINITY) == -INFINITY);
}

// scipy 1.17.1: log10(kstwo.sf(d, n)), exact.
static void kolmogorov_tail_is_accurate_for_finite_samples(void **state)
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

// The tail of a sum s >> variance is near exp(-s (log(s / variance) - 1)), Poisson's.
static void a_sum_without_a_variance_is_certain(void **state)
{
    assert_true(tail_sum(0, 0, 1) == 0 && tail_sum(1, 0, 1) == -INFINITY && tail_sum(-1, 0, 2) == -INFINITY);
    assert_true(tail_sum(1, -1, 1) == -INFINITY && tail_sum(0, 1e-300, 1) == 0);
    for (int exponent = -290; exponent >= -320; exponent -= 5) {
        const double variance = pow(10, exponent), near_it = tail_sum(1, variance, 1);
        assert_true(near_it > 1.02 * (exponent - 1) && near_it < exponent + 1);
    }
}

static void dependent_columns_have_no_least_squares(void **state)
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

static void holm_relaxes_the_level_step_by_step(void **state)
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

static void sample_sizes_match_known_values(void **state)
{
    const struct power plan = { 1e-6, .999, 1 }, mean = { 1e-6, .5, 1 };
    near(power_tokens(POWER_SCORE, .01, plan), 159e3, 1e3);
    near(power_tokens(POWER_KS, .01, plan), 180e3, 1e3);
    near(power_tokens(POWER_SCORE, .001, plan), 159e5, 1e5);
    // The matched bet of 150 takes 94,100 tokens on average; lambda = .03 instead of .04 takes 1 / (1 - 1/4^2) times as
    // many.
    near(power_tokens(POWER_E, .01, mean), 94100 * 16 / 15., 1500);
    assert_true(power_tokens(POWER_E, .01, plan) > power_tokens(POWER_E, .01, mean));
    assert_true(power_tokens(POWER_E, .001, plan) == INFINITY); // stakes of .01 and more are too high for this bias
    assert_true(power_tokens(POWER_SCORE, 0, plan) == INFINITY);
    const struct power shared = { 1e-6, .999, 4000 };
    near(power_tokens(POWER_SCORE, .01, shared) / power_tokens(POWER_SCORE, .01, plan), 1.39, .01);
    near(power_tokens(POWER_KS, .01, shared) / power_tokens(POWER_KS, .01, plan), 1.35, .01);
    near(power_tokens(POWER_E, .01, shared) / power_tokens(POWER_E, .01, plan), 1, 0);
}

static void detectable_bias_inverts_sample_size(void **state)
{
    const struct power w = { 1e-6, .999, 50 };
    for (int test = 0; test < POWER_TESTS; test++)
        for (double tokens = 1e3; tokens < 1e8; tokens *= 10) {
            double d = power_detectable((enum power_test)test, tokens, w);
            near(power_tokens((enum power_test)test, d, w) / tokens, 1, 1e-6);
        }
    assert_true(power_detectable(POWER_SCORE, 5, w) == INFINITY);
}

// Of 100 texts of two tokens with the planned bias and length, the share detected is the planned power.
static void a_bias_of_the_planned_size_is_detected(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_match_mpmath),
        cmocka_unit_test(kolmogorov_tail_is_accurate_for_finite_samples),
        cmocka_unit_test(a_sum_without_a_variance_is_certain),
        cmocka_unit_test(dependent_columns_have_no_least_squares),
        cmocka_unit_test(holm_relaxes_the_level_step_by_step),
        cmocka_unit_test(sample_sizes_match_known_values),
        cmocka_unit_test(detectable_bias_inverts_sample_size),
        cmocka_unit_test(a_bias_of_the_planned_size_is_detected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
