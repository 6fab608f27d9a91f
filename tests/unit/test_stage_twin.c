// test_stage_twin.c - the sampling stages against a Python implementation: doubles, sorted lists, one stage after the other.
//
// tests/cases/make_stages.py makes the rows: ties, shares and thresholds that are met exactly, temperatures from 5e-324 to
// 1e6, NAN, rows without tokens, penalties on repeated tokens, biases, and lengths next to 32, 64, 256 and 4,096.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "sampling/sampling.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/plain_stages.h"

static struct sampling sampling_of(const struct json *one)
{
    struct settings *s = settings_map();
    const struct json *given = json_get(one, "settings"), *bias = json_get(one, "bias");
    for (size_t i = 0; i < json_count(given); i++) {
        const struct json *pair = json_at(given, i);
        settings_put(s, json_text(json_at(pair, 0)), settings_scalar(json_text(json_at(pair, 1))));
    }
    if (json_count(bias) > 0) {
        struct settings *pairs = settings_map();
        for (void *at = json_first(bias); at != NULL; at = json_next(bias, at))
            settings_put(pairs, json_key(at), settings_scalar(json_text(json_value(at))));
        settings_put(s, "logit_bias", pairs);
    }
    return stages_read(s);
}

// The logits of a row: listed, or for a long row generated as make_stages.py does it.
static float *row_of(const struct json *one, int *n)
{
    const struct json *made = json_get(one, "made"), *row = json_get(one, "row");
    *n = (int)(made != NULL ? json_int(json_at(made, 0)) : (int64_t)json_count(row));
    float *x = xcalloc((size_t)*n, sizeof(*x));
    uint64_t seed = (uint64_t)json_int(json_at(made, 1));
    const int64_t step = made != NULL ? json_int(json_at(made, 2)) : 1;
    for (int i = 0; i < *n; i++) {
        const struct json *v = json_at(row, (size_t)i);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (made != NULL)
            x[i] = (float)((int64_t)((seed >> 44) % 12288) / step * step - 8192) / 1024;
        else
            x[i] = json_is_text(v) ? (float)strtod(json_text(v), NULL) : (float)json_number(v);
    }
    return x;
}

// Logits are rounded to floats after each stage: the last bit of a logit of 72 / 0.3 changes its probability by 1e-5.
static bool agrees(double p, double expected)
{
    return fabs(p - expected) <= 3e-5 * expected + 0x1p-50;
}

static void check_case(const struct json *one, int number)
{
    int n;
    float *x = row_of(one, &n);
    struct sampling s = sampling_of(one);
    const struct json *before = json_get(one, "before"), *kept = json_get(one, "kept");
    int32_t *text = xcalloc(json_count(before) + 1, sizeof(*text));
    for (size_t i = 0; i < json_count(before); i++)
        text[i] = (int32_t)json_int(json_at(before, i));
    sampling_row(&s, x, n, (int)json_int(json_get(one, "used_vocab")),
                 &(struct path){ (int)json_count(before), text, (int)json_int(json_get(one, "prompt")) });
    size_t k = 0;
    for (int i = 0; i < n; i++) {
        const struct json *next = json_at(kept, k);
        const bool is_kept = next != NULL && json_int(json_at(next, 0)) == i;
        const double p = is_kept ? json_number(json_at(next, 1)) : 0;
        k += is_kept;
        if (!agrees((double)x[i], p) || (p == 0 && x[i] > 0x1p-52f) || (p > 0x1p-51 && x[i] == 0)) {
            char *words = json_write(json_get(one, "settings"));
            fail_msg("row %d of stages.json, %s: token %d has %.9g, expected %.9g", number, words, i, (double)x[i], p);
        }
    }
    assert_int_equal(k, json_count(kept));
    sampling_free(&s);
    free(text);
    free(x);
}

TEST(every_row_agrees_with_the_stages_in_python)
{
    struct json *all = golden_json("stages.json");
    const struct json *cases = json_get(all, "cases");
    assert_true(json_count(cases) > 350);
    for (size_t i = 0; i < json_count(cases); i++)
        check_case(json_at(cases, i), (int)i);
    json_free(all);
}

RUN_TESTS(NULL, NULL)
