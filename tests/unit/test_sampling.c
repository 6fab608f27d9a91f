// test_sampling.c - sampling_row: edge cases, rows of a real vocabulary's size, any number of workers.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "kernels/backend.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/plain_stages.h"

enum { VOCAB = 200 };

static void assert_one_hot(const float *row, int n, int at)
{
    for (int i = 0; i < n; i++)
        assert_true(row[i] == (i == at));
}

static void temperature_0_is_one_hot_on_the_argmax_with_the_lowest_id(void **state)
{
    struct sampling s = SAMPLING("temperature", "0", "top_p", "0.5", "top_k", "3", "min_p", "0.5");
    for (int which = 0; which < 50; which++) {
        float row[VOCAB];
        make_logits(row, VOCAB, which);
        int best = 0;
        for (int i = 1; i < VOCAB; i++)
            if (row[i] > row[best])
                best = i;
        sampling_row(&s, row, VOCAB, VOCAB, NULL);
        assert_one_hot(row, VOCAB, best);
    }
    float zeros[] = { -1, -0.0f, 0.0f };
    sampling_row(&s, zeros, 3, 3, NULL);
    assert_one_hot(zeros, 3, 1);
    sampling_free(&s);
}

static void minus_zero_ties_with_zero(void **state)
{
    struct sampling s = SAMPLING("top_k", "1");
    float row[] = { -1, -0.0f, 0.0f };
    sampling_row(&s, row, 3, 3, NULL);
    assert_one_hot(row, 3, 1);
    sampling_free(&s);
}

// A penalty or a bias changes which logit is the largest. A later stage must find token 1 as the argmax: a row in which no token
// remains would be one-hot on token 0.
static void stages_after_a_penalty_find_the_new_argmax(void **state)
{
    static const char *const stage[][2] = {
        { "temperature", "0" }, { "top_k", "1" }, { "top_p", "0.1" }, { "min_p", "1" }, { "temperature", "1e-3" }
    };
    static const int32_t text[] = { 2 };
    for (int i = 0; i < 5; i++) {
        struct sampling down = SAMPLING("repetition_penalty", "2", stage[i][0], stage[i][1]);
        float row[] = { 1, 3, 4, 2 };
        sampling_row(&down, row, 4, 4, &(struct path){ 1, text, 0 });
        assert_one_hot(row, 4, 1);
        sampling_free(&down);

        struct settings *m = stages_mapping((const char *const[]){ stage[i][0], stage[i][1], NULL }),
                        *bias = settings_map();
        settings_put(bias, "1", settings_scalar("9"));
        settings_put(m, "logit_bias", bias);
        struct sampling up = stages_read(m);
        float other[] = { 1, 0, 4, 2 };
        sampling_row(&up, other, 4, 4, NULL);
        assert_one_hot(other, 4, 1);
        sampling_free(&up);
    }
}

static void a_penalty_that_overflows_gives_the_largest_float(void **state)
{
    struct sampling s = SAMPLING("repetition_penalty", "0.01");
    float row[] = { 5, 3e38f, 1e38f };
    sampling_row(&s, row, 3, 3, &(struct path){ 1, (const int32_t[]){ 1 }, 0 });
    assert_one_hot(row, 3, 1);
    sampling_free(&s);
}

static void a_tiny_temperature_does_not_overflow(void **state)
{
    struct sampling s = SAMPLING("temperature", "1e-300");
    float row[] = { 3, 4, 1, -FLT_MAX };
    sampling_row(&s, row, 4, 4, NULL);
    assert_one_hot(row, 4, 1);
    sampling_free(&s);
}

static void padding_gets_probability_0(void **state)
{
    static const char *const stage[][2] = {
        { "temperature", "0" }, { "top_k", "1" }, { "top_p", "0.1" }, { "min_p", "1" }
    };
    for (int i = 0; i < 4; i++) {
        struct sampling s = SAMPLING(stage[i][0], stage[i][1]);
        float row[] = { 1, 2, 3, 50, 60 };
        sampling_row(&s, row, 5, 3, NULL);
        assert_one_hot(row, 5, 2);
        sampling_free(&s);
    }
}

static void a_nan_logit_excludes_its_token(void **state)
{
    float row[] = { NAN, 1, -NAN, 1, NAN };
    sampling_row(&(struct sampling){ 0 }, row, 5, 5, NULL);
    assert_true(row[0] == 0 && row[1] == 0.5f && row[2] == 0 && row[3] == 0.5f && row[4] == 0);
}

static void a_row_without_tokens_is_one_hot_on_token_0(void **state)
{
    static const char *const stage[][2] = {
        { "temperature", "0.5" }, { "temperature", "0" }, { "top_k", "2" }, { "top_p", "0.5" }, { "min_p", "0.5" }
    };
    for (int i = 0; i < 5; i++) {
        struct sampling s = SAMPLING(stage[i][0], stage[i][1]);
        float row[] = { NAN, -INFINITY, NAN };
        sampling_row(&s, row, 3, 3, NULL);
        assert_one_hot(row, 3, 0);
        sampling_free(&s);
    }
}

static void infinity_becomes_the_largest_float(void **state)
{
    struct sampling s = SAMPLING("temperature", "0.5");
    float row[] = { 5, INFINITY, 1e30f };
    sampling_row(&s, row, 3, 3, NULL);
    assert_one_hot(row, 3, 1);
    sampling_free(&s);
}

// A real vocabulary's size with 16 different logits: many ties, so the first 900 of the most probable tokens are kept.
static void ties_keep_the_lowest_ids(void **state)
{
    enum { LARGE = 49152 };
    float *row = xcalloc(LARGE, sizeof(*row)), *logit = xcalloc(LARGE, sizeof(*logit)), max = -INFINITY;
    struct sampling s = SAMPLING("top_k", "1000", "top_p", "0.9");
    make_logits(logit, LARGE, 1);
    for (int i = 0; i < LARGE; i++) {
        row[i] = logit[i];
        max = fmaxf(max, logit[i]);
    }
    sampling_row(&s, row, LARGE, LARGE, NULL);
    int left = 900;
    for (int i = 0; i < LARGE; i++) {
        bool kept = logit[i] == max && left > 0;
        left -= kept;
        assert_true(row[i] == (kept ? 1 / 900.0f : 0));
    }
    assert_int_equal(left, 0);
    sampling_free(&s);
    free(row);
    free(logit);
}

// Rows like those of a model: a few probable tokens and a long tail; steep and flat.
static void make_large(float *logit, int n, int which)
{
    for (int i = 0; i < n; i++) {
        double u = philox_uniform(8, (uint64_t)which, (struct address){ FOR_DRAFT, 0, 0 }, (uint32_t)i);
        double x = which % 3 == 0 ? 3 * u : which % 3 == 1 ? -3 * log(u + 1e-9) : -6 * log(u + 1e-12);
        logit[i] = (float)(which % 2 ? floor(64 * x) / 64 : x);
    }
}

static const char *const large_stages[][2] = {
    { "top_k", "40" },   { "top_k", "5000" }, { "top_p", "0.5" },     { "top_p", "0.9" },
    { "top_p", "0.99" }, { "min_p", "0.05" }, { "temperature", "0" },
};
enum { LARGE_STAGES = sizeof(large_stages) / sizeof(*large_stages) };

// One stage on a row of n logits, against a sorted list.
static void check_large(const char *name, const char *value_text, int n, int which)
{
    float *row = xcalloc((size_t)n, sizeof(*row));
    double *x = xcalloc((size_t)n, sizeof(*x)), *p = xcalloc((size_t)n, sizeof(*p));
    int *id = xcalloc((size_t)n, sizeof(*id));
    struct sampling s = SAMPLING(name, value_text);
    double value = atof(value_text), above = 0, mass = 0;
    int kept = 0;
    make_large(row, n, which);
    for (int k = 0; k < n; k++)
        x[k] = row[k];
    sort_ids(id, x, n);
    plain_softmax(p, x, n);
    if (strcmp(name, "temperature") == 0)
        kept = 1;
    else if (strcmp(name, "top_k") == 0)
        kept = (int)value < n ? (int)value : n;
    else if (strcmp(name, "min_p") == 0)
        while (kept < n && p[id[kept]] >= value * p[id[0]])
            kept++;
    else
        for (; kept == 0 || above < value; kept++)
            above += p[id[kept]];
    for (int k = 0; k < kept; k++)
        mass += p[id[k]];
    sampling_row(&s, row, n, n, NULL);
    for (int k = 0; k < n; k++) {
        double expected = k < kept ? p[id[k]] / mass : 0;
        if (!(fabs(row[id[k]] - expected) <= 1e-6 * expected + 0x1p-53))
            fail_msg("%s %s, %d tokens, row %d: rank %d has %g, expected %g", name, value_text, n, which, k,
                     (double)row[id[k]], expected);
    }
    sampling_free(&s);
    free(row);
    free(x);
    free(p);
    free(id);
}

static void the_most_probable_tokens_of_a_large_row_are_kept(void **state)
{
    for (int which = 0; which < 6; which++)
        for (int i = 0; i < LARGE_STAGES; i++)
            check_large(large_stages[i][0], large_stages[i][1], 49157, which);
}

// Rows are processed in chunks of 4,096, which is also the limit of the candidates that are tried first.
static void row_lengths_around_a_chunk_make_no_difference(void **state)
{
    static const int sizes[] = { 4095, 4096, 4097, 8192, 8193 };
    static const char *const how[][2] = { { "top_k", "4095" },  { "top_k", "4096" }, { "top_k", "4097" },
                                          { "top_p", "0.999" }, { "min_p", "0.3" },  { "temperature", "0" } };
    for (int which = 0; which < 4; which++)
        for (int n = 0; n < 5; n++)
            for (int i = 0; i < 6; i++)
                check_large(how[i][0], how[i][1], sizes[n], which);
}

// Runs the jobs in reverse order.
static void run_backwards(void *self, int jobs, void (*job)(void *of, int number), void *of)
{
    for (int i = jobs - 1; i >= 0; i--)
        job(of, i);
}

static void no_bit_depends_on_the_number_of_workers(void **state)
{
    enum { LARGE = 49157, USED = 49152 };
    static const int32_t text[] = { 3, 4096, 40000, 3, 49151 };
    float *alone = xcalloc(LARGE, sizeof(*alone)), *shared = xcalloc(LARGE, sizeof(*shared));
    for (int how = 0; how < 5; how++) {
        struct sampling s = how == 0   ? SAMPLING("temperature", "1")
                            : how == 1 ? SAMPLING("temperature", "0")
                            : how == 2 ? SAMPLING("temperature", "0.7", "top_p", "0.9")
                            : how == 3 ? SAMPLING("temperature", "1.3", "top_k", "50", "min_p", "0.02")
                                       : SAMPLING("repetition_penalty", "1.3", "temperature", "0.05");
        for (int which = 0; which < 3; which++) {
            make_large(alone, LARGE, which);
            alone[77] = NAN;
            s.workers = (struct workers){ 0 };
            sampling_row(&s, alone, LARGE, USED, &(struct path){ 5, text, 0 });
            for (int threads = 0; threads < 5; threads++) {
                struct error err;
                struct backend *b = threads > 0 ? backend_cpu(threads, &err) : NULL;
                s.workers = b != NULL ? b->workers(b) : (struct workers){ run_backwards, NULL };
                make_large(shared, LARGE, which);
                shared[77] = NAN;
                sampling_row(&s, shared, LARGE, USED, &(struct path){ 5, text, 0 });
                assert_memory_equal(alone, shared, LARGE * sizeof(*alone));
                if (b != NULL)
                    b->destroy(b);
            }
        }
        sampling_free(&s);
    }
    free(alone);
    free(shared);
}

// Sums are exact, so a permutation of the tokens changes no bit: a GPU sums in an order of its own.
static void no_bit_depends_on_the_order_of_tokens(void **state)
{
    enum { LARGE = 49157 };
    float *row = xcalloc(LARGE, sizeof(*row)), *permuted = xcalloc(LARGE, sizeof(*permuted));
    double *p = xcalloc(4 * LARGE, sizeof(*p)), *q = p + LARGE, *p2 = q + LARGE, *q2 = p2 + LARGE;
    int *to = xcalloc(LARGE, sizeof(*to));
    for (int i = 0; i < LARGE; i++)
        to[i] = i;
    for (int i = LARGE - 1; i > 0; i--) {
        const int k = (int)(philox_uniform(5, 0, (struct address){ FOR_DRAFT, 0, 0 }, (uint32_t)i) * (i + 1)),
                  was = to[i];
        to[i] = to[k], to[k] = was;
    }
    for (int how = 0; how < 5; how++) {
        struct sampling s = how == 0   ? SAMPLING("temperature", "1")
                            : how == 1 ? SAMPLING("temperature", "4")
                            : how == 2 ? SAMPLING("temperature", "0.7", "top_p", "0.9")
                            : how == 3 ? SAMPLING("temperature", "1.3", "top_k", "500", "min_p", "0.0001")
                                       : SAMPLING("top_p", "0.999");
        for (uint32_t which = 0; which < 4; which++) {
            for (int i = 0; i < LARGE; i++) {
                const double u = philox_uniform(6, which, (struct address){ FOR_DRAFT, 0, 0 }, (uint32_t)i);
                row[i] = permuted[to[i]] = (float)(which == 0 ? 3 * u : -log(u) * which);
            }
            sampling_row(&s, row, LARGE, LARGE, NULL);
            sampling_row(&s, permuted, LARGE, LARGE, NULL);
            dist_from_row(which % 2 == 0 ? q : p, row, LARGE); // p from an odd row, q from the row before it
            dist_from_row(which % 2 == 0 ? q2 : p2, permuted, LARGE);
            for (int i = 0; i < LARGE; i++)
                assert_true(row[i] == permuted[to[i]]);
            if (which % 2 == 0)
                continue;
            assert_true(dist_sum(p, LARGE) == 1 && dist_sum(q2, LARGE) == 1);
            assert_true(dist_residual(p, q, LARGE) == dist_residual(p2, q2, LARGE));
            assert_true(dist_scaled_residual(p, 0.9, q, LARGE) == dist_scaled_residual(p2, 0.9, q2, LARGE));
            assert_true(dist_remove(p, LARGE, 7) == dist_remove(p2, LARGE, to[7]));
            assert_true(dist_sum(p, LARGE) == 1);
            for (int i = 0; i < LARGE; i++)
                assert_true(p[i] == p2[to[i]]);
        }
        sampling_free(&s);
    }
    free(row), free(permuted), free(p), free(to);
}

static void a_vocabulary_of_one_gives_probability_1(void **state)
{
    struct sampling s = SAMPLING("temperature", "0.3", "top_k", "1000", "top_p", "0.9", "min_p", "0.1");
    float row[] = { -3 };
    sampling_row(&s, row, 1, 1, NULL);
    assert_one_hot(row, 1, 0);
    sampling_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_0_is_one_hot_on_the_argmax_with_the_lowest_id),
        cmocka_unit_test(minus_zero_ties_with_zero),
        cmocka_unit_test(stages_after_a_penalty_find_the_new_argmax),
        cmocka_unit_test(a_penalty_that_overflows_gives_the_largest_float),
        cmocka_unit_test(a_tiny_temperature_does_not_overflow),
        cmocka_unit_test(padding_gets_probability_0),
        cmocka_unit_test(a_nan_logit_excludes_its_token),
        cmocka_unit_test(a_row_without_tokens_is_one_hot_on_token_0),
        cmocka_unit_test(infinity_becomes_the_largest_float),
        cmocka_unit_test(ties_keep_the_lowest_ids),
        cmocka_unit_test(the_most_probable_tokens_of_a_large_row_are_kept),
        cmocka_unit_test(row_lengths_around_a_chunk_make_no_difference),
        cmocka_unit_test(no_bit_depends_on_the_number_of_workers),
        cmocka_unit_test(no_bit_depends_on_the_order_of_tokens),
        cmocka_unit_test(a_vocabulary_of_one_gives_probability_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
