// test_rng_edges.c - coins and picks at their edges, and rows as long as they may be.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static void a_coin_is_certain_before_it_looks_at_a_uniform(void **state)
{
    (void)state;
    static const double sizes[] = { DBL_TRUE_MIN, 3 * DBL_TRUE_MIN, DBL_MIN, 0.1, 1, 3, DBL_MAX, INFINITY };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const double d = sizes[i];
        assert_true(rng_accept_of(LAST_U, d, d)); // where u * den rounds up to den, too
        assert_true(rng_accept_of(LAST_U, INFINITY, d));
        assert_true(rng_accept_of(LAST_U, d, 0));
        assert_false(rng_accept_of(0, 0, d));
        assert_false(rng_accept_of(0, -d, d));
    }
    assert_true(rng_accept_of(0.5, 0.50001, 1));
    assert_false(rng_accept_of(0.5, 0.5, 1)); // u < num / den
    assert_true(rng_accept_of(0, DBL_TRUE_MIN, 1));
}

static const struct address residual = { FOR_RESIDUAL, 1, 0 };

// A row is summed by parts of 512, which are shared out by 4,096: all of its weight in one place beside their ends.
static void a_pick_finds_what_stands_beside_the_end_of_a_part(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 511, 512, 513, 1024, 1025, 4095, 4096, 4097, 4608, 4609, 8192, 8193 };
    double *w = xcalloc(8193, sizeof(*w));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int n = sizes[i];
        const int places[] = { 0, n / 2, n - 1, n > 1 ? n - 2 : 0, n > 512 ? 511 : 0, n > 512 ? 512 : 0 };
        for (size_t k = 0; k < sizeof(places) / sizeof(places[0]); k++) {
            memset(w, 0, (size_t)n * sizeof(*w));
            w[places[k]] = 1;
            for (double u = 0; u < 1; u = u == 0 ? 0.5 : u == 0.5 ? LAST_U : 1)
                assert_int_equal(rng_pick_of(&u, w, n, residual), places[k]);
            struct philox source = philox_source(3, (uint64_t)n);
            for (int p = 0; p < 2; p++) // and by a race
                assert_int_equal(
                    source.rng.pick(&source.rng, w, n, (struct address){ p ? FOR_TOKEN : FOR_BONUS, 1, 0 }), places[k]);
        }
        // Halves: the second begins where u is a half.
        memset(w, 0, (size_t)n * sizeof(*w));
        w[0] = w[n - 1] = 0.5;
        double u = 0.5;
        assert_int_equal(rng_pick_of(&u, w, n, residual), n - 1);
        u = 0.5 - 0x1p-53;
        assert_int_equal(rng_pick_of(&u, w, n, residual), 0);
    }
    free(w);
}

// ---- stages at the ends of rows

static void a_penalty_reaches_the_last_token_of_the_longest_row(void **state)
{
    (void)state;
    struct sampling s = SAMPLING("repetition_penalty", "2");
    float *x = xcalloc(MAX_VOCAB, sizeof(*x));
    static const int32_t said[] = { MAX_VOCAB - 1, 0, MAX_VOCAB - 1, MAX_VOCAB - 64, 63, 64 };
    for (int i = 0; i < MAX_VOCAB; i++)
        x[i] = -100;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        x[said[i]] = 2; // 1 when penalized, once
    x[5] = 1;
    const struct path before = { sizeof(said) / sizeof(said[0]), said };
    sampling_row(&s, x, MAX_VOCAB, MAX_VOCAB, &before);
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        assert_true(x[said[i]] == x[5]);
    assert_true(fabs((double)x[5] - 1.0 / 6) < 1e-6);
    free(x);
    sampling_free(&s);
}

// Stages from pairs of texts, with a bias by pairs of id and number behind them.
static struct sampling with_bias(const char *stage, const char *value, const char *const *bias)
{
    struct settings *m = settings_map(), *b = settings_map();
    for (; *bias != NULL; bias += 2)
        settings_put(b, bias[0], settings_scalar(bias[1]));
    settings_put(m, stage, settings_scalar(value));
    settings_put(m, "logit_bias", b);
    return stages_read(m);
}

// A drafter's row may be narrower than the ids of a bias or of a text.
static void ids_beyond_a_row_are_passed_by(void **state)
{
    (void)state;
    struct sampling s =
        with_bias("repetition_penalty", "2", (const char *const[]){ "2", "1", "3", "50", "4", "50", NULL });
    static const int32_t said[] = { 3, 4, 0, -1 };
    float x[5] = { 2, 1, 0, 7, 7 };
    const struct path before = { 4, said };
    sampling_row(&s, x, 3, 3, &before);
    assert_true(x[3] == 7 && x[4] == 7);
    for (int i = 0; i < 3; i++)
        assert_true(fabs((double)x[i] - 1.0 / 3) < 1e-6); // 2 / 2, 1, 0 + 1
    sampling_free(&s);
}

static void a_bias_must_name_tokens_that_there_are(void **state)
{
    (void)state;
    struct error err = { "" };
    struct sampling s = with_bias("temperature", "0.5", (const char *const[]){ "2", "1", "6", "50", NULL });
    assert_true(sampling_check(&s, 7, &err));
    assert_false(sampling_check(&s, 6, &err));
    assert_string_equal(err.text, "logit_bias: token 6: the vocabulary has the ids 0 to 5");
    sampling_free(&s);
}

static void a_dead_row_goes_through_every_stage(void **state)
{
    (void)state;
    static const char *const all[][3] = { { "temperature", "0", NULL }, { "temperature", "0.5", NULL },
                                          { "top_k", "2", NULL },       { "top_k", "9", NULL },
                                          { "top_p", "0.5", NULL },     { "top_p", "1", NULL },
                                          { "min_p", "0.5", NULL },     { "repetition_penalty", "2", NULL } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        static const int32_t said[] = { 1 };
        const struct path before = { 1, said };
        struct sampling s = stages_read(stages_mapping(all[i]));
        float x[4] = { -INFINITY, NAN, -INFINITY, -INFINITY };
        sampling_row(&s, x, 4, 3, &before);
        assert_true(x[0] == 1 && x[1] == 0 && x[2] == 0 && x[3] == 0);
        sampling_free(&s);
    }
}

static void stages_that_change_nothing_change_no_bit(void **state)
{
    (void)state;
    static const char *const all[][3] = { { "temperature", "1", NULL }, { "top_k", "0", NULL },
                                          { "top_k", "1000", NULL },    { "top_p", "1", NULL },
                                          { "min_p", "0", NULL },       { "repetition_penalty", "1", NULL } };
    struct sampling none = stages_read(settings_map());
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (int which = 0; which < 5; which++) {
            enum { N = 1000 };
            static float a[N], b[N];
            static const int32_t said[] = { 1, 999 };
            const struct path before = { 2, said };
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

static void a_device_is_told_what_the_stages_say(void **state)
{
    (void)state;
    struct row_stages to;
    struct sampling s = SAMPLING("temperature", "0", "top_k", "7", "top_p", "0.75", "min_p", "0.125");
    assert_true(sampling_stages(&s, &to));
    assert_true(to.inverse_temperature == 0 && to.top_k == 7 && to.top_p == 0.75 &&
                fabs(to.below - log(0.125)) < 1e-15);
    sampling_free(&s);
    s = SAMPLING("temperature", "0.25");
    assert_true(sampling_stages(&s, &to));
    assert_true(to.inverse_temperature == 4 && to.top_k == 0 && to.top_p == 1 && to.below == -INFINITY);
    sampling_free(&s);
    s = SAMPLING("repetition_penalty", "1");
    assert_true(sampling_stages(&s, &to) && to.inverse_temperature == 1);
    sampling_free(&s);
    s = SAMPLING("repetition_penalty", "1.1");
    assert_false(sampling_stages(&s, &to)); // it looks back at the text
    sampling_free(&s);
    s = with_bias("temperature", "1", (const char *const[]){ "2", "1", NULL });
    assert_false(sampling_stages(&s, &to));
    sampling_free(&s);
    s = with_bias("temperature", "1", (const char *const[]){ NULL });
    assert_true(sampling_stages(&s, &to));
    sampling_free(&s);
}

static void uniforms_fill_whole_steps_and_no_more(void **state)
{
    (void)state;
    const struct block first = { { 1, 2 }, { 3, 4, 5, 6 } };
    for (int i = 0; all_loops[i] != NULL; i++)
        for (int n = 1; n <= 3 * LOOP_STEP && loops_can(all_loops[i]); n++) {
            const int capacity = (n + LOOP_STEP - 1) / LOOP_STEP * LOOP_STEP;
            double u[5 * LOOP_STEP];
            for (int k = 0; k < 5 * LOOP_STEP; k++)
                u[k] = 7;
            all_loops[i]->uniforms(u, n, first);
            for (int k = 0; k < 5 * LOOP_STEP; k++)
                assert_true(k < n ? u[k] >= 0 && u[k] < 1 : k < capacity || u[k] == 7);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_coin_is_certain_before_it_looks_at_a_uniform),
        cmocka_unit_test(a_pick_finds_what_stands_beside_the_end_of_a_part),
        cmocka_unit_test(a_penalty_reaches_the_last_token_of_the_longest_row),
        cmocka_unit_test(ids_beyond_a_row_are_passed_by),
        cmocka_unit_test(a_bias_must_name_tokens_that_there_are),
        cmocka_unit_test(a_dead_row_goes_through_every_stage),
        cmocka_unit_test(stages_that_change_nothing_change_no_bit),
        cmocka_unit_test(a_device_is_told_what_the_stages_say),
        cmocka_unit_test(uniforms_fill_whole_steps_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
