// test_stages.c - reading the sampling stages, and each stage against a simple version that sorts.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/error.h"
#include "core/row_stages.h"
#include "core/settings.h"
#include "sampling/sampling.h"
#include "tests/support/check.h"
#include "tests/support/plain_stages.h"

enum { VOCAB = 200 };

// ---- reading

static void stages_act_in_one_order_for_any_order_in_the_file(void **state)
{
    struct sampling s =
        SAMPLING("min_p", "0.1", "temperature", "0.7", "top_p", "0.9", "repetition_penalty", "1.2", "top_k", "5");
    static const char *const order[] = { "repetition_penalty", "temperature", "top_k", "top_p", "min_p" };
    assert_int_equal(s.n, 5);
    for (int k = 0; k < s.n; k++)
        assert_string_equal(s.step[k].stage->name, order[k]);
    sampling_free(&s);
}

static void empty_settings_give_no_stages(void **state)
{
    struct sampling s;
    struct error err;
    assert_true(sampling_read(NULL, &s, &err));
    assert_int_equal(s.n, 0);
    s = SAMPLING(NULL);
    assert_int_equal(s.n, 0);
}

static void invalid_settings_are_refused_with_a_reason(void **state)
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

static void greedy_is_temperature_0(void **state)
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

// ---- the plain version: doubles, and a sorted list of ids

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
    sort_ids(id, x, n);
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
    double max = p[id[0]];
    for (int i = 0; i < n; i++)
        if (p[i] < o->min_p * max)
            x[i] = -INFINITY;
    plain_softmax(p, x, n);
}

static void assert_same_row(const float *row, const double *p, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        assert_true(fabs(row[i] - p[i]) <= 1e-6 * p[i] + 0x1p-53);
        assert_true(p[i] > 0 ? row[i] > 0 || p[i] < 0x1.001p-53 : row[i] == 0); // below 2^-53 the row has 0
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
    assert_stages_agree((struct sampling){ 0 }, neutral);
    assert_stages_agree(SAMPLING("temperature", "1", "top_k", "0", "top_p", "1", "min_p", "0"), neutral);
}

static void temperature_divides(void **state)
{
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
            for (int k = 0; k < VOCAB; k++) // logits are floats: their rounding error is |x / t| * 2^-24
                assert_true(fabs(row[k] - p[k]) <= (1e-6 + 240 / t[i] * 0x1p-23) * p[k] + 0x1p-53);
        }
        sampling_free(&s);
    }
}

static void top_k_keeps_exactly_k(void **state)
{
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
    static const char *const p[] = { "0", "0.1013", "0.3113", "0.5513", "0.9013", "0.9513", "0.9988", "1" };
    // no multiple of 1/200, where rounding alone would decide whether the mass of equal logits reaches p
    for (int i = 0; i < 8; i++) {
        struct plain o = neutral;
        o.top_p = atof(p[i]);
        assert_stages_agree(SAMPLING("top_p", p[i]), o);
    }
}

static void min_p_keeps_tokens_above_a_share_of_the_maximum(void **state)
{
    static const char *const p[] = { "0", "0.013", "0.1", "0.37", "1" };
    for (int i = 0; i < 5; i++) {
        struct plain o = neutral;
        o.min_p = atof(p[i]);
        assert_stages_agree(SAMPLING("min_p", p[i]), o);
    }
}

// The threshold is a double. Between two neighbouring floats it drops the lower and keeps the upper one. Rounded to a float, it
// would keep a logit just below it for half of all shares.
static void min_p_cuts_between_two_neighbouring_floats(void **state)
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

// 1 / 1e-310 is not a double: the most probable tokens, whose logits become 0 first, would become NaN and be excluded.
static void the_smallest_temperatures_keep_the_argmax(void **state)
{
    static const char *const t[] = { "1e-300", "1e-308", "5e-309", "1e-310", "4.9406564584124654e-324" };
    for (int i = 0; i < 5; i++) {
        struct sampling s = SAMPLING("temperature", t[i]);
        float row[4] = { 3, 4, 1, 4 };
        sampling_row(&s, row, 4, 4, NULL);
        assert_true(row[0] == 0 && row[1] == 0.5F && row[2] == 0 && row[3] == 0.5F); // greedy except for ties
        sampling_free(&s);
    }
}

static void stages_act_on_the_result_of_earlier_stages(void **state)
{
    static const int32_t token[] = { 3, 77, 3, 150 };
    struct path before = { 4, token, 0 };
    struct plain o = { 1.25, 0.5, 0.83, 0.07, 40, &before };
    assert_stages_agree(
        SAMPLING("repetition_penalty", "1.25", "temperature", "0.5", "top_p", "0.83", "min_p", "0.07", "top_k", "40"),
        o);
}

static void a_repeated_token_is_penalized_once(void **state)
{
    static const int32_t token[] = { 5, 199, 5, 0, 5, 64, 63, 64, 100000 }; // the last is beyond this row
    struct path before = { 9, token, 0 };
    struct plain o = { 2, 1, 1, 0, 0, &before }; // a power of two: exact in floats too
    assert_stages_agree(SAMPLING("repetition_penalty", "2"), o);
}

// The row of a draft node depends on the path to it.
static void draft_tokens_on_the_path_are_penalized(void **state)
{
    struct sampling s = SAMPLING("repetition_penalty", "2");
    int32_t token[] = { 0, 1 };
    float root[] = { 1, 1, 2, -1 }, node[] = { 1, 1, 2, -1 };
    sampling_row(&s, root, 4, 4, &(struct path){ 1, token, 0 });
    sampling_row(&s, node, 4, 4, &(struct path){ 2, token, 0 });
    assert_true(fabsf(root[1] / root[0] - expf(0.5f)) < 1e-5f && fabsf(node[1] / node[0] - 1) < 1e-5f);
    sampling_free(&s);
}

// Against the definition, with counts from sorted tokens: ids in several ranges of the counts, a prompt, ids beyond the row.
static void generated_tokens_lose_by_their_counts_and_once(void **state)
{
    enum { LONG = 100000, PROMPT = 3 };
    static float row[LONG];
    static double x[LONG], p[LONG];
    static const int32_t token[] = { 7, 99999, 40000, 40000, 7, 99999, 40000, 32767, 32768, 7, 40000, -1, 100000 };
    const int n = sizeof(token) / sizeof(*token);
    struct sampling s = SAMPLING("presence_penalty", "-0.75", "frequency_penalty", "1.25");
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

static void biases_are_added_and_can_ban(void **state)
{
    struct settings *m = settings_map(), *bias = settings_map();
    settings_put(bias, "1", settings_scalar("2.5"));
    settings_put(bias, "3", settings_scalar("-1e9"));
    settings_put(bias, "4000", settings_scalar("1")); // beyond this row
    settings_put(m, "logit_bias", bias);
    struct sampling s = stages_read(m);
    float row[] = { 0.5f, -1, 0.25f, 9 };
    sampling_row(&s, row, 4, 4, NULL);
    double e[] = { exp(0.5), exp(1.5), exp(0.25) }, sum = e[0] + e[1] + e[2];
    for (int i = 0; i < 3; i++)
        assert_true(fabs(row[i] - e[i] / sum) < 1e-6);
    assert_true(row[3] == 0);
    sampling_free(&s);
}

// A stage that is added has no parameters for a device: rows go through it on the host.
static void a_stage_that_devices_do_not_have_stays_on_the_host(void **state)
{
    struct row_stages on_device;
    const struct stage added = { .name = "added" };
    struct sampling s = SAMPLING("temperature", "0.5", "min_p", "0.1");
    assert_true(sampling_row_stages(&s, &on_device));
    const struct stage *min_p = s.step[1].stage;
    s.step[1].stage = &added;
    assert_false(sampling_row_stages(&s, &on_device));
    s.step[1].stage = min_p;
    sampling_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_act_in_one_order_for_any_order_in_the_file),
        cmocka_unit_test(empty_settings_give_no_stages),
        cmocka_unit_test(invalid_settings_are_refused_with_a_reason),
        cmocka_unit_test(greedy_is_temperature_0),
        cmocka_unit_test(no_stages_are_a_softmax),
        cmocka_unit_test(temperature_divides),
        cmocka_unit_test(top_k_keeps_exactly_k),
        cmocka_unit_test(top_p_keeps_the_smallest_set_with_the_mass),
        cmocka_unit_test(min_p_keeps_tokens_above_a_share_of_the_maximum),
        cmocka_unit_test(min_p_cuts_between_two_neighbouring_floats),
        cmocka_unit_test(the_smallest_temperatures_keep_the_argmax),
        cmocka_unit_test(stages_act_on_the_result_of_earlier_stages),
        cmocka_unit_test(a_repeated_token_is_penalized_once),
        cmocka_unit_test(draft_tokens_on_the_path_are_penalized),
        cmocka_unit_test(generated_tokens_lose_by_their_counts_and_once),
        cmocka_unit_test(biases_are_added_and_can_ban),
        cmocka_unit_test(a_stage_that_devices_do_not_have_stays_on_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
