// test_evidence.c - what one token adds, against sorting and plain double loops; and what the tests make of the sums.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exact/evidence.h"
#include "exact/mass.h"
#include "exact/tails.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"

// ---- one token, done slowly

enum { MOST = 300 };

struct made {
    float p[MOST], q[MOST];
    int32_t chosen[4];
    struct token_seen t;
};

// Few different values, so that there are ties, and zeros. Sums a little beside 1 unless there is only one token.
static void fill(float *w, int n, uint64_t *seed)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)(w[i] = (float)pow(2, -floor(12 * uniform(seed))) * (uniform(seed) < .8 || n == 1));
    w[0] += s == 0;
    s = row_sum(w, n);
    for (int i = 0; i < n; i++)
        w[i] = (float)((double)w[i] / s);
}

static void make(struct made *m, int vocab, int with_q, int n_deterministic, uint64_t *seed)
{
    fill(m->p, vocab, seed);
    fill(m->q, vocab, seed);
    for (int i = 0; i < vocab && !with_q; i++) // a sum well beside 1, which must not matter
        m->p[i] *= .75f;
    for (int i = 0; i < n_deterministic; i++)
        m->chosen[i] = (int32_t)(uniform(seed) * vocab);
    int32_t token = (int32_t)(uniform(seed) * vocab);
    while (!(m->p[token] > 0))
        token = (token + 1) % vocab;
    m->t = (struct token_seen){ .vocab = vocab,
                                .p = m->p,
                                .p_sum = row_sum(m->p, vocab),
                                .q = with_q ? m->q : NULL,
                                .q_sum = row_sum(m->q, vocab),
                                .chosen = m->chosen,
                                .n_deterministic = n_deterministic,
                                .token = token,
                                .before = (int32_t)(uniform(seed) * vocab),
                                .end = (int32_t)(uniform(seed) * vocab),
                                .index = (int)(uniform(seed) * 3),
                                .bonus = uniform(seed) < .3,
                                .u = uniform(seed) };
}

static int chosen_place(const struct token_seen *t, int v)
{
    for (int i = 0; i < t->n_deterministic; i++)
        if (t->chosen[i] == v)
            return i;
    return -1;
}

struct ranked {
    int chosen; // 0 no, else the later the earlier it was tried
    float by;
    int v;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->chosen != y->chosen)
        return x->chosen < y->chosen ? -1 : 1;
    if (!x->chosen && x->by != y->by)
        return x->by < y->by ? -1 : 1;
    return (x->v > y->v) - (x->v < y->v);
}

// F(x) by sorting. Tokens that p rules out have no q / p to be sorted by: they count for nothing wherever they are.
static double sorted_before(const struct token_seen *t, int order, int32_t x)
{
    struct ranked r[MOST] = { 0 };
    for (int v = 0; v < t->vocab; v++) {
        int place = order == ORDER_GUIDED ? chosen_place(t, v) : -1;
        float by = order == ORDER_ID ? 0 : t->p[v];
        if (order == ORDER_GUIDED && t->q)
            by = t->p[v] > 0 ? t->q[v] / t->p[v] : 0;
        r[v] = (struct ranked){ place < 0 ? 0 : 100 - place, by, v };
    }
    qsort(r, (size_t)t->vocab, sizeof(*r), by_rank);
    double before = 0;
    for (int i = 0; r[i].v != x; i++)
        before += (double)t->p[r[i].v];
    return before / t->p_sum;
}

static const int sizes[] = { 1, 2, 3, 12, 31, 32, 33, 64, 65, 100, 257, 300 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void the_mass_before_a_token_is_what_sorting_gives(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int trial = 0; trial < 40 * SIZES; trial++) {
        struct made m;
        make(&m, sizes[trial % SIZES], trial / SIZES % 2, trial / SIZES % 5, &seed);
        struct evidence e = { 0 };
        struct uniforms u = evidence_add(&e, &m.t, evidence_start);
        for (int i = 0; i < ORDERS; i++) {
            double own = (double)m.p[m.t.token] / m.t.p_sum;
            double expected = sorted_before(&m.t, i, m.t.token) + m.t.u * own;
            near(u.order[i], expected, 1e-12);
            near(e.cells[i][(int)(u.order[i] * CELLS)], 1, 0);
            near(e.part[m.t.bonus   ? PART_BONUS
                        : m.t.index ? PART_LATER
                                    : PART_FIRST]
                     .cells[i][(int)(u.order[i] * 32)],
                 1, 0);
        }
    }
}

// The functions with a library's logarithm. What depends on u is not here: events of known chance.
static double function(const struct token_seen *t, enum score s, int v)
{
    double p = (double)t->p[v] / t->p_sum, q = t->q ? (double)t->q[v] / t->q_sum : 0;
    switch (s) {
    case SCORE_LOG_RATIO:
        return fmax(-3, fmin(3, log(q / p)));
    case SCORE_ABOVE:
        return q > p;
    case SCORE_Q_BEST:
        return v == row_best(t->q, t->vocab);
    case SCORE_DETERMINISTIC:
        return chosen_place(t, v) >= 0;
    case SCORE_P_BEST:
        return v == row_best(t->p, t->vocab);
    case SCORE_SURPRISE:
        return fmin(8, -log(p));
    case SCORE_END:
        return v == t->end;
    default:
        return v == t->before;
    }
}

static int asked(const struct token_seen *t, enum score s)
{
    if (s == SCORE_BOTTOM)
        return 0;
    return s == SCORE_DETERMINISTIC ? t->n_deterministic > 0 : s <= SCORE_Q_BEST ? t->q != NULL : 1;
}

static const struct evidence_part *only_part(const struct evidence *e)
{
    for (int i = 0; i < PARTS; i++)
        if (e->part[i].tokens > 0)
            return &e->part[i];
    return NULL;
}

static void scores_are_those_of_plain_loops(void **state)
{
    (void)state;
    uint64_t seed = 2;
    int compared = 0;
    for (int trial = 0; trial < 40 * SIZES; trial++) {
        struct made m;
        make(&m, sizes[trial % SIZES], trial / SIZES % 2, trial / SIZES % 5, &seed);
        struct evidence e = { 0 };
        evidence_add(&e, &m.t, evidence_start);
        const struct evidence_part *part = only_part(&e);
        for (int s = 0; s < SCORES; s++) {
            if (!asked(&m.t, (enum score)s))
                continue;
            double mean = 0, variance = 0;
            for (int v = 0; v < m.t.vocab; v++)
                if (m.p[v] > 0)
                    mean += (double)m.p[v] / m.t.p_sum * function(&m.t, (enum score)s, v);
            for (int v = 0; v < m.t.vocab; v++)
                if (m.p[v] > 0)
                    variance += (double)m.p[v] / m.t.p_sum * pow(function(&m.t, (enum score)s, v) - mean, 2);
            near(part->variance[s], variance, 4e-6);
            near(part->score[s], variance < 1e-9 ? 0 : function(&m.t, (enum score)s, m.t.token) - mean, 2e-6);
            near(part->seen[s], variance < 1e-9 ? 0 : 1, 0);
            compared++;
        }
    }
    assert_true(compared > 2000);
}

// The chance of U below a bound, as the mass that lies below it.
static double mass_below(const struct token_seen *t, double bound)
{
    double s = 0;
    for (int v = 0; v < t->vocab; v++) {
        double from = sorted_before(t, ORDER_P, v), own = (double)t->p[v] / t->p_sum;
        s += fmax(0, fmin(bound - from, own));
    }
    return s;
}

static int liked(const struct token_seen *t, int v)
{
    return chosen_place(t, v) >= 0 || (t->q && (double)t->q[v] / t->q_sum > (double)t->p[v] / t->p_sum);
}

static int bet_on(const struct token_seen *t, enum bet b, int v)
{
    if (b == BET_LIKED)
        return liked(t, v);
    if (b == BET_DRAFT_TOKEN)
        return v == (t->n_deterministic > 0 ? t->chosen[0] : row_best(t->q, t->vocab));
    return v == row_best(t->p, t->vocab);
}

// exp(lambda g(x)) / sum over v of p(v) exp(lambda g(v))
static double factor(const struct token_seen *t, enum bet b, double lambda, double u)
{
    if (b == BET_BOTTOM || b == BET_HALF) {
        double bound = b == BET_BOTTOM ? .01 : .5, chance = mass_below(t, bound);
        return exp(u < bound ? lambda : 0) / (chance * exp(lambda) + 1 - chance);
    }
    double mean = 0;
    for (int v = 0; v < t->vocab; v++)
        mean += (double)t->p[v] / t->p_sum * exp(lambda * bet_on(t, b, v));
    return exp(lambda * bet_on(t, b, t->token)) / mean;
}

static void a_bet_grows_by_its_factor(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int trial = 0; trial < 10 * SIZES; trial++) {
        struct made m;
        make(&m, sizes[trial % SIZES], trial / SIZES % 2, trial / SIZES % 5, &seed);
        struct evidence e = { 0 };
        struct uniforms u = evidence_add(&e, &m.t, evidence_start);
        double mean = 0;
        for (int b = 0; b < BETS; b++)
            for (int i = 0; i < STAKES; i++) {
                double f = 1;
                if ((b != BET_LIKED && b != BET_DRAFT_TOKEN) || m.t.q || m.t.n_deterministic > 0)
                    f = factor(&m.t, (enum bet)b, evidence_stakes[i], u.order[ORDER_P]);
                near(exp(only_part(&e)->log_e[b][i]), f, 1e-10);
                int first = !m.t.bonus && m.t.index == 0;
                mean += (f + (first ? f : 1) + (m.t.bonus ? f : 1)) / EVIDENCE_BETS;
            }
        near(exp(evidence_log_e(&e)), mean, 1e-10);
    }
}

static void wide_registers_change_nothing_but_speed(void **state)
{
    (void)state;
    enum { N = 5000 };
    float *p = malloc(N * sizeof(*p)), *q = malloc(N * sizeof(*q));
    uint64_t seed = 4;
    for (int i = 0; i < N; i++) {
        p[i] = (float)exp(-12 * uniform(&seed));
        q[i] = p[i] * (float)exp(3 * uniform(&seed) - 1.5);
    }
    double all = row_sum(p, N), by_ratio = 0, above = 0, surprise = 0;
    struct mass_scale scale = { (float)(1 / all), (float)(all / row_sum(q, N)) };
    const int x = 1234;
    for (int i = 0; i < N; i++) {
        float a = mass_ratio(p[i], q[i]), b = mass_ratio(p[x], q[x]);
        by_ratio += a < b || (a == b && i < x) ? (double)p[i] : 0;
        above += mass_above(p[i], q[i], scale) ? (double)p[i] : 0;
        surprise += (double)p[i] * (double)mass_surprise(p[i], scale);
    }
    struct mass m = mass_of(p, q, N, scale, x);
    near(m.all, all, 1e-12 * all);
    near(m.by_ratio, by_ratio, 1e-12 * all);
    near(m.above, above, 1e-12 * all);
    near(m.surprise, surprise, 1e-12 * all);
    near(m.p_best, row_best(p, N), 0);
    near(m.q_best, row_best(q, N), 0);
    free(p);
    free(q);
}

// ---- edges

static void what_cannot_be_is_proof(void **state)
{
    (void)state;
    const float p[] = { .5f, 0, .5f };
    struct token_seen t = { .vocab = 3, .p = p, .p_sum = 1, .token = 1, .before = -1, .end = -1 };
    struct evidence e = { 0 };
    const struct uniforms before = { { .5, .5, .5 } };
    struct uniforms u = evidence_add(&e, &t, before);
    near(u.order[0], -1, 0);
    near(u.order[2], -1, 0);
    t.token = 2;
    u = evidence_add(&e, &t, u);
    near(e.impossible, 1, 0);
    near(evidence_tokens(&e), 2, 0);
    assert_true(evidence_log_e(&e) == INFINITY);
    struct exact_test list[EVIDENCE_TESTS];
    int n = evidence_tests(&e, list, EVIDENCE_TESTS);
    assert_true(n > 1);
    assert_string_equal(list[0].kind, "impossible");
    near(list[0].statistic, 1, 0);
    near(list[0].p, 0, 0);
    assert_true(list[0].log10_p == -INFINITY);
    for (int i = 1; i < n; i++)
        assert_true(list[i].p > 0 && list[i].p <= 1);
}

static void of_what_is_certain_there_is_nothing_to_learn(void **state)
{
    (void)state;
    const float one_hot[] = { 0, 1, 0, 0 }, one[] = { 1 };
    struct evidence e = { 0 };
    struct uniforms u = evidence_start;
    const int32_t chosen[] = { 1, 1, 0 };
    for (int i = 0; i < 20; i++) {
        struct token_seen t = { .vocab = 4, .p = one_hot, .p_sum = 1, .token = 1, .before = 1, .end = 1, .u = i / 20. };
        if (i % 2) {
            t.q = one_hot;
            t.q_sum = 1;
        } else {
            t.chosen = chosen;
            t.n_deterministic = 3;
        }
        u = evidence_add(&e, &t, u);
        struct token_seen only = { .vocab = 1, .p = one, .p_sum = 1, .before = 0, .end = -1, .bonus = true, .u = .5 };
        u = evidence_add(&e, &only, u);
        near(u.order[ORDER_ID], .5, 0);
    }
    for (int i = 0; i < PARTS; i++)
        for (int s = 0; s < SCORES; s++)
            if (s != SCORE_BOTTOM)
                near(e.part[i].variance[s], 0, 0);
    for (int b = 0; b < BET_BOTTOM; b++)
        for (int i = 0; i < STAKES; i++)
            near(e.part[PART_FIRST].log_e[b][i], 0, 1e-14);
    struct exact_test list[EVIDENCE_TESTS];
    int n = evidence_tests(&e, list, EVIDENCE_TESTS);
    for (int i = 0; i < n; i++) {
        assert_true(!isnan(list[i].p) && !isnan(list[i].statistic));
        assert_true(strcmp(list[i].kind, "score") != 0 || strcmp(list[i].of, "bottom") == 0);
    }
}

static void no_tokens_are_no_evidence(void **state)
{
    (void)state;
    struct evidence e = { 0 };
    near(evidence_log_e(&e), 0, 1e-15);
    assert_int_equal(evidence_tests(&e, NULL, 0), 0);
}

static struct exact_test test_of(const struct evidence *e, const char *kind, const char *of, const char *part)
{
    struct exact_test list[EVIDENCE_TESTS], found = { 0 };
    int n = evidence_tests(e, list, EVIDENCE_TESTS), times = 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].kind, kind) && !strcmp(list[i].of, of) && !strcmp(list[i].part, part)) {
            found = list[i];
            times++;
        }
    assert_int_equal(times, 1);
    return found;
}

// Sums written by hand, and what the textbook's formulas make of them.
static void tests_say_what_the_sums_say(void **state)
{
    (void)state;
    struct evidence e = { 0 };
    struct evidence_part *later = &e.part[PART_LATER];
    later->tokens = 2048;
    for (int i = 0; i < CELLS; i++) // three quarters in the lower half
        e.cells[ORDER_ID][i] = i < CELLS / 2 ? 3 : 1;
    for (int i = 0; i < COARSE; i++)
        later->cells[ORDER_P][i] = i % 2 ? 20 : 0;
    for (int i = 0; i < SQUARE; i++)
        e.squares[ORDER_P][i][i] = 80;
    later->score[SCORE_SURPRISE] = 5e3;
    later->variance[SCORE_SURPRISE] = 1e6;
    later->seen[SCORE_SURPRISE] = 2000;
    struct exact_test t = test_of(&e, "KS", "id", "all");
    near(t.statistic, .25, 1e-15);
    near(t.tokens, 2048, 0);
    near(t.log10_p, tail_kolmogorov(.25, 2048), 1e-12);
    t = test_of(&e, "chi-square", "p", "later");
    near(t.statistic, 320, 1e-10);
    near(t.log10_p, tail_chi_square(320, 31), 1e-10);
    t = test_of(&e, "pairs", "p", "all"); // 64 cells that expect 10: 8 have 80
    near(t.statistic, (8 * 70 * 70 + 56 * 10 * 10) / 10., 1e-9);
    near(t.log10_p, tail_chi_square(t.statistic, 49), 1e-9);
    t = test_of(&e, "score", "surprise", "later");
    near(t.statistic, 5, 1e-12);
    near(t.tokens, 2000, 0);
    near(t.log10_p, tail_normal(5), .1);
    assert_true(t.log10_p > tail_normal(5));
    near(log10(t.p), t.log10_p, 1e-12);
}

// 1,000 tokens of which p expects one end. The two-sided p-value must not be below the chance of what was seen.
static void rare_events_are_not_called_normal(void **state)
{
    (void)state;
    const float p[] = { .999f, .001f };
    double tail = 1, chance = pow(.999, 1000); // of at least `ends`, of just so many: binomial
    for (int ends = 0; ends <= 12; ends++) {
        struct evidence e = { 0 };
        for (int i = 0; i < 1000; i++) {
            struct token_seen t = {
                .vocab = 2, .p = p, .p_sum = row_sum(p, 2), .token = i < ends, .before = -1, .end = 1
            };
            t.u = .5;
            evidence_add(&e, &t, evidence_start);
        }
        double seen = test_of(&e, "score", "end", "all").p;
        assert_true(seen >= fmin(1, tail) * .9 || ends < 2);
        assert_true(seen <= 12 * tail);
        tail -= chance;
        chance *= (1000. - ends) / (ends + 1) * .001 / .999;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mass_before_a_token_is_what_sorting_gives),
        cmocka_unit_test(scores_are_those_of_plain_loops),
        cmocka_unit_test(a_bet_grows_by_its_factor),
        cmocka_unit_test(wide_registers_change_nothing_but_speed),
        cmocka_unit_test(what_cannot_be_is_proof),
        cmocka_unit_test(of_what_is_certain_there_is_nothing_to_learn),
        cmocka_unit_test(no_tokens_are_no_evidence),
        cmocka_unit_test(tests_say_what_the_sums_say),
        cmocka_unit_test(rare_events_are_not_called_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
