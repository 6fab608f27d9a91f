// test_calibration.c - calibration against plain loops, and cases by hand.
#include <math.h>
#include <stdint.h>

#include "results/statistics/calibration.h"
#include "tests/support/numbers.h"
#include "tests/support/tests.h"

TEST(small_cases_are_as_by_hand)
{
    struct calibration c = { 0 };
    assert_true(isnan(calibration_ece(&c)) && isnan(calibration_brier(&c)) && isnan(calibration_auroc(&c)));
    calibration_add(&c, 0.75F, true);
    calibration_add(&c, 0.75F, true);
    calibration_add(&c, 0.75F, false);
    calibration_add(&c, 0.25F, false);
    near(calibration_ece(&c), (2.25 - 2 + 0.25) / 4,
         1e-12); // a bin states 2.25 and has 2, another states 0.25 and has 0
    near(calibration_brier(&c), (3 * 0.0625 + 0.5625) / 4, 1e-12);
    near(calibration_auroc(&c), (2 * 1 + 2 * 0.5) / 4,
         1e-12); // 2 right, 2 wrong: each right one beats one and ties with one
    calibration_free(&c);
    calibration_add(&c, 1, true);
    near(calibration_ece(&c), 0, 1e-12);
    assert_true(isnan(calibration_auroc(&c)));
    calibration_free(&c);
}

TEST(the_area_is_the_share_of_ordered_pairs)
{
    uint64_t seed = 9;
    for (int again = 0; again < 50; again++) {
        struct calibration c = { 0 };
        double won = 0, pairs = 0;
        for (int i = 0; i < 60; i++) {
            const float p = (float)(floor(uniform(&seed) * 12) / 11);
            calibration_add(&c, p, uniform(&seed) < (double)p);
        }
        for (size_t i = 0; i < c.n; i++)
            for (size_t k = 0; k < c.n; k++)
                if (c.at[i].right && !c.at[k].right) {
                    pairs++;
                    won += c.at[i].p > c.at[k].p ? 1 : c.at[i].p < c.at[k].p ? 0 : 0.5;
                }
        near(calibration_auroc(&c), won / pairs, 1e-12);
        calibration_free(&c);
    }
}

RUN_TESTS(NULL, NULL)
