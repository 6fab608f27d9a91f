// test_evidence_texts.c - whole texts from a table of rows: exact ones raise no alarm, biased ones are detected.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "verifier/exact/evidence.h"
#include "verifier/exact/verdict.h"
#include "results/statistics/statistics.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"

enum { VOCAB = 12, DRAFT_TOKENS = 2 };

struct table {
    float p[VOCAB][VOCAB], q[VOCAB][VOCAB]; // the rows after each token
};

enum flaw { EXACT, LENIENT, RESAMPLES_P, FAVOURS_DETERMINISTIC, DETERMINISTIC_EXACT };

struct text_writer {
    const struct table *table;
    enum flaw flaw;
    int32_t before;
    uint64_t seed;
    struct uniforms last;
    struct evidence e;
};

static void make_table(struct table *t, uint64_t *seed)
{
    for (int i = 0; i < VOCAB; i++) {
        for (int v = 0; v < VOCAB; v++) {
            double p = exp(3 * uniform(seed)) * (uniform(seed) < .9), q = (p + .3) * exp(2 * uniform(seed));
            t->p[i][v] = (float)(v == i ? p + 1 : p);
            t->q[i][v] = (float)q;
        }
        double p = row_sum(t->p[i], VOCAB), q = row_sum(t->q[i], VOCAB);
        for (int v = 0; v < VOCAB; v++) {
            t->p[i][v] = (float)((double)t->p[i][v] / p);
            t->q[i][v] = (float)((double)t->q[i][v] / q);
        }
    }
}

static int32_t pick(const double *w, uint64_t *seed)
{
    double s = 0;
    for (int i = 0; i < VOCAB; i++)
        s += w[i];
    double at = uniform(seed) * s;
    int last = -1;
    for (int i = 0; i < VOCAB; i++) {
        if (!(w[i] > 0))
            continue;
        last = i;
        at -= w[i];
        if (at < 0)
            break;
    }
    assert(last >= 0);
    return last;
}

static int32_t pick_row(const float *row, uint64_t *seed)
{
    double w[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        w[i] = (double)row[i];
    return pick(w, seed);
}

static void write_token(struct text_writer *w, int32_t token, int index, const int32_t *deterministic)
{
    const struct table *t = w->table;
    struct observed_token seen = { .vocab = VOCAB,
                                   .p = t->p[w->before],
                                   .p_sum = row_sum(t->p[w->before], VOCAB),
                                   .token = token,
                                   .before = w->before,
                                   .end = 0,
                                   .index = index,
                                   .bonus = index == DRAFT_TOKENS,
                                   .u = uniform(&w->seed) };
    if (index < DRAFT_TOKENS && !deterministic) {
        seen.q = t->q[w->before];
        seen.q_sum = row_sum(seen.q, VOCAB);
    }
    if (index < DRAFT_TOKENS && deterministic) {
        seen.deterministic = deterministic;
        seen.n_deterministic = 1;
    }
    w->last = evidence_add(&w->e, &seen, w->last);
    w->before = token;
}

// Proposes one token, sampled or deterministic, verifies it and returns the emitted token. *accepted: the draft token
// was.
static int32_t verify(struct text_writer *w, int32_t *deterministic, int *accepted)
{
    const float *p = w->table->p[w->before], *q = w->table->q[w->before];
    double left[VOCAB];
    int certain = w->flaw >= FAVOURS_DETERMINISTIC;
    int32_t draft_token = *deterministic = certain ? row_argmax(q, VOCAB) : pick_row(q, &w->seed);
    double ratio = (double)p[draft_token] / (certain ? 1 : (double)q[draft_token]);
    ratio *= w->flaw == LENIENT || w->flaw == FAVOURS_DETERMINISTIC ? 1.25 : 1;
    *accepted = uniform(&w->seed) < ratio;
    if (*accepted)
        return draft_token;
    for (int v = 0; v < VOCAB; v++) {
        left[v] = certain ? (v == draft_token ? 0 : (double)p[v]) : fmax(0, (double)p[v] - (double)q[v]);
        if (w->flaw == RESAMPLES_P)
            left[v] = (double)p[v];
    }
    return pick(left, &w->seed);
}

static void write_text(struct text_writer *w, int tokens)
{
    for (int n = 0; n < tokens;) {
        int accepted = 1, index = 0;
        for (; index < DRAFT_TOKENS && accepted; index++, n++) {
            int32_t deterministic, token = verify(w, &deterministic, &accepted);
            write_token(w, token, index, w->flaw >= FAVOURS_DETERMINISTIC ? &deterministic : NULL);
        }
        if (accepted) {
            write_token(w, pick_row(w->table->p[w->before], &w->seed), index, NULL);
            n++;
        }
    }
}

static void evidence_of_sequences_is_additive(void **state)
{
    struct table t;
    uint64_t seed = 5;
    make_table(&t, &seed);
    struct text_writer a = { .table = &t, .seed = 6, .last = evidence_start },
                       b = { .table = &t, .seed = 7, .last = evidence_start };
    write_text(&a, 700);
    write_text(&b, 400);
    struct text_writer both = { .table = &t, .seed = 6, .last = evidence_start };
    write_text(&both, 700);
    both.seed = 7;
    both.before = 0;
    both.last = evidence_start;
    write_text(&both, 400);
    const size_t doubles = sizeof(a.e) / sizeof(double);
    evidence_sum((double *)&a.e, (const double *)&b.e, doubles);
    const double *x = (const double *)&a.e, *y = (const double *)&both.e;
    for (size_t i = 0; i < doubles; i++)
        near(x[i], y[i], 1e-9);
    near(evidence_log_e(&a.e), evidence_log_e(&both.e), 1e-9);
    assert_true(evidence_tokens(&a.e) >= 1100);
}

// 300 texts. A correct test has p < .05 in a share of .05: 15, and more than 35 with probability 1 / 500,000; p < .01
// in 3, and more than 13 with probability 1 / 160,000. The mean of all bets exceeds 20 at any time in at most .05: 15.
static void an_exact_text_raises_no_alarm(void **state)
{
    enum { RUNS = 300, TOKENS = 600, LOOKS = 20 };
    int below_01[EVIDENCE_TESTS] = { 0 }, below_05[EVIDENCE_TESTS] = { 0 }, n = 0, alarms = 0, tests = 0, small = 0;
    uint64_t seed = 8;
    for (int run = 0; run < RUNS; run++) {
        struct table t;
        make_table(&t, &seed);
        struct text_writer w = { .table = &t, .seed = (uint64_t)run * 7919 + 17, .last = evidence_start };
        w.flaw = run % 3 == 2 ? DETERMINISTIC_EXACT : EXACT;
        double max = -INFINITY;
        for (int look = 0; look < LOOKS; look++) {
            write_text(&w, TOKENS / LOOKS);
            max = fmax(max, evidence_log_e(&w.e));
        }
        alarms += max >= log(20);
        struct exact_test list[EVIDENCE_TESTS];
        n = evidence_tests(&w.e, list, EVIDENCE_TESTS);
        assert_true(n > 30 && n <= EVIDENCE_TESTS);
        for (int i = 0; i < n; i++) { // by place in the list
            below_01[i] += list[i].log10_p < -2;
            below_05[i] += list[i].log10_p < log10(.05);
            small += list[i].log10_p < log10(.05);
            tests++;
        }
    }
    for (int i = 0; i < EVIDENCE_TESTS; i++) {
        assert_in_range(below_01[i], 0, 13);
        assert_in_range(below_05[i], 0, 35);
    }
    print_message("p < .05 in %.2f %% of %d; E >= 20 in %d of %d\n", 100. * small / tests, tests, alarms, RUNS);
    assert_true(small > .02 * tests && small < .06 * tests);
    assert_in_range(alarms, 0, 30);
}

static double min_holm(const struct evidence *e, struct exact_test *which)
{
    struct exact_test list[EVIDENCE_TESTS];
    double p[EVIDENCE_TESTS], adjusted[EVIDENCE_TESTS], min = 0;
    int n = evidence_tests(e, list, EVIDENCE_TESTS);
    for (int i = 0; i < n; i++)
        p[i] = list[i].log10_p;
    holm(adjusted, p, n);
    for (int i = 0; i < n; i++)
        if (adjusted[i] < min) {
            min = adjusted[i];
            *which = list[i];
        }
    return min;
}

static void a_biased_text_is_detected(void **state)
{
    static const char *const name[] = { "exact", "lenience 1.25", "resamples p", "favours deterministic",
                                        "deterministic, exact" };
    for (int flaw = EXACT; flaw <= DETERMINISTIC_EXACT; flaw++) {
        struct table t;
        uint64_t seed = 9;
        make_table(&t, &seed);
        struct text_writer w = { .table = &t, .flaw = (enum flaw)flaw, .seed = 10, .last = evidence_start };
        write_text(&w, 20000);
        struct exact_test by = { 0 };
        double log10_p = min_holm(&w.e, &by), log10_e = evidence_log_e(&w.e) / log(10);
        print_message("%s: p = 10^%.1f by %s %s %s, e = 10^%.1f\n", name[flaw], log10_p, by.kind ? by.kind : "-",
                      by.of ? by.of : "", by.part ? by.part : "", log10_e);
        if (flaw == EXACT || flaw == DETERMINISTIC_EXACT)
            assert_true(log10_p > -2 && log10_e < 2);
        else
            assert_true(log10_p < -6 && log10_e > 6);
    }
}

// Pairs: a text whose uniform numbers are uniform one by one, but dependent.
static void serially_dependent_uniforms_are_detected(void **state)
{
    const float even[] = { .25f, .25f, .25f, .25f };
    struct evidence e = { 0 };
    struct uniforms last = evidence_start;
    uint64_t seed = 11;
    int32_t token = 0;
    for (int i = 0; i < 4000; i++) {
        token = uniform(&seed) < .8 ? (int32_t)(4 * uniform(&seed)) : (token + 1) % 4;
        struct observed_token t = { .vocab = 4, .p = even, .p_sum = 1, .token = token, .before = -1, .end = -1 };
        t.u = uniform(&seed);
        last = evidence_add(&e, &t, last);
    }
    struct exact_test list[EVIDENCE_TESTS];
    int n = evidence_tests(&e, list, EVIDENCE_TESTS);
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].kind, "pairs") && !strcmp(list[i].of, "id"))
            assert_true(list[i].log10_p < -10);
        else if (strcmp(list[i].kind, "pairs") != 0)
            assert_true(list[i].log10_p > -4);
}

// ---- the size of a bias

// Adds tokens: in a share of `shift` of them token 0, which p gives `first`, and a draw from p in the rest. Their total
// variation from p is shift (1 - first). q favours token 0, which comes last in the guided order.
static void write_shifted(struct evidence *e, float first, double shift, int tokens, uint64_t *seed)
{
    const float p[] = { first, (1 - first) / 2, (1 - first) / 2 }, q[] = { .98f, .01f, .01f };
    struct uniforms last = evidence_start;
    for (int i = 0; i < tokens; i++) {
        struct observed_token t = {
            .vocab = 3, .p = p, .p_sum = row_sum(p, 3), .q = q, .q_sum = 1, .before = -1, .end = -1
        };
        const double u = uniform(seed);
        t.token = uniform(seed) < shift || u < (double)first ? 0 : u < (1 + (double)first) / 2 ? 1 : 2;
        t.u = uniform(seed);
        last = evidence_add(e, &t, last);
    }
}

// Bounds are looked at every hundred tokens: the largest of them is below the total variation, in each of a hundred
// texts, where at most five in a hundred may exceed it.
static void the_size_of_a_bias_is_never_below_its_bound(void **state)
{
    uint64_t seed = 21;
    int above = 0;
    for (int run = 0; run < 100; run++) {
        struct evidence e = { 0 };
        const float first = run % 2 ? .5f : .3f;
        const double shift = run % 4 < 2 ? 0 : .2, size = shift * (1 - (double)first);
        double most = 0;
        for (int look = 0; look < 20; look++) {
            write_shifted(&e, first, shift, 100, &seed);
            most = fmax(most, bias_size_of(&e, .05).least);
        }
        above += most > size;
    }
    assert_in_range(above, 0, 5);
}

// Half of the order is one of the boundaries at which it is measured, so the bound reaches the size.
static void the_bound_reaches_the_size_of_a_bias(void **state)
{
    uint64_t seed = 22;
    double before = 0;
    static const int tokens[] = { 2000, 18000, 180000 };
    struct evidence e = { 0 };
    for (int i = 0; i < 3; i++) {
        write_shifted(&e, .5f, .2, tokens[i], &seed);
        const struct bias_size size = bias_size_of(&e, .05);
        const double n = evidence_tokens(&e);
        print_message("%.0f tokens: %.4f observed, at least %.4f, of 0.1\n", n, size.observed, size.least);
        assert_true(fabs(size.observed - .1) < 4 / (2 * sqrt(n)) && size.least > before && size.least < .1);
        before = size.least;
    }
    assert_true(before > .09);
}

// Impossible tokens are a bias of their share, whatever the others are.
static void impossible_tokens_count_in_the_size_of_a_bias(void **state)
{
    const float p[] = { 0, .5f, .5f };
    uint64_t seed = 23;
    struct evidence e = { 0 };
    assert_true(bias_size_of(&e, .05).observed == 0 && bias_size_of(&e, .05).least == 0);
    for (int i = 0; i < 20000; i++) {
        struct observed_token t = { .vocab = 3, .p = p, .p_sum = 1, .before = -1, .end = -1, .u = uniform(&seed) };
        t.token = i % 4 == 0 ? 0 : 1 + (uniform(&seed) < .5);
        evidence_add(&e, &t, evidence_start);
    }
    const struct bias_size size = bias_size_of(&e, .05);
    assert_true(size.observed > .22 && size.observed < .25 && size.least > .2 && size.least < size.observed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evidence_of_sequences_is_additive),
        cmocka_unit_test(an_exact_text_raises_no_alarm),
        cmocka_unit_test(a_biased_text_is_detected),
        cmocka_unit_test(serially_dependent_uniforms_are_detected),
        cmocka_unit_test(the_size_of_a_bias_is_never_below_its_bound),
        cmocka_unit_test(the_bound_reaches_the_size_of_a_bias),
        cmocka_unit_test(impossible_tokens_count_in_the_size_of_a_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
