// test_rng_edges.c - accept and pick at their edge cases, and rows of maximum length.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/acceptance.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/row_stages.h"
#include "sampling/logits.h"
#include "sampling/loops.h"
#include "sampling/rng.h"
#include "core/settings.h"
#include "sampling/sampling.h"
#include "tests/support/check.h"
#include "tests/support/plain_stages.h"

#define LAST_U (1 - 0x1p-53) // the largest uniform

static void certain_acceptance_tests_ignore_the_uniform(void **state)
{
    static const double sizes[] = { DBL_TRUE_MIN, 3 * DBL_TRUE_MIN, DBL_MIN, 0.1, 1, 3, DBL_MAX, INFINITY };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const double d = sizes[i];
        assert_true(acceptance_of(LAST_U, d, d)); // also where u * den rounds up to den
        assert_true(acceptance_of(LAST_U, INFINITY, d));
        assert_true(acceptance_of(LAST_U, d, 0));
        assert_false(acceptance_of(0, 0, d));
        assert_false(acceptance_of(0, -d, d));
    }
    assert_true(acceptance_of(0.5, 0.50001, 1));
    assert_false(acceptance_of(0.5, 0.5, 1)); // u < num / den
    assert_true(acceptance_of(0, DBL_TRUE_MIN, 1));
}

// The product of a uniform and the smallest sum is rounded up to that sum.
static void a_row_of_the_smallest_weight_has_a_pick(void **state)
{
    double w[3] = { 0, DBL_TRUE_MIN, 0 };
    for (int n = 2; n <= 3; n++) {
        assert_int_equal(rng_invert(LAST_U, w, n), 1);
        assert_int_equal(rng_invert(0, w, n), 1);
    }
}

// A row is summed in parts of 512 within chunks of 4,096. Here all of its weight is at one index next to their boundaries.
static void picks_find_weights_next_to_the_boundaries_of_parts(void **state)
{
    static const int sizes[] = { 1, 511, 512, 513, 1024, 1025, 4095, 4096, 4097, 4608, 4609, 8192, 8193 };
    double *w = xcalloc(8193, sizeof(*w));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int n = sizes[i];
        const int index[] = { 0, n / 2, n - 1, n > 1 ? n - 2 : 0, n > 512 ? 511 : 0, n > 512 ? 512 : 0 };
        for (size_t k = 0; k < sizeof(index) / sizeof(index[0]); k++) {
            memset(w, 0, (size_t)n * sizeof(*w));
            w[index[k]] = 1;
            for (double u = 0; u < 1; u = u == 0 ? 0.5 : u == 0.5 ? LAST_U : 1)
                assert_int_equal(rng_invert(u, w, n), index[k]);
            struct philox source = philox_source(3, (uint64_t)n);
            for (int p = 0; p < 2; p++) // inversion and race
                assert_int_equal(
                    source.rng.pick(&source.rng, w, n, (struct address){ p ? FOR_TOKEN : FOR_BONUS, 1, 0 }), index[k]);
        }
        // Two weights of a half: the second is picked from u = 0.5 on.
        memset(w, 0, (size_t)n * sizeof(*w));
        w[0] = w[n - 1] = 0.5;
        double u = 0.5;
        assert_int_equal(rng_invert(u, w, n), n - 1);
        u = 0.5 - 0x1p-53;
        assert_int_equal(rng_invert(u, w, n), 0);
    }
    free(w);
}

// ---- stages at the ends of rows

static void a_penalty_reaches_the_last_token_of_the_longest_row(void **state)
{
    struct sampling s = SAMPLING("repetition_penalty", "2");
    float *x = xcalloc(MAX_VOCAB, sizeof(*x));
    static const int32_t text[] = { MAX_VOCAB - 1, 0, MAX_VOCAB - 1, MAX_VOCAB - 64, 63, 64 };
    for (int i = 0; i < MAX_VOCAB; i++)
        x[i] = -100;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
        x[text[i]] = 2; // 1 when penalized once
    x[5] = 1;
    const struct path before = { sizeof(text) / sizeof(text[0]), text, 0 };
    sampling_row(&s, x, MAX_VOCAB, MAX_VOCAB, &before);
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
        assert_true(x[text[i]] == x[5]);
    assert_true(fabs((double)x[5] - 1.0 / 6) < 1e-6);
    free(x);
    sampling_free(&s);
}

// A stage and a logit_bias, given as pairs of id and number that end with NULL.
static struct sampling with_bias(const char *stage, const char *value, const char *const *bias)
{
    struct settings *m = settings_map(), *b = settings_map();
    for (; *bias != NULL; bias += 2)
        settings_put(b, bias[0], settings_scalar(bias[1]));
    settings_put(m, stage, settings_scalar(value));
    settings_put(m, "logit_bias", b);
    return stages_read(m);
}

// Ids of a bias or of the text may exceed a drafter's smaller vocabulary.
static void ids_beyond_a_row_are_skipped(void **state)
{
    struct sampling s =
        with_bias("repetition_penalty", "2", (const char *const[]){ "2", "1", "3", "50", "4", "50", NULL });
    static const int32_t text[] = { 3, 4, 0, -1 };
    float x[5] = { 2, 1, 0, 7, 7 };
    const struct path before = { 4, text, 0 };
    sampling_row(&s, x, 3, 3, &before);
    assert_true(x[3] == 7 && x[4] == 7);
    for (int i = 0; i < 3; i++)
        assert_true(fabs((double)x[i] - 1.0 / 3) < 1e-6); // 2 / 2, 1, 0 + 1
    sampling_free(&s);
}

static void a_bias_for_an_unknown_token_is_an_error(void **state)
{
    struct error err = { "" };
    struct sampling s = with_bias("temperature", "0.5", (const char *const[]){ "2", "1", "6", "50", NULL });
    assert_true(sampling_check(&s, 7, &err));
    assert_false(sampling_check(&s, 6, &err));
    assert_string_equal(err.text, "logit_bias: token 6: the vocabulary has the ids 0 to 5");
    sampling_free(&s);
}

static void neutral_stages_change_no_bit(void **state)
{
    static const char *const all[][3] = { { "temperature", "1", NULL }, { "top_k", "0", NULL },
                                          { "top_k", "1000", NULL },    { "top_p", "1", NULL },
                                          { "min_p", "0", NULL },       { "repetition_penalty", "1", NULL } };
    struct sampling none = stages_read(settings_map());
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (int which = 0; which < 5; which++) {
            enum { N = 1000 };
            static float a[N], b[N];
            static const int32_t text[] = { 1, 999 };
            const struct path before = { 2, text, 0 };
            struct sampling s = stages_read(stages_mapping(all[i]));
            make_logits(a, N, which);
            memcpy(b, a, sizeof(b));
            sampling_row(&s, a, N, N - 3, &before);
            sampling_row(&none, b, N, N - 3, &before);
            assert_memory_equal(a, b, sizeof(a));
            sampling_free(&s);
        }
    sampling_free(&none);
}

static void stages_become_parameters_of_a_device(void **state)
{
    struct row_stages to;
    struct sampling s = SAMPLING("temperature", "0", "top_k", "7", "top_p", "0.75", "min_p", "0.125");
    assert_true(sampling_row_stages(&s, &to));
    assert_true(to.inverse_temperature == 0 && to.top_k == 7 && to.top_p == 0.75 &&
                fabs(to.below - log(0.125)) < 1e-15);
    sampling_free(&s);
    s = SAMPLING("temperature", "0.25");
    assert_true(sampling_row_stages(&s, &to));
    assert_true(to.inverse_temperature == 4 && to.top_k == 0 && to.top_p == 1 && to.below == -INFINITY);
    sampling_free(&s);
    s = SAMPLING("repetition_penalty", "1");
    assert_true(sampling_row_stages(&s, &to) && to.inverse_temperature == 1);
    sampling_free(&s);
    s = SAMPLING("repetition_penalty", "1.1");
    assert_false(sampling_row_stages(&s, &to)); // it depends on the text
    sampling_free(&s);
    s = with_bias("temperature", "1", (const char *const[]){ "2", "1", NULL });
    assert_false(sampling_row_stages(&s, &to));
    sampling_free(&s);
    s = with_bias("temperature", "1", (const char *const[]){ NULL });
    assert_true(sampling_row_stages(&s, &to));
    sampling_free(&s);
}

static void uniforms_fill_complete_steps_only(void **state)
{
    const struct block first = { { 1, 2 }, { 3, 4, 5, 6 } };
    for (int i = 0; all_loops[i] != NULL; i++)
        for (int n = 1; n <= 3 * LOOP_STEP && loops_supported(all_loops[i]); n++) {
            const int capacity = (n + LOOP_STEP - 1) / LOOP_STEP * LOOP_STEP;
            double u[5 * LOOP_STEP];
            for (int k = 0; k < 5 * LOOP_STEP; k++)
                u[k] = 7;
            all_loops[i]->race->uniforms(u, n, first);
            for (int k = 0; k < 5 * LOOP_STEP; k++)
                assert_true(k < n ? u[k] >= 0 && u[k] < 1 : k < capacity || u[k] == 7);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certain_acceptance_tests_ignore_the_uniform),
        cmocka_unit_test(a_row_of_the_smallest_weight_has_a_pick),
        cmocka_unit_test(picks_find_weights_next_to_the_boundaries_of_parts),
        cmocka_unit_test(a_penalty_reaches_the_last_token_of_the_longest_row),
        cmocka_unit_test(ids_beyond_a_row_are_skipped),
        cmocka_unit_test(a_bias_for_an_unknown_token_is_an_error),
        cmocka_unit_test(neutral_stages_change_no_bit),
        cmocka_unit_test(stages_become_parameters_of_a_device),
        cmocka_unit_test(uniforms_fill_complete_steps_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
