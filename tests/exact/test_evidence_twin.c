// test_evidence_twin.c - bets, tests and verdicts on texts of a few hundred tokens against a twin in Python.
//
// tests/cases/make_evidence.py sorts lists for its orders, sums over the vocabulary for its means, and takes tails from
// mpmath.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "verifier/exact/observer.h"
#include "verifier/exact/verdict.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/numbers.h"

enum { VOCAB = 6, ROWS = 32 };

static struct json *golden;
static float rows[ROWS][VOCAB];

static double at(const struct json *list, size_t i)
{
    const struct json *j = json_at(list, i);
    assert_non_null(j);
    return json_is_null(j) ? -INFINITY : json_number(j);
}

static int whole(const struct json *list, size_t i)
{
    return (int)json_int(json_at(list, i));
}

static int open_golden(void **state)
{
    golden = golden_json("evidence.json");
    const struct json *list = json_get(golden, "rows");
    assert_true(json_count(list) <= ROWS && json_int(json_get(golden, "vocab")) == VOCAB);
    for (size_t r = 0; r < json_count(list); r++)
        for (size_t x = 0; x < VOCAB; x++)
            rows[r][x] = (float)at(json_at(list, r), x) / (float)json_int(json_get(golden, "one"));
    return 0;
}

static int close_golden(void **state)
{
    json_free(golden);
    return 0;
}

// ---- texts

static void add_text(struct evidence *e, const struct json *tokens)
{
    struct uniforms last = evidence_start;
    struct evidence part = { 0 };
    int32_t before = -1;
    for (size_t i = 0; i < json_count(tokens); i++) {
        const struct json *one = json_at(tokens, i), *list = json_at(one, 2);
        const int q = whole(one, 1);
        int32_t deterministic[VOCAB];
        for (size_t k = 0; k < json_count(list); k++)
            deterministic[k] = whole(list, k);
        if (whole(one, 7)) { // a sequence begins: the one before it is added
            evidence_sum((double *)e, (const double *)&part, sizeof(part) / sizeof(double));
            part = (struct evidence){ 0 };
            last = evidence_start;
            before = -1;
        }
        const struct observed_token t = { .vocab = VOCAB,
                                          .p = rows[whole(one, 0)],
                                          .p_sum = 1,
                                          .q = q >= 0 ? rows[q] : NULL,
                                          .q_sum = 1,
                                          .deterministic = deterministic,
                                          .n_deterministic = (int)json_count(list),
                                          .token = whole(one, 3),
                                          .before = before,
                                          .end = (int32_t)json_int(json_get(golden, "end")),
                                          .index = whole(one, 4),
                                          .bonus = whole(one, 5),
                                          .u = at(one, 6) };
        last = evidence_add(&part, &t, last);
        before = t.token;
    }
    evidence_sum((double *)e, (const double *)&part, sizeof(part) / sizeof(double));
}

static const struct json *text_named(const char *name)
{
    const struct json *one = json_get(json_get(golden, "texts"), name);
    assert_non_null(one);
    return one;
}

// Means over a row are sums of float functions (verifier/exact/mass.c), accurate to 1e-6 per token.
static bool agrees(double a, double b)
{
    return a == b || fabs(a - b) <= 2e-4 * fmax(1, fabs(b));
}

static bool is_named(const struct exact_test *t, const struct json *one, size_t from)
{
    return strcmp(t->kind, json_text(json_at(one, from))) == 0 &&
           strcmp(t->of, json_text(json_at(one, from + 1))) == 0 &&
           strcmp(t->part, json_text(json_at(one, from + 2))) == 0;
}

static void check_test(const char *text, const struct exact_test *t, const struct json *tests)
{
    for (size_t i = 0; i < json_count(tests); i++) {
        const struct json *one = json_at(tests, i);
        if (!is_named(t, one, 0))
            continue;
        if (!agrees(t->statistic, at(one, 3)) || !agrees(t->log10_p, at(one, 4)) || t->tokens != at(one, 5))
            fail_msg("%s: %s of %s, %s: %.9g, 10^%.9g, %g tokens; the twin has %.9g, 10^%.9g, %g", text, t->kind, t->of,
                     t->part, t->statistic, t->log10_p, t->tokens, at(one, 3), at(one, 4), at(one, 5));
        return;
    }
    fail_msg("%s: the twin has no test %s of %s, %s", text, t->kind, t->of, t->part);
}

TEST(bets_and_tests_match_the_twin)
{
    const struct json *texts = json_get(golden, "texts");
    for (void *k = json_first(texts); k != NULL; k = json_next(texts, k)) {
        const struct json *tests = json_get(json_value(k), "tests"), *log_e = json_get(json_value(k), "log_e");
        struct evidence e = { 0 };
        struct exact_test t[EVIDENCE_TESTS];
        add_text(&e, json_get(json_value(k), "tokens"));
        near(evidence_log_e(&e), json_is_null(log_e) ? INFINITY : json_number(log_e), 1e-9);
        const int n = evidence_tests(&e, t, EVIDENCE_TESTS);
        for (int i = 0; i < n; i++)
            check_test(json_key(k), &t[i], tests);
        assert_int_equal(n, json_count(tests));
        near(evidence_tokens(&e), (double)json_count(json_get(json_value(k), "tokens")), 0);
    }
}

// ---- verdicts

static void check_verdict(const struct json *one)
{
    static struct observed seen;
    static struct verdict v;
    const struct json *of = json_get(one, "of"), *acceptance = json_get(one, "acceptance"),
                      *alarm = json_get(one, "alarm"), *found = json_get(one, "rows");
    const char *streams[STREAMS] = {
        [STREAM_TEXT] = "text", [STREAM_CONTROL] = "control", [STREAM_DRAFTER] = "drafter"
    };
    seen = (struct observed){ .max_depth = at(acceptance, 0),
                              .accepted = at(acceptance, 1),
                              .expected = at(acceptance, 2),
                              .variance = at(acceptance, 3) };
    for (size_t i = 0; i < SQUARE; i++)
        for (size_t k = 0; k < SQUARE; k++)
            seen.rejected[i][k] = at(json_at(json_get(one, "rejected"), i), k);
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = s >= STREAM_NEGATIVE_CONTROLS ? "negative controls" : streams[s];
        add_text(&seen.of[s], json_get(text_named(json_text(json_get(of, streams[s]))), "tokens"));
    }
    verdict_of(&v, &seen, json_number(json_get(one, "max_log_e")), json_number(json_get(one, "level")));
    assert_string_equal(answer_names[v.answer], json_text(json_get(one, "answer")));
    // What the negative controls lack, by the definition: as many times the tokens as the logarithm of p is short.
    double needed = v.tokens;
    for (int k = STREAM_NEGATIVE_CONTROLS; k < STREAMS; k++) {
        const double falls = v.of[k].worst != NULL ? -v.of[k].worst->log10_adjusted : 0;
        if (!v.of[k].alarm)
            needed = fmax(needed, falls > 1 ? v.tokens * -log10(v.level / 2) / falls : INFINITY);
    }
    assert_true(isinf(needed) ? isnan(v.needed) : fabs(v.needed - needed) <= 1e-9 * needed);
    near(v.z_accepted, json_number(json_get(one, "z")), 1e-12);
    for (int s = 0; s < STREAMS; s++)
        assert_int_equal(v.of[s].alarm, json_bool(json_get(alarm, streams[s])));
    size_t compared = 0;
    for (int r = 0; r < v.n; r++)
        for (size_t i = 0; i < json_count(found); i++) {
            const struct json *row = json_at(found, i);
            if (strcmp(streams[v.row[r].stream], json_text(json_at(row, 0))) != 0 || !is_named(&v.row[r].test, row, 1))
                continue;
            compared++;
            if (!agrees(v.row[r].log10_adjusted, at(row, 4)))
                fail_msg("%s of %s, %s: 10^%g after Holm; the twin has 10^%g", v.row[r].test.kind, v.row[r].test.of,
                         v.row[r].test.part, v.row[r].log10_adjusted, at(row, 4));
        }
    assert_int_equal(compared, json_count(found));
}

TEST(verdicts_match_the_twin)
{
    const struct json *verdicts = json_get(golden, "verdicts");
    assert_true(json_count(verdicts) >= 8);
    for (size_t i = 0; i < json_count(verdicts); i++)
        check_verdict(json_at(verdicts, i));
}

RUN_TESTS(open_golden, close_golden)
