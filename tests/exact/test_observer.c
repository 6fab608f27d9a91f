// test_observer.c - exact and biased texts of a toy language, seen by the observer: false alarms are as rare as the
// level, and every bias is detected. No model is needed.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "verifier/exact/observer.h"
#include "results/statistics/distributions.h"
#include "verifier/exact/verdict.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/exact/toy_language.h"
#include "verifier/rules/rejection.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

static void verify(const struct text_setup *text_setup, uint64_t seed, double level, struct verdict *v)
{
    struct observed *seen = xcalloc(1, sizeof(*seen));
    double max = toy_language_write(text_setup, seed, seen);
    verdict_of(v, seen, max, level);
    free(seen);
}

static void describe(const char *what, const struct verdict *v)
{
    print_message("%s: %s after %.0f tokens;", what, answer_names[v->answer], v->tokens);
    for (int k = 0; k < STREAMS; k++)
        if (v->of[k].tokens > 0)
            print_message(" %s %.1f %.1f", stream_name(k), v->of[k].log_e / log(10),
                          v->of[k].worst != NULL ? v->of[k].worst->log10_adjusted : 0);
    print_message("\n");
}

static struct verdict *verified(const char *what, const struct text_setup *text_setup, uint64_t seed)
{
    struct verdict *v = xcalloc(1, sizeof(*v));
    verify(text_setup, seed, 1e-6, v);
    describe(what, v);
    return v;
}

// ---- exact texts

struct alarms {
    int text, drafter, control; // at the level of 1 in 20
    int certain;                // of any of these, at 1 in a million
    double z;                   // maximum |z| of the acceptance
    // Tests of the text by their place in the list: texts with p < .01 and p < .05; of all tests and texts, and their number.
    int below_01[EVIDENCE_TESTS], below_05[EVIDENCE_TESTS], small, tests;
};

static struct alarms alarms_of(const struct text_setup *text_setup, int runs)
{
    struct alarms a = { 0 };
    struct observed *seen = xcalloc(1, sizeof(*seen));
    struct verdict *v = xcalloc(1, sizeof(*v));
    for (int run = 0; run < runs; run++) {
        *seen = (struct observed){ 0 };
        double max = toy_language_write(text_setup, 1000 + (uint64_t)run, seen);
        verdict_of(v, seen, max, 0.05);
        a.text += v->of[STREAM_TEXT].alarm;
        a.drafter += v->of[STREAM_DRAFTER].alarm;
        a.control += v->of[STREAM_CONTROL].alarm;
        a.z = isnan(v->z_accepted) ? a.z : fmax(a.z, fabs(v->z_accepted));
        struct exact_test list[EVIDENCE_TESTS];
        const int n = evidence_tests(&seen->of[STREAM_TEXT], list, EVIDENCE_TESTS);
        assert_true(n > 30 && n <= EVIDENCE_TESTS);
        for (int i = 0; i < n; i++) {
            a.below_01[i] += list[i].log10_p < -2;
            a.below_05[i] += list[i].log10_p < log10(.05);
            a.small += list[i].log10_p < log10(.05);
        }
        a.tests += n;
        verdict_of(v, seen, max, 1e-6);
        a.certain += v->of[STREAM_TEXT].alarm || v->of[STREAM_DRAFTER].alarm || v->of[STREAM_CONTROL].alarm;
    }
    free(seen);
    free(v);
    return a;
}

// At level 0.05 more than 27 of 300 runs have an alarm with probability at most 0.001. A correct test has p < .05 in 15 of 300, and in more
// than 35 with probability 1 / 500,000; p < .01 in 3, and in more than 13 with probability 1 / 160,000.
TEST(false_alarms_are_as_rare_as_the_level)
{
    static const struct {
        const char *rule;
        enum shape shape;
        int runs, max;
    } null[] = {
        { "rejection", SAMPLED_CHAIN, 300, 27 },    { "rejection", DISTINCT_TREE, 15, 4 },
        { "rejection", DETERMINISTIC_TREE, 15, 4 }, { "block", SAMPLED_CHAIN, 30, 6 },
        { "traversal", DISTINCT_TREE, 15, 4 },
    };
    for (size_t i = 0; i < sizeof(null) / sizeof(null[0]); i++) {
        const struct text_setup text_setup = {
            .rule = rule_named(null[i].rule), .shape = null[i].shape, .texts = 3, .tokens = 100
        };
        struct alarms a = alarms_of(&text_setup, null[i].runs);
        print_message(
            "%s, shape %d, %d runs: alarms of the text %d, drafter %d, control %d; certain %d; |z| up to %.1f\n",
            null[i].rule, null[i].shape, null[i].runs, a.text, a.drafter, a.control, a.certain, a.z);
        assert_true(a.text <= null[i].max && a.drafter <= null[i].max && a.control <= null[i].max);
        assert_int_equal(a.certain, 0);
        if (null[i].runs < 300)
            continue;
        print_message("p < .05 in %.2f %% of %d tests\n", 100. * a.small / a.tests, a.tests);
        assert_true(a.small > .02 * a.tests && a.small < .06 * a.tests);
        for (int k = 0; k < EVIDENCE_TESTS; k++)
            assert_true(a.below_01[k] <= 13 && a.below_05[k] <= 35);
    }
}

// ---- biased texts

static void expect(const char *what, const struct text_setup *text_setup, enum answer answer)
{
    struct verdict *v = verified(what, text_setup, 1);
    assert_int_equal(v->answer, answer);
    assert_false(v->of[STREAM_CONTROL].alarm);
    free(v);
}

TEST(negative_controls_are_detected_and_the_rest_is_clean)
{
    static const struct {
        const char *what, *rule;
        enum shape shape;
        int texts;
    } in[] = {
        { "rejection, a sampled chain", "rejection", SAMPLED_CHAIN, 10 },
        { "rejection, a deterministic chain", "rejection", DETERMINISTIC_CHAIN, 14 },
        { "traversal, a tree without replacement", "traversal", DISTINCT_TREE, 12 },
    };
    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
        const struct text_setup text_setup = {
            .rule = rule_named(in[i].rule), .shape = in[i].shape, .texts = in[i].texts, .tokens = 1000
        };
        struct verdict *v = verified(in[i].what, &text_setup, 1);
        for (int k = 0; k < NEGATIVE_CONTROLS; k++)
            assert_true(v->of[STREAM_NEGATIVE_CONTROLS + k].alarm);
        assert_int_equal(v->answer, NO_BIAS_FOUND);
        free(v);
    }
}

TEST(no_verdict_without_drafts_or_with_few_tokens)
{
    const struct rule *rejection = rule_named("rejection");
    expect("no drafts", &(struct text_setup){ .rule = rejection, .shape = NO_DRAFT, .texts = 2, .tokens = 500 },
           NO_VERDICT);
    expect("300 tokens", &(struct text_setup){ .rule = rejection, .texts = 2, .tokens = 150 }, NO_VERDICT);
    expect("none", &(struct text_setup){ .rule = rejection }, NO_VERDICT);
}

static void verify_leniently(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                             struct rng *rng, struct verification *out)
{
    rejection_walk(rule, d, p, &(struct acceptance_test){ 1.25, 0 }, rng, out);
}

// Accepts all of a chain, impossible tokens included.
static void accept_everything(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                              struct rng *rng, struct verification *out)
{
    const int last = d->n - 1;
    verification_clear(out, d->n);
    verification_path(
        out, d, last,
        rng_pick_row(rng, p->row(p, last), VOCAB, (struct address){ FOR_BONUS, rng->root, last }, out->work));
}

static void end_probabilities_of_rejection(const struct rule *rule, const struct draft *d, struct rows *p,
                                           const void *options, double *end)
{
    rejection_end_probabilities(rule, d, p, &(struct acceptance_test){ 1, 0 }, end);
}

static const struct rule too_lenient = { .name = "rejection",
                                         .end_probabilities = end_probabilities_of_rejection,
                                         .verify = verify_leniently };
static const struct rule accepts_all = { .name = "rejection",
                                         .end_probabilities = end_probabilities_of_rejection,
                                         .verify = accept_everything };

TEST(a_lenient_rule_is_detected)
{
    const struct rule *rejection = rule_named("rejection");
    for (int shape = SAMPLED_CHAIN; shape <= DETERMINISTIC_CHAIN; shape++) {
        const struct text_setup text_setup = {
            .rule = &too_lenient, .declared_rule = rejection, .shape = (enum shape)shape, .texts = 3, .tokens = 1000
        };
        struct verdict *v = verified("lenience 1.25", &text_setup, 1);
        assert_int_equal(v->answer, BIAS_FOUND);
        assert_true(v->of[STREAM_TEXT].alarm);
        assert_false(v->of[STREAM_CONTROL].alarm); // the real rule on the same drafts
        assert_true(v->z_accepted > 5);            // it accepts more than its end_probabilities
        free(v);
    }
}

TEST(a_drafter_with_a_wrong_q_is_detected)
{
    for (int tree = 0; tree < 2; tree++) {
        const struct text_setup text_setup = { .rule = rule_named("rejection"),
                                               .shape = tree ? DISTINCT_TREE : SAMPLED_CHAIN,
                                               .from = toy_language_misreported,
                                               .texts = 4,
                                               .tokens = 500 };
        struct verdict *v = verified("a drafter of temperature 2/3", &text_setup, 1);
        assert_int_equal(v->answer, BIAS_FOUND);
        assert_true(v->of[STREAM_DRAFTER].alarm);
        free(v);
    }
}

static const struct stream_test *row_of(const struct verdict *v, const char *kind)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->row[i].test.kind, kind) == 0)
            return &v->row[i];
    return NULL;
}

TEST(randomness_shared_by_drafter_and_rule_is_detected)
{
    struct text_setup text_setup = { .rule = rule_named("rejection"), .texts = 3, .tokens = 1000 };
    for (int shares = 0; shares < 2; shares++) {
        text_setup.shares_randomness = shares;
        struct verdict *v = verified(shares ? "shared randomness" : "independent randomness", &text_setup, 1);
        const struct stream_test *r = row_of(v, "independence");
        assert_non_null(r);
        print_message("independence: chi-square %.0f of %.0f rejected tokens, log10 p %.1f\n", r->test.statistic,
                      r->test.tokens, r->log10_adjusted);
        assert_int_equal(r->stream, STREAM_DRAFTER);
        assert_true(shares ? r->log10_adjusted < -20 : r->log10_adjusted > -2);
        assert_true(v->of[STREAM_DRAFTER].alarm == (shares == 1));
        free(v);
    }
}

TEST(an_impossible_token_decides_the_verdict)
{
    const struct text_setup text_setup = {
        .rule = &accepts_all, .declared_rule = rule_named("rejection"), .texts = 1, .tokens = 300
    };
    struct observed *seen = xcalloc(1, sizeof(*seen));
    struct verdict *v = xcalloc(1, sizeof(*v));
    double max = toy_language_write(&text_setup, 1, seen);
    assert_true(seen->of[STREAM_TEXT].impossible > 0);
    assert_true(isinf(max) && max > 0);
    verdict_of(v, seen, max, 1e-300);
    assert_int_equal(v->answer, BIAS_FOUND);
    assert_true(seen->of[STREAM_CONTROL].impossible == 0 && !v->of[STREAM_CONTROL].alarm);

    // One such token among a thousand correct ones, without any bet.
    const struct text_setup right = { .rule = rule_named("rejection"), .texts = 1, .tokens = 1000 };
    *seen = (struct observed){ 0 };
    max = toy_language_write(&right, 1, seen);
    seen->of[STREAM_TEXT].impossible++;
    verdict_of(v, seen, max, 1e-300);
    assert_int_equal(v->answer, BIAS_FOUND);
    assert_string_equal(v->of[STREAM_TEXT].worst->test.kind, "impossible");
    free(seen);
    free(v);
}

// ---- acceptance

TEST(acceptance_matches_end_probabilities)
{
    static const struct {
        const char *rule;
        enum shape shape;
    } in[] = {
        { "rejection", SAMPLED_CHAIN },  { "rejection", DISTINCT_TREE },  { "rejection", DETERMINISTIC_TREE },
        { "block", SAMPLED_CHAIN },      { "traversal", DISTINCT_TREE },  { "traversal", SAMPLED_CHAINS },
        { "match", SAMPLED_CHAIN },      { "match", DETERMINISTIC_TREE }, { "spectr", SAMPLED_CHAINS },
        { "multipath", SAMPLED_CHAINS },
    };
    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
        const struct text_setup text_setup = {
            .rule = rule_named(in[i].rule), .shape = in[i].shape, .texts = 4, .tokens = 500
        };
        struct observed *seen = xcalloc(1, sizeof(*seen));
        struct verdict *v = xcalloc(1, sizeof(*v));
        verdict_of(v, seen, toy_language_write(&text_setup, 1, seen), 1e-6);
        print_message("%s, shape %d: %.4f accepted per step, %.4f expected, z %.2f\n", in[i].rule, in[i].shape,
                      seen->accepted / seen->steps, seen->expected / seen->steps, v->z_accepted);
        assert_true(seen->variance > 50 && fabs(v->z_accepted) < 4);
        assert_true(v->answer != BIAS_FOUND && !v->of[STREAM_CONTROL].alarm);
        free(seen);
        free(v);
    }
}

// At temperature 0 acceptance is certain: one token less is no chance.
TEST(acceptance_without_a_variance_is_tested)
{
    struct verdict *v = xcalloc(1, sizeof(*v));
    for (int less = 0; less < 2; less++) {
        const struct observed seen = { .steps = 1000, .drafted = 3000, .expected = 3000, .accepted = 3000 - less };
        verdict_of(v, &seen, 0, 1e-6);
        assert_true(less ? v->z_accepted == -INFINITY : isnan(v->z_accepted));
        assert_true(v->of[STREAM_TEXT].alarm == (less == 1));
        if (less) {
            assert_int_equal(v->answer, BIAS_FOUND);
            assert_string_equal(v->of[STREAM_TEXT].worst->test.kind, "acceptance");
        }
    }
    free(v);
}

// A thousand steps of three draft tokens that are almost always accepted: one rejection has a probability of 1 / 500,
// though it is 22 standard deviations. Three rejections are significant.
TEST(a_rare_rejection_is_no_proof)
{
    struct observed *seen = xcalloc(1, sizeof(*seen));
    struct verdict *v = xcalloc(1, sizeof(*v));
    for (int rejected = 1; rejected <= 3; rejected += 2) {
        *seen = (struct observed){ .steps = 1000, .drafted = 3000, .expected = 3000 - 2e-3, .variance = 2e-3 };
        seen->accepted = 3000 - rejected;
        verdict_of(v, seen, 0, 1e-6);
        print_message("%d rejected: z %.1f, log10 p %.1f\n", rejected, v->z_accepted, v->row[0].test.log10_p);
        assert_string_equal(v->row[0].test.kind, "acceptance");
        assert_true(fabs(v->z_accepted) > 20);
        assert_true(rejected == 1 ? v->row[0].test.log10_p > -3 : v->row[0].test.log10_p < -3);
    }
    *seen =
        (struct observed){ .steps = 1e5, .drafted = 3e5, .accepted = 152500, .expected = 150000, .variance = 160000 };
    verdict_of(v, seen, 0, 1e-6); // the normal tail again
    assert_true(fabs(v->row[0].test.log10_p - tail_normal(2500.0 / 400)) < 0.3);
    assert_true(v->of[STREAM_TEXT].alarm);
    free(seen);
    free(v);
}

// ---- sums

static void near(const double *a, const double *b, double within)
{
    for (size_t i = 0; i < OBSERVED_DOUBLES; i++)
        if (!(fabs(a[i] - b[i]) <= within * fmax(1, fabs(b[i]))))
            fail_msg("number %zu of the sums is %.17g, not %.17g", i, a[i], b[i]);
}

TEST(observed_sums_are_additive)
{
    const struct text_setup text_setup = { .rule = rule_named("rejection"), .tokens = 60 };
    struct observed *sum = xcalloc(4, sizeof(*sum)), *one_by_one = sum + 1, *half = sum + 2;
    struct text_writer w = text_writer_open(&text_setup, 3);
    for (int i = 0; i < 20; i++) {
        text_writer_write(&w, i, sum);
        text_writer_write(&w, i, &half[i / 10]);
        struct observed *text = xcalloc(1, sizeof(*text));
        text_writer_write(&w, i, text);
        observed_join(one_by_one, text);
        free(text);
    }
    text_writer_close(&w);
    assert_memory_equal(one_by_one, sum, sizeof(*sum)); // in the same order
    observed_join(half, half + 1);
    near((const double *)half, (const double *)sum, 1e-12);
    assert_true(sum->steps > 0 && evidence_tokens(&sum->of[STREAM_TEXT]) >= 20 * 60);
    free(sum);
}

TEST(slots_are_independent)
{
    const struct text_setup text_setup = { .rule = rule_named("rejection"), .tokens = 100 };
    struct observed *a = xcalloc(3, sizeof(*a));
    struct text_writer w = text_writer_open(&text_setup, 3);
    text_writer_write(&w, 5, a);
    observer_start(w.observer, 0, 6);
    text_writer_write(&w, 5, a + 1);
    observer_take(w.observer, 0, a + 2);
    text_writer_close(&w);
    assert_memory_equal(a, a + 1, sizeof(*a));
    for (size_t i = 0; i < OBSERVED_DOUBLES; i++)
        assert_true(((double *)(a + 2))[i] == 0);
    free(a);
}

// The text comes from a rule that decides, the control from one that cannot.
static void verify_or_fail(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                           struct rng *rng, struct verification *out)
{
    rule_named("rejection")->verify(rule, d, p, options, rng, out);
    out->failed = "no decision";
}

TEST(a_control_that_cannot_decide_is_reported)
{
    struct rule failing = *rule_named("rejection");
    failing.verify = verify_or_fail;
    const struct text_setup setups[] = {
        { .rule = rule_named("rejection"), .tokens = 50 },
        { .rule = rule_named("rejection"), .declared_rule = &failing, .tokens = 50 },
    };
    for (int i = 0; i < 2; i++) {
        struct observed *seen = xcalloc(1, sizeof(*seen));
        struct text_writer w = text_writer_open(&setups[i], 4);
        assert_null(observer_failed(w.observer));
        text_writer_write(&w, 1, seen);
        if (i == 0)
            assert_null(observer_failed(w.observer));
        else
            assert_string_equal(observer_failed(w.observer), "no decision");
        text_writer_close(&w);
        free(seen);
    }
}

RUN_TESTS(toy_language_make, NULL)
