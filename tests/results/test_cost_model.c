// test_cost_model.c - fitted costs, and their errors compared with plain loops.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/cost.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

// Each inner point is predicted by linear interpolation of its two neighbours. The points are not in order.
static void errors_of_the_table_are_those_of_interpolation(void **state)
{
    enum { ROWS = 4, CONTEXTS = 2 };
    static const int rows[ROWS] = { 1, 2, 4, 8 }, contexts[CONTEXTS] = { 16, 100 };
    static const double ns[CONTEXTS][ROWS] = { { 100, 130, 150, 260 }, { 110, 160, 170, 300 } };
    struct cost_point p[ROWS * CONTEXTS];
    int n = 0, between = 0;
    double max_error = 0, sum = 0;
    for (int i = ROWS - 1; i >= 0; i--) // in any order
        for (int c = 0; c < CONTEXTS; c++)
            p[n++] = (struct cost_point){ rows[i], contexts[c], ns[c][i], 0 };
    for (int c = 0; c < CONTEXTS; c++)
        for (int i = 1; i + 1 < ROWS; i++, between++) {
            const double share = (double)(rows[i] - rows[i - 1]) / (rows[i + 1] - rows[i - 1]);
            const double predicted = ns[c][i - 1] * (1 - share) + ns[c][i + 1] * share,
                         error = predicted / ns[c][i] - 1;
            max_error = fmax(max_error, fabs(error));
            sum += error * error;
        }
    struct cost cost;
    cost_fit(&cost, p, n);
    assert_true(fabs(cost.table_max_error - max_error) < 1e-12);
    assert_true(fabs(cost.table_rms - sqrt(sum / between)) < 1e-12);
    assert_int_equal(cost.form, COST_TABLE);
    for (int c = 0; c < CONTEXTS; c++)
        for (int i = 0; i < ROWS; i++)
            assert_true(fabs(cost_ns(&cost, rows[i], contexts[c]) - ns[c][i]) < 1e-9);
    assert_true(fabs(cost_ns(&cost, 3, 58) - (130 + 150 + 160 + 170) / 4.0) < 1e-9); // half way in both
    // The hinge's errors are those at the points, too.
    double hinge_max_error = 0, hinge_sum = 0;
    for (int i = 0; i < n; i++) {
        const double error = cost_hinge_ns(&cost, p[i].n, p[i].context) / p[i].ns - 1;
        hinge_max_error = fmax(hinge_max_error, fabs(error));
        hinge_sum += error * error;
    }
    assert_true(fabs(cost.hinge_max_error - hinge_max_error) < 1e-12 && hinge_max_error > 0.01);
    assert_true(fabs(cost.hinge_rms - sqrt(hinge_sum / n)) < 1e-12);
    cost_free(&cost);
}

// 500 + 7 n + 90 max(0, n - 4) + 0.5 c + 0.25 n c: four rows and two contexts determine it.
static void four_rows_determine_a_hinge(void **state)
{
    static const int rows[] = { 1, 2, 4, 9 }, contexts[] = { 16, 400 };
    struct cost_point p[8];
    int n = 0;
    for (int i = 0; i < 4; i++)
        for (int c = 0; c < 2; c++) {
            const double x = rows[i], y = contexts[c];
            p[n++] = (struct cost_point){ rows[i], contexts[c],
                                          500 + 7 * x + 90 * fmax(0, x - 4) + 0.5 * y + 0.25 * x * y, 0 };
        }
    struct cost cost;
    cost_fit(&cost, p, n);
    assert_int_equal(cost.form, COST_HINGE);
    assert_true(cost.hinge_max_error < 1e-6);
    assert_true(fabs(cost.d - 0.5) < 1e-3 && fabs(cost.e - 0.25) < 1e-3);
    cost_free(&cost);
}

static void two_rows_determine_a_line(void **state)
{
    const struct cost_point p[] = { { 1, 16, 110, 0 }, { 4, 16, 140, 0 } };
    struct cost cost;
    cost_fit(&cost, p, 2);
    assert_int_equal(cost.form, COST_HINGE);
    assert_true(fabs(cost_hinge_ns(&cost, 1, 16) - 110) < 1e-6 && fabs(cost_hinge_ns(&cost, 3, 16) - 130) < 1e-6);
    assert_true(cost.table_max_error == 0 && cost.table_rms == 0); // no inner point
    cost_free(&cost);
}

// Neither the number of rows nor the context is a term then.
static void one_row_at_context_0_is_its_own_cost(void **state)
{
    const struct cost_point p = { 1, 0, 110, 0 };
    struct cost cost;
    cost_fit(&cost, &p, 1);
    assert_int_equal(cost.form, COST_HINGE);
    assert_true(fabs(cost_ns(&cost, 1, 0) - 110) < 1e-9 && cost.d == 0 && cost.e == 0);
    assert_true(cost_table_ns(&cost, 1, 0) == 110 && cost_table_ns(&cost, 5, 7) == 110);
    cost_free(&cost);
}

// One draft step does not determine the context's term; two or more do.
static void draft_steps_fit_a_line_in_context(void **state)
{
    const struct cost_point p[] = { { 5, 10, 120, 0 }, { 9, 50, 200, 0 }, { 2, 100, 300, 0 } }; // 100 + 2 c
    struct cost cost = { 0 };
    cost_fit_step(&cost, p, 1);
    assert_true(fabs(cost.step_a - 120) < 1e-9 && cost.step_d == 0);
    cost_fit_step(&cost, &(struct cost_point){ 1, 0, 50, 0 }, 1); // at context 0
    assert_true(fabs(cost.step_a - 50) < 1e-9 && cost.step_d == 0);
    for (int n = 2; n <= 3; n++) {
        cost_fit_step(&cost, p, n);
        assert_true(fabs(cost.step_a - 100) < 1e-6 && fabs(cost.step_d - 2) < 1e-8 && cost.step_max_error < 1e-9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_the_table_are_those_of_interpolation),
        cmocka_unit_test(four_rows_determine_a_hinge),
        cmocka_unit_test(two_rows_determine_a_line),
        cmocka_unit_test(one_row_at_context_0_is_its_own_cost),
        cmocka_unit_test(draft_steps_fit_a_line_in_context),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
