// test_calibration.c - calibration against plain loops, and cases by hand.
#include <math.h>
#include <stdint.h>

#include "results/statistics/calibration.h"
#include "tests/support/check.h"

static uint64_t state = 9;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 33) / (double)(1u << 31);
}

static void close_to(double a, double b)
{
    assert_true(fabs(a - b) < 1e-12);
}

static void small_cases_are_as_by_hand(void **unused)
{
    struct calibration c = { 0 };
    assert_true(isnan(calibration_ece(&c)) && isnan(calibration_brier(&c)) && isnan(calibration_auroc(&c)));
    calibration_add(&c, 0.75F, true);
    calibration_add(&c, 0.75F, true);
    calibration_add(&c, 0.75F, false);
    calibration_add(&c, 0.25F, false);
    close_to(calibration_ece(&c), (2.25 - 2 + 0.25) / 4); // a bin states 2.25 and has 2, another states 0.25 and has 0
    close_to(calibration_brier(&c), (3 * 0.0625 + 0.5625) / 4);
    close_to(calibration_auroc(&c),
             (2 * 1 + 2 * 0.5) / 4); // 2 right, 2 wrong: each right one beats one and ties with one
    calibration_free(&c);
    calibration_add(&c, 1, true);
    close_to(calibration_ece(&c), 0);
    assert_true(isnan(calibration_auroc(&c)));
    calibration_free(&c);
}

static void the_area_is_the_share_of_ordered_pairs(void **unused)
{
    for (int again = 0; again < 50; again++) {
        struct calibration c = { 0 };
        double won = 0, pairs = 0;
        for (int i = 0; i < 60; i++) {
            const float p = (float)(floor(uniform() * 12) / 11);
            calibration_add(&c, p, uniform() < (double)p);
        }
        for (size_t i = 0; i < c.n; i++)
            for (size_t k = 0; k < c.n; k++)
                if (c.at[i].right && !c.at[k].right) {
                    pairs++;
                    won += c.at[i].p > c.at[k].p ? 1 : c.at[i].p < c.at[k].p ? 0 : 0.5;
                }
        close_to(calibration_auroc(&c), won / pairs);
        calibration_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(small_cases_are_as_by_hand),
                                        cmocka_unit_test(the_area_is_the_share_of_ordered_pairs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
