// test_sampling.c - each stage against a plain version of itself that sorts, and the row that comes out at the end.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "kernels/backend.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"
#include "tests/check.h"

enum { VOCAB = 200 };

// Logits of every kind: smooth, in steps of 1/2 (many ties), all equal, with dead tokens, steep.
static void make_logits(float *logit, int n, int which)
{
    for (int i = 0; i < n; i++) {
        double u = philox_uniform(7, (uint64_t)which, (struct address){ FOR_DRAFT, 0, 0 }, (uint32_t)i);
        double v = philox_uniform(7, (uint64_t)which, (struct address){ FOR_DRAFT, 1, 0 }, (uint32_t)i);
        double x = 8 * u - 4;
        switch (which % 5) {
        case 1:
            x = floor(2 * x) / 2;
            break;
        case 2:
            x = -1.25;
            break;
        case 3:
            x = v < 0.3 ? -INFINITY : x;
            break;
        case 4:
            x *= 30;
            break;
        }
        logit[i] = (float)x;
    }
}

// ---- reading

// {key: value, ...} from pairs of texts that end with NULL.
static struct settings *mapping(const char *const *pair)
{
    struct settings *s = settings_map();
    for (; pair[0]; pair += 2)
        settings_put(s, pair[0], settings_scalar(pair[1]));
    return s;
}

static struct sampling read_or_fail(struct settings *s)
{
    struct sampling to;
    struct error err = { "" };
    if (!sampling_read(s, &to, &err))
        fail_msg("%s", err.text);
    settings_free(s);
    return to;
}

#define SAMPLING(...) read_or_fail(mapping((const char *const[]){ __VA_ARGS__, NULL }))

static void stages_act_in_one_order_whatever_the_file_says(void **state)
{
    (void)state;
    struct sampling s =
        SAMPLING("min_p", "0.1", "temperature", "0.7", "top_p", "0.9", "repetition_penalty", "1.2", "top_k", "5");
    static const char *const order[] = { "repetition_penalty", "temperature", "top_k", "top_p", "min_p" };
    assert_int_equal(s.n, 5);
    for (int k = 0; k < s.n; k++)
        assert_string_equal(s.step[k].stage->name, order[k]);
    sampling_free(&s);
}

static void nothing_said_is_no_stage(void **state)
{
    (void)state;
    struct sampling s;
    struct error err;
    assert_true(sampling_read(NULL, &s, &err));
    assert_int_equal(s.n, 0);
    s = SAMPLING(NULL);
    assert_int_equal(s.n, 0);
}

static void what_cannot_be_read_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const bad[][4] = {
        { "temprature", "0.7", "no stage \"temprature\"" },
        { "temperature", "-1", "temperature" },
        { "temperature", "hot", "temperature" },
        { "top_k", "2.5", "top_k" },
        { "top_p", "1.5", "top_p" },
        { "min_p", "-0.1", "min_p" },
        { "repetition_penalty", "0", "repetition_penalty" },
        { "logit_bias", "3", "logit_bias" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct settings *m = mapping((const char *const[]){ "top_k", "4", bad[i][0], bad[i][1], NULL });
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

static void greedy_is_temperature_0(void **state)
{
    (void)state;
    static const char *const value[] = { "0", "0.5", "1" };
    for (int i = 0; i < 3; i++) {
        struct sampling s = SAMPLING("temperature", value[i]);
        assert_true(sampling_is_greedy(&s) == (i == 0));
        sampling_free(&s);
    }
    struct sampling none = { 0 };
    assert_false(sampling_is_greedy(&none));
}

// ---- the plain version: doubles, and a sorted list of ids

static const double *sorted_by;

static int likelier_first(const void *a, const void *b)
{
    int i = *(const int *)a, k = *(const int *)b;
    if (sorted_by[i] != sorted_by[k])
        return sorted_by[i] > sorted_by[k] ? -1 : 1;
    return i - k; // ties: the lowest id
}

static void plain_softmax(double *p, const double *x, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, x[i]);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp(x[i] - max);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

struct plain {
    double penalty, temperature, top_p, min_p; // neutral: 1, 1, 1, 0
    int top_k;                                 // neutral: 0
    const struct path *before;
};

static void plain_row(const struct plain *o, double *x, double *p, int n)
{
    int id[VOCAB];
    for (int t = 0; t < n && o->before; t++)
        for (int i = 0; i < o->before->n; i++)
            if (o->before->token[i] == t) {
                x[t] = x[t] < 0 ? x[t] * o->penalty : x[t] / o->penalty;
                break;
            }
    for (int i = 0; i < n; i++)
        x[i] /= o->temperature;
    for (int i = 0; i < n; i++)
        id[i] = i;
    sorted_by = x;
    qsort(id, (size_t)n, sizeof(*id), likelier_first);
    for (int r = 0; r < n && o->top_k > 0; r++)
        if (r >= o->top_k)
            x[id[r]] = -INFINITY;
    plain_softmax(p, x, n);
    double mass = 0;
    for (int r = 0; r < n; r++) {
        if (mass >= o->top_p && r > 0 && o->top_p < 1)
            x[id[r]] = -INFINITY;
        mass += p[id[r]];
    }
    plain_softmax(p, x, n);
    double most = p[id[0]];
    for (int i = 0; i < n; i++)
        if (p[i] < o->min_p * most)
            x[i] = -INFINITY;
    plain_softmax(p, x, n);
}

static void assert_same_row(const float *row, const double *p, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        assert_true(fabs(row[i] - p[i]) <= 1e-6 * p[i] + 1e-38);
        assert_true(p[i] > 0 ? row[i] > 0 || p[i] < 1e-37 : row[i] == 0); // floats end where doubles do not
        sum += row[i];
    }
    assert_true(fabs(sum - 1) < 1e-5);
}

static void assert_stages_agree(struct sampling s, struct plain o)
{
    float row[VOCAB];
    double x[VOCAB], p[VOCAB];
    for (int which = 0; which < 50; which++) {
        make_logits(row, VOCAB, which);
        for (int i = 0; i < VOCAB; i++)
            x[i] = row[i];
        plain_row(&o, x, p, VOCAB);
        sampling_row(&s, row, VOCAB, VOCAB, o.before);
        assert_same_row(row, p, VOCAB);
    }
    sampling_free(&s);
}

static const struct plain neutral = { 1, 1, 1, 0, 0, NULL };

static void no_stages_are_a_softmax(void **state)
{
    (void)state;
    assert_stages_agree((struct sampling){ 0 }, neutral);
    assert_stages_agree(SAMPLING("temperature", "1", "top_k", "0", "top_p", "1", "min_p", "0"), neutral);
}

static void temperature_divides(void **state)
{
    (void)state;
    static const double t[] = { 0.1, 0.5, 0.7, 1.5, 10 };
    for (int i = 0; i < 5; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%g", t[i]);
        struct plain o = neutral;
        o.temperature = t[i];
        struct sampling s = SAMPLING("temperature", text);
        float row[VOCAB];
        double x[VOCAB], p[VOCAB];
        for (int which = 0; which < 50; which++) {
            make_logits(row, VOCAB, which);
            for (int k = 0; k < VOCAB; k++)
                x[k] = row[k];
            plain_row(&o, x, p, VOCAB);
            sampling_row(&s, row, VOCAB, VOCAB, NULL);
            for (int k = 0; k < VOCAB; k++) // logits are floats: their rounding is worth |x / t| * 2^-24
                assert_true(fabs(row[k] - p[k]) <= (1e-6 + 240 / t[i] * 0x1p-23) * p[k] + 1e-38);
        }
        sampling_free(&s);
    }
}

static void top_k_keeps_exactly_k(void **state)
{
    (void)state;
    static const int k[] = { 1, 2, 7, 50, 199, 200, 1000 };
    for (int i = 0; i < 7; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", k[i]);
        struct plain o = neutral;
        o.top_k = k[i];
        assert_stages_agree(SAMPLING("top_k", text), o);
    }
}

static void top_p_keeps_the_smallest_set_with_the_mass(void **state)
{
    (void)state;
    static const char *const p[] = { "0", "0.1013", "0.3113", "0.5513", "0.9013", "0.9513", "0.9988", "1" };
    // none a multiple of 1/200, where the mass of equals would be p but for rounding
    for (int i = 0; i < 8; i++) {
        struct plain o = neutral;
        o.top_p = atof(p[i]);
        assert_stages_agree(SAMPLING("top_p", p[i]), o);
    }
}

static void min_p_keeps_a_share_of_the_likeliest(void **state)
{
    (void)state;
    static const char *const p[] = { "0", "0.013", "0.1", "0.37", "1" };
    for (int i = 0; i < 5; i++) {
        struct plain o = neutral;
        o.min_p = atof(p[i]);
        assert_stages_agree(SAMPLING("min_p", p[i]), o);
    }
}

static void stages_work_on_what_earlier_ones_left(void **state)
{
    (void)state;
    static const int32_t token[] = { 3, 77, 3, 150 };
    struct path before = { 4, token };
    struct plain o = { 1.25, 0.5, 0.83, 0.07, 40, &before };
    assert_stages_agree(
        SAMPLING("repetition_penalty", "1.25", "temperature", "0.5", "top_p", "0.83", "min_p", "0.07", "top_k", "40"),
        o);
}

static void a_token_is_penalized_once_however_often_it_came(void **state)
{
    (void)state;
    static const int32_t token[] = { 5, 199, 5, 0, 5, 64, 63, 64, 100000 }; // the last is beyond this row
    struct path before = { 9, token };
    struct plain o = { 2, 1, 1, 0, 0, &before }; // a power of two: exact in floats too
    assert_stages_agree(SAMPLING("repetition_penalty", "2"), o);
}

// The row of a draft's node is a function of the path to it.
static void a_drafts_own_tokens_are_penalized(void **state)
{
    (void)state;
    struct sampling s = SAMPLING("repetition_penalty", "2");
    int32_t token[] = { 0, 1 };
    float root[] = { 1, 1, 2, -1 }, node[] = { 1, 1, 2, -1 };
    sampling_row(&s, root, 4, 4, &(struct path){ 1, token });
    sampling_row(&s, node, 4, 4, &(struct path){ 2, token });
    assert_true(fabsf(root[1] / root[0] - expf(0.5f)) < 1e-5f && fabsf(node[1] / node[0] - 1) < 1e-5f);
    sampling_free(&s);
}

static void biases_are_added_and_can_ban(void **state)
{
    (void)state;
    struct settings *m = settings_map(), *bias = settings_map();
    settings_put(bias, "1", settings_scalar("2.5"));
    settings_put(bias, "3", settings_scalar("-1e9"));
    settings_put(bias, "4000", settings_scalar("1")); // beyond this row
    settings_put(m, "logit_bias", bias);
    struct sampling s = read_or_fail(m);
    float row[] = { 0.5f, -1, 0.25f, 9 };
    sampling_row(&s, row, 4, 4, NULL);
    double e[] = { exp(0.5), exp(1.5), exp(0.25) }, sum = e[0] + e[1] + e[2];
    for (int i = 0; i < 3; i++)
        assert_true(fabs(row[i] - e[i] / sum) < 1e-6);
    assert_true(row[3] == 0);
    sampling_free(&s);
}

// ---- at the edges

static void assert_one_hot(const float *row, int n, int at)
{
    for (int i = 0; i < n; i++)
        assert_true(row[i] == (i == at));
}

static void temperature_0_is_one_hot_on_the_lowest_of_the_likeliest(void **state)
{
    (void)state;
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
    (void)state;
    struct sampling s = SAMPLING("top_k", "1");
    float row[] = { -1, -0.0f, 0.0f };
    sampling_row(&s, row, 3, 3, NULL);
    assert_one_hot(row, 3, 1);
    sampling_free(&s);
}

static void penalties_act_at_temperature_0_too(void **state)
{
    (void)state;
    struct sampling s = SAMPLING("temperature", "0", "repetition_penalty", "2");
    float row[] = { 3, 4, 1 };
    sampling_row(&s, row, 3, 3, &(struct path){ 1, (const int32_t[]){ 1 } });
    assert_one_hot(row, 3, 0);
    sampling_free(&s);
}

static void a_tiny_temperature_is_nearly_0_and_no_overflow(void **state)
{
    (void)state;
    struct sampling s = SAMPLING("temperature", "1e-300");
    float row[] = { 3, 4, 1, -FLT_MAX };
    sampling_row(&s, row, 4, 4, NULL);
    assert_one_hot(row, 4, 1);
    sampling_free(&s);
}

static void padding_gets_nothing(void **state)
{
    (void)state;
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

static void nan_rules_its_token_out(void **state)
{
    (void)state;
    float row[] = { NAN, 1, -NAN, 1, NAN };
    sampling_row(&(struct sampling){ 0 }, row, 5, 5, NULL);
    assert_true(row[0] == 0 && row[1] == 0.5f && row[2] == 0 && row[3] == 0.5f && row[4] == 0);
}

static void a_dead_row_is_one_hot_on_token_0(void **state)
{
    (void)state;
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

static void infinity_is_the_largest_number(void **state)
{
    (void)state;
    struct sampling s = SAMPLING("temperature", "0.5");
    float row[] = { 5, INFINITY, 1e30f };
    sampling_row(&s, row, 3, 3, NULL);
    assert_one_hot(row, 3, 1);
    sampling_free(&s);
}

// A real vocabulary's size, in 16 different logits: ties everywhere, so the first 900 of the likeliest must be left.
static void among_equals_the_lowest_ids_stay(void **state)
{
    (void)state;
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
        bool stays = logit[i] == max && left > 0;
        left -= stays;
        assert_true(row[i] == (stays ? 1 / 900.0f : 0));
    }
    assert_int_equal(left, 0);
    sampling_free(&s);
    free(row);
    free(logit);
}

// Rows like a model's: a few likely tokens, a long tail; steep and flat, with some that are ruled out.
static void make_large(float *logit, int n, int which)
{
    for (int i = 0; i < n; i++) {
        double u = philox_uniform(8, (uint64_t)which, (struct address){ FOR_DRAFT, 0, 0 }, (uint32_t)i);
        double x = which % 3 == 0 ? 3 * u : which % 3 == 1 ? -3 * log(u + 1e-9) : -6 * log(u + 1e-12);
        logit[i] = (float)(which % 2 ? floor(64 * x) / 64 : x);
    }
}

static void of_a_large_row_too_the_likeliest_stay(void **state)
{
    (void)state;
    enum { LARGE = 49157 };
    static const char *const stage[][2] = {
        { "top_k", "40" },   { "top_k", "5000" }, { "top_p", "0.5" },     { "top_p", "0.9" },
        { "top_p", "0.99" }, { "min_p", "0.05" }, { "temperature", "0" },
    };
    float *row = xcalloc(LARGE, sizeof(*row));
    double *x = xcalloc(LARGE, sizeof(*x)), *p = xcalloc(LARGE, sizeof(*p));
    int *id = xcalloc(LARGE, sizeof(*id));
    for (int which = 0; which < 6; which++)
        for (size_t i = 0; i < sizeof(stage) / sizeof(*stage); i++) {
            struct sampling s = SAMPLING(stage[i][0], stage[i][1]);
            double value = atof(stage[i][1]), above = 0;
            int kept = 0;
            make_large(row, LARGE, which);
            for (int k = 0; k < LARGE; k++) {
                x[k] = row[k];
                id[k] = k;
            }
            sorted_by = x;
            qsort(id, LARGE, sizeof(*id), likelier_first);
            plain_softmax(p, x, LARGE);
            if (strcmp(stage[i][0], "temperature") == 0)
                kept = 1;
            else if (strcmp(stage[i][0], "top_k") == 0)
                kept = (int)value;
            else if (strcmp(stage[i][0], "min_p") == 0)
                while (kept < LARGE && p[id[kept]] >= value * p[id[0]])
                    kept++;
            else
                for (; kept == 0 || above < value; kept++)
                    above += p[id[kept]];
            double mass = 0;
            for (int k = 0; k < kept; k++)
                mass += p[id[k]];
            sampling_row(&s, row, LARGE, LARGE, NULL);
            for (int k = 0; k < LARGE; k++) {
                double wanted = k < kept ? p[id[k]] / mass : 0;
                assert_true(fabs(row[id[k]] - wanted) <= 1e-6 * wanted + 1e-38);
            }
            sampling_free(&s);
        }
    free(row);
    free(x);
    free(p);
    free(id);
}

// Takes jobs from behind.
static void run_backwards(void *self, int jobs, void (*job)(void *of, int number), void *of)
{
    (void)self;
    for (int i = jobs - 1; i >= 0; i--)
        job(of, i);
}

static void no_bit_depends_on_who_works_on_a_row(void **state)
{
    (void)state;
    enum { LARGE = 49157, LIVE = 49152 };
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
            sampling_row(&s, alone, LARGE, LIVE, &(struct path){ 5, text });
            for (int threads = 0; threads < 5; threads++) {
                struct error err;
                struct backend *b = threads > 0 ? backend_cpu(threads, &err) : NULL;
                s.workers = b != NULL ? b->workers(b) : (struct workers){ run_backwards, NULL };
                make_large(shared, LARGE, which);
                shared[77] = NAN;
                sampling_row(&s, shared, LARGE, LIVE, &(struct path){ 5, text });
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

static void a_vocabulary_of_one_has_no_choice(void **state)
{
    (void)state;
    struct sampling s = SAMPLING("temperature", "0.3", "top_k", "1000", "top_p", "0.9", "min_p", "0.1");
    float row[] = { -3 };
    sampling_row(&s, row, 1, 1, NULL);
    assert_one_hot(row, 1, 0);
    sampling_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_act_in_one_order_whatever_the_file_says),
        cmocka_unit_test(nothing_said_is_no_stage),
        cmocka_unit_test(what_cannot_be_read_is_refused_with_a_reason),
        cmocka_unit_test(greedy_is_temperature_0),
        cmocka_unit_test(no_stages_are_a_softmax),
        cmocka_unit_test(temperature_divides),
        cmocka_unit_test(top_k_keeps_exactly_k),
        cmocka_unit_test(top_p_keeps_the_smallest_set_with_the_mass),
        cmocka_unit_test(min_p_keeps_a_share_of_the_likeliest),
        cmocka_unit_test(stages_work_on_what_earlier_ones_left),
        cmocka_unit_test(a_token_is_penalized_once_however_often_it_came),
        cmocka_unit_test(a_drafts_own_tokens_are_penalized),
        cmocka_unit_test(biases_are_added_and_can_ban),
        cmocka_unit_test(temperature_0_is_one_hot_on_the_lowest_of_the_likeliest),
        cmocka_unit_test(minus_zero_ties_with_zero),
        cmocka_unit_test(penalties_act_at_temperature_0_too),
        cmocka_unit_test(a_tiny_temperature_is_nearly_0_and_no_overflow),
        cmocka_unit_test(padding_gets_nothing),
        cmocka_unit_test(nan_rules_its_token_out),
        cmocka_unit_test(a_dead_row_is_one_hot_on_token_0),
        cmocka_unit_test(infinity_is_the_largest_number),
        cmocka_unit_test(among_equals_the_lowest_ids_stay),
        cmocka_unit_test(of_a_large_row_too_the_likeliest_stay),
        cmocka_unit_test(no_bit_depends_on_who_works_on_a_row),
        cmocka_unit_test(a_vocabulary_of_one_has_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
