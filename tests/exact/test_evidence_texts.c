// test_evidence_texts.c - whole texts from a table of rows, drawn right and drawn wrong: no alarm at the one, and the
// other is found out.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "exact/evidence.h"
#include "exact/tails.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"

enum { WORDS = 12, DRAFT_TOKENS = 2 };

struct table {
    float p[WORDS][WORDS], q[WORDS][WORDS]; // the rows after each token
};

enum flaw { EXACT, LENIENT, RESAMPLES_P, LIKES_DETERMINISTIC, DETERMINISTIC_EXACT };

struct writer {
    const struct table *table;
    enum flaw flaw;
    int32_t before;
    uint64_t seed;
    struct uniforms last;
    struct evidence e;
};

static void draw_table(struct table *t, uint64_t *seed)
{
    for (int i = 0; i < WORDS; i++) {
        for (int v = 0; v < WORDS; v++) {
            double p = exp(3 * uniform(seed)) * (uniform(seed) < .9), q = (p + .3) * exp(2 * uniform(seed));
            t->p[i][v] = (float)(v == i ? p + 1 : p);
            t->q[i][v] = (float)q;
        }
        double p = row_sum(t->p[i], WORDS), q = row_sum(t->q[i], WORDS);
        for (int v = 0; v < WORDS; v++) {
            t->p[i][v] = (float)((double)t->p[i][v] / p);
            t->q[i][v] = (float)((double)t->q[i][v] / q);
        }
    }
}

static int32_t pick(const double *w, uint64_t *seed)
{
    double s = 0;
    for (int i = 0; i < WORDS; i++)
        s += w[i];
    double at = uniform(seed) * s;
    int last = -1;
    for (int i = 0; i < WORDS; i++) {
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
    double w[WORDS];
    for (int i = 0; i < WORDS; i++)
        w[i] = (double)row[i];
    return pick(w, seed);
}

static void write_token(struct writer *w, int32_t token, int index, const int32_t *chosen)
{
    const struct table *t = w->table;
    struct token_seen seen = { .vocab = WORDS,
                               .p = t->p[w->before],
                               .p_sum = row_sum(t->p[w->before], WORDS),
                               .token = token,
                               .before = w->before,
                               .end = 0,
                               .index = index,
                               .bonus = index == DRAFT_TOKENS,
                               .u = uniform(&w->seed) };
    if (index < DRAFT_TOKENS && !chosen) {
        seen.q = t->q[w->before];
        seen.q_sum = row_sum(seen.q, WORDS);
    }
    if (index < DRAFT_TOKENS && chosen) {
        seen.chosen = chosen;
        seen.n_deterministic = 1;
    }
    w->last = evidence_add(&w->e, &seen, w->last);
    w->before = token;
}

// One guess drawn or chosen, and judged; the token that comes of it. *stood: it was the guess.
static int32_t verify(struct writer *w, int32_t *chosen, int *accepted)
{
    const float *p = w->table->p[w->before], *q = w->table->q[w->before];
    double left[WORDS];
    int certain = w->flaw >= LIKES_DETERMINISTIC;
    int32_t draft_token = *chosen = certain ? row_best(q, WORDS) : pick_row(q, &w->seed);
    double chance = (double)p[draft_token] / (certain ? 1 : (double)q[draft_token]);
    chance *= w->flaw == LENIENT || w->flaw == LIKES_DETERMINISTIC ? 1.25 : 1;
    *accepted = uniform(&w->seed) < chance;
    if (*accepted)
        return draft_token;
    for (int v = 0; v < WORDS; v++) {
        left[v] = certain ? (v == draft_token ? 0 : (double)p[v]) : fmax(0, (double)p[v] - (double)q[v]);
        if (w->flaw == RESAMPLES_P)
            left[v] = (double)p[v];
    }
    return pick(left, &w->seed);
}

static void write_text(struct writer *w, int tokens)
{
    for (int n = 0; n < tokens;) {
        int accepted = 1, index = 0;
        for (; index < DRAFT_TOKENS && accepted; index++, n++) {
            int32_t chosen, token = verify(w, &chosen, &accepted);
            write_token(w, token, index, w->flaw >= LIKES_DETERMINISTIC ? &chosen : NULL);
        }
        if (accepted) {
            write_token(w, pick_row(w->table->p[w->before], &w->seed), index, NULL);
            n++;
        }
    }
}

static void sequences_add_up(void **state)
{
    (void)state;
    struct table t;
    uint64_t seed = 5;
    draw_table(&t, &seed);
    struct writer a = { .table = &t, .seed = 6, .last = evidence_start },
                  b = { .table = &t, .seed = 7, .last = evidence_start };
    write_text(&a, 700);
    write_text(&b, 400);
    struct writer both = { .table = &t, .seed = 6, .last = evidence_start };
    write_text(&both, 700);
    both.seed = 7;
    both.before = 0;
    both.last = evidence_start;
    write_text(&both, 400);
    evidence_join(&a.e, &b.e);
    const double *x = (const double *)&a.e, *y = (const double *)&both.e;
    for (int i = 0; i < EVIDENCE_DOUBLES; i++)
        near(x[i], y[i], 1e-9);
    near(evidence_log_e(&a.e), evidence_log_e(&both.e), 1e-9);
    assert_true(evidence_tokens(&a.e) >= 1100);
}

// 300 texts. Of a test with the right law a share of .05 has p < .05: 15, and more than 35 in one of 500,000 cases; of
// p < .01, 3, and more than 13 in one of 160,000. The mean of all bets exceeds 20 at any time in at most .05: 15.
static void an_exact_text_raises_no_alarm(void **state)
{
    (void)state;
    enum { RUNS = 300, TOKENS = 600, LOOKS = 20 };
    int seldom[EVIDENCE_TESTS] = { 0 }, often[EVIDENCE_TESTS] = { 0 }, n = 0, alarms = 0, tests = 0, small = 0;
    uint64_t seed = 8;
    for (int run = 0; run < RUNS; run++) {
        struct table t;
        draw_table(&t, &seed);
        struct writer w = { .table = &t, .seed = (uint64_t)run * 7919 + 17, .last = evidence_start };
        w.flaw = run % 3 == 2 ? DETERMINISTIC_EXACT : EXACT;
        double most = -INFINITY;
        for (int look = 0; look < LOOKS; look++) {
            write_text(&w, TOKENS / LOOKS);
            most = fmax(most, evidence_log_e(&w.e));
        }
        alarms += most >= log(20);
        struct exact_test list[EVIDENCE_TESTS];
        n = evidence_tests(&w.e, list, EVIDENCE_TESTS);
        assert_true(n > 30 && n <= EVIDENCE_TESTS);
        for (int i = 0; i < n; i++) { // by place in the list
            seldom[i] += list[i].p < .01;
            often[i] += list[i].p < .05;
            small += list[i].p < .05;
            tests++;
        }
    }
    for (int i = 0; i < EVIDENCE_TESTS; i++) {
        assert_in_range(seldom[i], 0, 13);
        assert_in_range(often[i], 0, 35);
    }
    print_message("p < .05 in %.2f %% of %d; E >= 20 in %d of %d\n", 100. * small / tests, tests, alarms, RUNS);
    assert_true(small > .02 * tests && small < .06 * tests);
    assert_in_range(alarms, 0, 30);
}

static double least_holm(const struct evidence *e, struct exact_test *which)
{
    struct exact_test list[EVIDENCE_TESTS];
    double p[EVIDENCE_TESTS], adjusted[EVIDENCE_TESTS], least = 0;
    int n = evidence_tests(e, list, EVIDENCE_TESTS);
    for (int i = 0; i < n; i++)
        p[i] = list[i].log10_p;
    holm(adjusted, p, n);
    for (int i = 0; i < n; i++)
        if (adjusted[i] < least) {
            least = adjusted[i];
            *which = list[i];
        }
    return least;
}

static void a_wrong_text_is_found_out(void **state)
{
    (void)state;
    static const char *const says[] = { "exact", "lenience 1.25", "resamples p", "likes the chosen", "chosen, exact" };
    for (int flaw = EXACT; flaw <= DETERMINISTIC_EXACT; flaw++) {
        struct table t;
        uint64_t seed = 9;
        draw_table(&t, &seed);
        struct writer w = { .table = &t, .flaw = (enum flaw)flaw, .seed = 10, .last = evidence_start };
        write_text(&w, 20000);
        struct exact_test by = { 0 };
        double log10_p = least_holm(&w.e, &by), log10_e = evidence_log_e(&w.e) / log(10);
        print_message("%s: p = 10^%.1f by %s %s %s, e = 10^%.1f\n", says[flaw], log10_p, by.kind ? by.kind : "-",
                      by.of ? by.of : "", by.part ? by.part : "", log10_e);
        if (flaw == EXACT || flaw == DETERMINISTIC_EXACT)
            assert_true(log10_p > -2 && log10_e < 2);
        else
            assert_true(log10_p < -6 && log10_e > 6);
    }
}

// Pairs: a text whose uniform numbers are right one by one, but follow each other.
static void numbers_that_depend_on_the_one_before_are_found_out(void **state)
{
    (void)state;
    const float even[] = { .25f, .25f, .25f, .25f };
    struct evidence e = { 0 };
    struct uniforms last = evidence_start;
    uint64_t seed = 11;
    int32_t token = 0;
    for (int i = 0; i < 4000; i++) {
        token = uniform(&seed) < .8 ? (int32_t)(4 * uniform(&seed)) : (token + 1) % 4;
        struct token_seen t = { .vocab = 4, .p = even, .p_sum = 1, .token = token, .before = -1, .end = -1 };
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_add_up),
        cmocka_unit_test(an_exact_text_raises_no_alarm),
        cmocka_unit_test(a_wrong_text_is_found_out),
        cmocka_unit_test(numbers_that_depend_on_the_one_before_are_found_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
