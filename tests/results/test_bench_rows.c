// test_bench_rows.c - every number of a bench is stored in its column; errors of a cost model compared with plain loops.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/bench_rows.h"
#include "results/cost.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/experiments/small_experiments.h"
#include "tests/results/sample_facts.h"
#include "tests/support/small_model.h"

static void every_number_is_in_its_column(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("bench.db");
    const struct bench_peak_row peak[] = { { "fma", "avx2", 1.5 }, { "read", "plain", 2.5 } };
    const struct bench_round_row round[] = { { true, "S", 0.1, 2, 3, 4, 5, 6, 7 },
                                             { false, "D", NAN, NAN, 8, 9, 10, 11, 12 } };
    const struct bench_time_row time[] = { { 0, "pass", 16, 4, 2, 0, 1000, 0 }, { 1, "prompt", 17, 1, 3, 1, 1001, 0 } };
    const struct bench_operation_row operation[] = { { 21, 8, 22, "matmul", 23.5, 24, 25.5, 26.5 } };
    const struct cost cost = { .form = COST_HINGE,
                               .a = 31,
                               .b = 32,
                               .s = 33,
                               .n0 = 34,
                               .d = 35,
                               .e = 36,
                               .hinge_max_error = 37,
                               .hinge_rms = 38,
                               .table_max_error = 39,
                               .table_rms = 40,
                               .step_a = 41,
                               .step_d = 42,
                               .step_max_error = 43 };
    const struct bench_cost_row costs[] = { { "S", &cost } };
    const char *const peers[] = { "llama", "other" };
    struct bench_row r = { "target",
                           "hash",
                           "q4_1",
                           "int8",
                           "bf16",
                           "draft",
                           "draft hash",
                           "f32",
                           "cpu",
                           "machine",
                           "revision",
                           "2026-01-02T03:04:05Z",
                           true,
                           7,
                           123456789012,
                           51,
                           52,
                           53,
                           peers,
                           peak,
                           round,
                           time,
                           operation,
                           costs,
                           2,
                           2,
                           2,
                           2,
                           1,
                           1 };
    int64_t id = 0;
    assert_ok(store_bench(s, &r, &id, &err), err);
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM bench WHERE target = 'target' AND target_hash = 'hash' AND model_type = 'q4_1' AND"
        " activations = 'int8' AND cache = 'bf16' AND draft = 'draft' AND draft_hash = 'draft hash' AND"
        " draft_activations = 'f32' AND device = 'cpu' AND machine = 'machine' AND revision = 'revision' AND"
        " started = '2026-01-02T03:04:05Z' AND marked_inflated = 1 AND threads = 7 AND weight_bytes = 123456789012 AND"
        " overhead_ns = 51 AND overhead_low_ns = 52 AND overhead_high_ns = 53");
    sample_facts_hold(
        s, "SELECT count(*) = 2 FROM bench_peer WHERE (peer = 1 AND name = 'llama') OR (peer = 2 AND name = 'other')");
    sample_facts_hold(
        s, "SELECT count(*) = 2 FROM bench_peak WHERE (kind = 'fma' AND isa = 'avx2' AND per_second = 1.5) OR"
           " (kind = 'read' AND isa = 'plain' AND per_second = 2.5)");
    sample_facts_hold(
        s,
        "SELECT count(*) = 2 FROM bench_round WHERE (round = 0 AND counts = 1 AND placement = 'S' AND foreign_share = 0.1"
        " AND before_read = 2 AND before_read_one = 3 AND before_trip_ns = 4 AND after_read = 5 AND after_read_one = 6 AND"
        " after_trip_ns = 7) OR (round = 1 AND counts = 0 AND placement = 'D' AND foreign_share IS NULL AND"
        " before_read IS NULL AND before_read_one = 8 AND before_trip_ns = 9 AND after_read = 10 AND after_read_one = 11 AND"
        " after_trip_ns = 12)");
    sample_facts_hold(
        s,
        "SELECT count(*) = 2 FROM bench_time WHERE (round = 0 AND what = 'pass' AND context = 16 AND slots = 4 AND n = 2 AND peer = 0 AND"
        " ns = 1000) OR (round = 1 AND what = 'prompt' AND context = 17 AND slots = 1 AND n = 3 AND peer = 1 AND ns = 1001)");
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM bench_operation WHERE context = 21 AND slots = 8 AND n = 22 AND operation = 'matmul' AND ns = 23.5 AND"
        " calls = 24 AND bytes = 25.5 AND flops = 26.5");
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM cost WHERE placement = 'S' AND form = 'hinge' AND a = 31 AND b = 32 AND s = 33 AND"
        " n0 = 34 AND d = 35 AND e = 36 AND hinge_error = 37 AND hinge_rms = 38 AND table_error = 39 AND table_rms = 40 AND"
        " step_a = 41 AND step_d = 42 AND step_error = 43");

    const struct cost table = { .form = COST_TABLE };
    const struct bench_cost_row again[] = { { "S", &table } };
    int64_t later = 0;
    r.cost = again;
    assert_true(store_bench(s, &r, &later, &err) && later > id);
    sample_facts_hold(s, "SELECT form = 'table' FROM cost WHERE bench = (SELECT max(id) FROM bench)");
    sample_facts_query(s, "UPDATE bench_time SET ns = 1"); // the least

    // One row of several cannot be stored: nothing is.
    const struct bench_peak_row twice[] = { { "fma", "avx2", 1.5 }, { "fma", "avx2", 2.5 }, { "read", "plain", 2.5 } };
    r.peak = twice;
    r.peaks = 3;
    assert_false(store_bench(s, &r, &id, &err));
    assert_non_null(strstr(err.text, "constraint"));
    sample_facts_hold(s, "SELECT count(*) = 2 FROM bench");
    store_close(s);
}

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
        cmocka_unit_test(every_number_is_in_its_column),
        cmocka_unit_test(errors_of_the_table_are_those_of_interpolation),
        cmocka_unit_test(four_rows_determine_a_hinge),
        cmocka_unit_test(two_rows_determine_a_line),
        cmocka_unit_test(one_row_at_context_0_is_its_own_cost),
        cmocka_unit_test(draft_steps_fit_a_line_in_context),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
