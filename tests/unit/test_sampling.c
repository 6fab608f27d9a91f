// test_sampling.c - sampling stages: reading them, edges, rows of a real vocabulary's size, any number of workers and any order of tokens. Each
// stage on all kinds of rows is compared with a twin (test_stage_twin.c).
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/error.h"
#include "core/memory.h"
#include "core/row_stages.h"
#include "core/settings.h"
#include "kernels/backend.h"
#include "sampling/dist.h"
#include "sampling/logits.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/plain_stages.h"

// ---- reading

// As in "temperature=0.5,top_k=3".
static struct sampling sampling_of(const char *text)
{
    struct error err;
    struct settings *s = settings_pairs(text, "sampling", &err);
    assert_ok(s != NULL, err);
    return stages_read(s);
}

TEST(stages_act_in_one_order_for_any_order_in_the_file)
{
    struct sampling s = sampling_of("min_p=0.1,temperature=0.7,top_p=0.9,repetition_penalty=1.2,top_k=5"), none;
    static const char *const order[] = { "repetition_penalty", "temperature", "top_k", "top_p", "min_p" };
    struct error err;
    assert_int_equal(s.n, 5);
    for (int k = 0; k < s.n; k++)
        assert_string_equal(s.step[k].stage->name, order[k]);
    sampling_free(&s);
    assert_true(sampling_read(NULL, &none, &err) && none.n == 0);
}

TEST(invalid_settings_are_refused_with_a_reason)
{
    static const char *const bad[][4] = {
        { "temprature", "0.7",
          "no stage \"temprature\" (it has: repetition_penalty, frequency_penalty, presence_penalty, logit_bias, temperature, top_k, "
          "top_p, min_p" },
        { "temperature", "-1", "temperature" },
        { "temperature", "hot", "temperature" },
        { "top_k", "2.5", "top_k" },
        { "top_p", "1.5", "top_p" },
        { "min_p", "-0.1", "min_p" },
        { "repetition_penalty", "0", "repetition_penalty" },
        { "frequency_penalty", "2.1", "frequency_penalty" },
        { "presence_penalty", "-3", "presence_penalty" },
        { "logit_bias", "3", "logit_bias" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct settings *m = stages_mapping((const char *const[]){ "top_k", "4", bad[i][0], bad[i][1], NULL });
        struct sampling s;
        struct error err = { "" };
        assert_false(sampling_read(m, &s, &err));
        assert_non_null(strstr(err.text, bad[i][2]));
        assert_int_equal(s.n, 0);
        settings_free(m);
    }
    struct settings *scalar = settings_scalar("0.7");
    struct sampling s;
    struct error err;
    assert_false(sampling_read(scalar, &s, &err));
    settings_free(scalar);
}

TEST(a_bias_for_an_unknown_token_is_an_error)
{
    struct error err = { "" };
    struct sampling s = sampling_of("temperature=0.5,logit_bias={2: 1, 6: 50}");
    assert_true(sampling_check(&s, 7, &err));
    assert_false(sampling_check(&s, 6, &err));
    assert_string_equal(err.text, "logit_bias: token 6: the vocabulary has the ids 0 to 5");
    sampling_free(&s);
}

TEST(greedy_is_temperature_0)
{
    static const char *const value[] = { "0", "0.5", "1" };
    for (int i = 0; i < 3; i++) {
        struct sampling s = SAMPLING("temperature", value[i]);
        assert_true(sampling_is_greedy(&s) == (i == 0));
        sampling_free(&s);
    }
    struct sampling none = { 0 };
    assert_false(sampling_is_greedy(&none));
}

// ---- devices

// What a device is given of stages; none of it: they depend on the text or are not a device's.
TEST(stages_become_parameters_of_a_device)
{
    static const struct {
        const char *stages;
        bool on_device;
        struct row_stages to;
    } cases[] = {
        { "temperature=0,top_k=7,top_p=0.75,min_p=0.125", true, { 0, 7, 0.75, -2.0794415416798357 } },
        { "temperature=0.25", true, { 4, 0, 1, -INFINITY } },
        { "repetition_penalty=1", true, { 1, 0, 1, -INFINITY } },
        { "temperature=1,logit_bias={}", true, { 1, 0, 1, -INFINITY } },
        { "repetition_penalty=1.1", false, { 1, 0, 1, 0 } },
        { "temperature=1,logit_bias={2: 1}", false, { 1, 0, 1, 0 } },
    };
    const struct stage added = { .name = "added" };
    struct row_stages to;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct row_stages *expected = &cases[i].to;
        struct sampling s = sampling_of(cases[i].stages);
        assert_int_equal(sampling_row_stages(&s, &to), cases[i].on_device);
        assert_true(!cases[i].on_device || (to.inverse_temperature == expected->inverse_temperature &&
                                            to.top_k == expected->top_k && to.top_p == expected->top_p &&
                                            (to.below == expected->below || fabs(to.below - expected->below) < 1e-15)));
        const struct stage *own = s.step[0].stage;
        s.step[0].stage = &added;
        assert_false(sampling_row_stages(&s, &to));
        s.step[0].stage = own;
        sampling_free(&s);
    }
}

// ---- edges

// Rows that become one-hot. A later stage must find the argmax that a penalty or a bias made: a row in which no token remains is one-hot on
// token 0.
TEST(rows_at_edges_become_one_hot)
{
    static const char *const each[] = { "temperature=0", "top_k=1", "top_p=0.1", "min_p=1", "temperature=1e-3" };
    static const struct {
        const char *before; // this stage; then each of these
        int n, used, at;
        float row[5];
        int text; // the token before it; -1: none
    } cases[] = {
        { "temperature=1", 3, 3, 1, { -1, 0.0f, -20 }, -1 },
        { "temperature=1e-300", 4, 4, 1, { 3, 4, 1, -FLT_MAX }, -1 },
        { "repetition_penalty=2", 4, 4, 1, { 1, 3, 4, 2 }, 2 },
        { "repetition_penalty=0.01", 3, 3, 1, { 5, 3e38f, 1e38f }, 1 }, // overflows: the largest float
        { "logit_bias={1: 9}", 4, 4, 1, { 1, 0, 4, 2 }, -1 },
        { "logit_bias={3: -1e9, 4000: 1}", 4, 4, 0, { 5, -1, 0.25f, 9 }, -1 },
        { "repetition_penalty=1", 5, 3, 2, { 1, 2, 13, 50, 60 }, -1 }, // padding
        { "repetition_penalty=1", 4, 4, 3, { NAN, 1, -NAN, 9 }, -1 },
        { "repetition_penalty=1", 3, 3, 0, { NAN, -INFINITY, NAN }, -1 },
        { "repetition_penalty=1", 3, 3, 1, { 5, INFINITY, 1e30f }, -1 },
        { "repetition_penalty=1", 1, 1, 0, { -3 }, -1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (int k = 0; k < 5; k++) {
            const bool repeats = strncmp(cases[i].before, each[k], 6) == 0;
            char *text = repeats ? xstrdup(each[k]) : xformat("%s,%s", cases[i].before, each[k]);
            struct sampling s = sampling_of(text);
            float row[5];
            memcpy(row, cases[i].row, sizeof(row));
            sampling_row(&s, row, cases[i].n, cases[i].used, &(struct path){ cases[i].text >= 0, &cases[i].text, 0 });
            for (int x = 0; x < cases[i].n; x++)
                if (!(fabsf(row[x] - (float)(x == cases[i].at)) < 1e-6f))
                    fail_msg("row %zu, %s: token %d has %g", i, text, x, (double)row[x]);
            sampling_free(&s);
            free(text);
        }
}

TEST(the_lowest_id_of_equal_ones_is_kept)
{
    static const char *const each[] = { "temperature=0", "top_k=1" };
    for (int k = 0; k < 2; k++) {
        struct sampling s = sampling_of(each[k]);
        float zeros[] = { -1, -0.0f, 0.0f };
        sampling_row(&s, zeros, 3, 3, NULL);
        assert_true(zeros[0] == 0 && zeros[1] == 1 && zeros[2] == 0);
        sampling_free(&s);
    }
}

// The threshold is a double. Between two neighbouring floats it drops the lower and keeps the upper one. Rounded to a float, it
// would keep a logit just below it for half of all shares.
TEST(min_p_cuts_between_two_neighbouring_floats)
{
    int rounds_down = 0;
    for (int i = 1; i < 100; i++) {
        char text[16];
        snprintf(text, sizeof(text), "0.%02d", i);
        const double min = 3 + log(atof(text));
        const float near = (float)min, under = (double)near < min ? near : nextafterf(near, -INFINITY),
                    over = nextafterf(under, INFINITY);
        struct sampling s = SAMPLING("min_p", text);
        float row[4] = { over, 3, under, -50 };
        rounds_down += near == under;
        sampling_row(&s, row, 4, 4, NULL);
        assert_true(row[0] > 0 && row[1] > 0 && row[2] == 0 && row[3] == 0);
        sampling_free(&s);
    }
    assert_true(rounds_down > 20);
}

TEST(a_penalty_reaches_the_last_token_of_the_longest_row)
{
    struct sampling s = sampling_of("repetition_penalty=2");
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

// Ids of a bias or of the text may exceed a drafter's smaller vocabulary.
TEST(ids_beyond_a_row_are_skipped)
{
    struct sampling s = sampling_of("repetition_penalty=2,logit_bias={2: 1, 3: 50, 4: 50}");
    static const int32_t text[] = { 3, 4, 0, -1 };
    float x[5] = { 2, 1, 0, 7, 7 };
    const struct path before = { 4, text, 0 };
    sampling_row(&s, x, 3, 3, &before);
    assert_true(x[3] == 7 && x[4] == 7);
    for (int i = 0; i < 3; i++)
        assert_true(fabs((double)x[i] - 1.0 / 3) < 1e-6); // 2 / 2, 1, 0 + 1
    sampling_free(&s);
}

// Against the definition, with counts from sorted tokens: ids in several ranges of the counts, a prompt, ids beyond the row.
TEST(generated_tokens_lose_by_their_counts_and_once)
{
    enum { LONG = 100000, PROMPT = 3 };
    static float row[LONG];
    static double x[LONG], p[LONG];
    static const int32_t token[] = { 7, 99999, 40000, 40000, 7, 99999, 40000, 32767, 32768, 7, 40000, -1, 100000 };
    const int n = sizeof(token) / sizeof(*token);
    struct sampling s = sampling_of("presence_penalty=-0.75,frequency_penalty=1.25");
    for (int i = 0; i < LONG; i++)
        x[i] = row[i] = (float)(i * 7919 % 1000) / 250;
    for (int i = PROMPT; i < n; i++) {
        bool first = true;
        for (int k = PROMPT; k < i; k++)
            first = first && token[k] != token[i];
        if (token[i] >= 0 && token[i] < LONG)
            x[token[i]] -= first ? 1.25 - 0.75 : 1.25;
    }
    plain_softmax(p, x, LONG);
    sampling_row(&s, row, LONG, LONG, &(struct path){ n, token, PROMPT });
    for (int i = 0; i < LONG; i++)
        assert_true(fabs((double)row[i] - p[i]) <= 2e-6 * p[i]);
    sampling_free(&s);
}

TEST(neutral_stages_change_no_bit)
{
    static const char *const all[] = { "temperature=1", "top_k=0", "top_k=1000",
                                       "top_p=1",       "min_p=0", "repetition_penalty=1" };
    enum { N = 1000 };
    static float a[N], b[N];
    static const int32_t text[] = { 1, 999 };
    const struct path before = { 2, text, 0 };
    for (int i = 0; i < 6 * 5; i++) {
        struct sampling s = sampling_of(all[i / 5]);
        make_logits(a, N, i % 5);
        memcpy(b, a, sizeof(b));
        sampling_row(&s, a, N, N - 3, &before);
        sampling_row(&(struct sampling){ 0 }, b, N, N - 3, &before);
        assert_memory_equal(a, b, sizeof(a));
        sampling_free(&s);
    }
}

// ---- large rows

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

TEST(the_most_probable_tokens_of_a_large_row_are_kept)
{
    for (int which = 0; which < 6; which++)
        for (int i = 0; i < LARGE_STAGES; i++)
            check_large(large_stages[i][0], large_stages[i][1], 49157, which);
}

// Rows are processed in chunks of 4,096, which is also the limit of the candidates that are tried first.
TEST(row_lengths_around_a_chunk_make_no_difference)
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

TEST(no_bit_depends_on_the_number_of_workers)
{
    enum { LARGE = 49157, USED = 49152 };
    static const int32_t text[] = { 3, 4096, 40000, 3, 49151 };
    float *alone = xcalloc(LARGE, sizeof(*alone)), *shared = xcalloc(LARGE, sizeof(*shared));
    for (int how = 0; how < 5; how++) {
        struct sampling s = how == 0   ? sampling_of("temperature=1")
                            : how == 1 ? sampling_of("temperature=0")
                            : how == 2 ? sampling_of("temperature=0.7,top_p=0.9")
                            : how == 3 ? sampling_of("temperature=1.3,top_k=50,min_p=0.02")
                                       : sampling_of("repetition_penalty=1.3,temperature=0.05");
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
TEST(no_bit_depends_on_the_order_of_tokens)
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
        struct sampling s = how == 0   ? sampling_of("temperature=1")
                            : how == 1 ? sampling_of("temperature=4")
                            : how == 2 ? sampling_of("temperature=0.7,top_p=0.9")
                            : how == 3 ? sampling_of("temperature=1.3,top_k=500,min_p=0.0001")
                                       : sampling_of("top_p=0.999");
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

RUN_TESTS(NULL, NULL)
