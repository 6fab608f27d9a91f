// test_evidence.c - the contribution of one token against sorting and plain double loops; and the tests of the sums.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verifier/exact/evidence.h"
#include "verifier/exact/mass.h"
#include "results/statistics/distributions.h"
#include "results/statistics/statistics.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"

// ---- one token, by plain code

enum { MAX_VOCAB = 300 };

struct made {
    float p[MAX_VOCAB], q[MAX_VOCAB];
    int32_t deterministic[4];
    struct observed_token t;
};

// Few different values, so that ties and zeros occur. Sums differ slightly from 1 unless there is only one token.
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
    for (int i = 0; i < vocab && !with_q; i++) // a sum far from 1, which must not matter
        m->p[i] *= .75f;
    for (int i = 0; i < n_deterministic; i++)
        m->deterministic[i] = (int32_t)(uniform(seed) * vocab);
    int32_t token = (int32_t)(uniform(seed) * vocab);
    while (!(m->p[token] > 0))
        token = (token + 1) % vocab;
    m->t = (struct observed_token){ .vocab = vocab,
                                    .p = m->p,
                                    .p_sum = row_sum(m->p, vocab),
                                    .q = with_q ? m->q : NULL,
                                    .q_sum = row_sum(m->q, vocab),
                                    .deterministic = m->deterministic,
                                    .n_deterministic = n_deterministic,
                                    .token = token,
                                    .before = (int32_t)(uniform(seed) * vocab),
                                    .end = (int32_t)(uniform(seed) * vocab),
                                    .index = (int)(uniform(seed) * 3),
                                    .bonus = uniform(seed) < .3,
                                    .u = uniform(seed) };
}

static int deterministic_place(const struct observed_token *t, int v)
{
    for (int i = 0; i < t->n_deterministic; i++)
        if (t->deterministic[i] == v)
            return i;
    return -1;
}

struct ranked {
    int deterministic; // 0: no; otherwise larger for tokens tried earlier
    float by;
    int v;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->deterministic != y->deterministic)
        return x->deterministic < y->deterministic ? -1 : 1;
    if (!x->deterministic && x->by != y->by)
        return x->by < y->by ? -1 : 1;
    return (x->v > y->v) - (x->v < y->v);
}

// F(x) by sorting. Tokens with p = 0 have no q / p; they have no mass, so their place does not matter.
static double sorted_before(const struct observed_token *t, int order, int32_t x)
{
    struct ranked r[MAX_VOCAB] = { 0 };
    for (int v = 0; v < t->vocab; v++) {
        int place = order == ORDER_GUIDED ? deterministic_place(t, v) : -1;
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

static void mass_before_a_token_matches_sorting(void **state)
{
    uint64_t seed = 1;
    for (int run = 0; run < 40 * SIZES; run++) {
        struct made m;
        make(&m, sizes[run % SIZES], run / SIZES % 2, run / SIZES % 5, &seed);
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

// The functions, with the library's logarithm. Events that depend on u, of known probability, are not included.
static double function(const struct observed_token *t, enum score s, int v)
{
    double p = (double)t->p[v] / t->p_sum, q = t->q ? (double)t->q[v] / t->q_sum : 0;
    switch (s) {
    case SCORE_LOG_RATIO:
        return fmax(-3, fmin(3, log(q / p)));
    case SCORE_ABOVE:
        return q > p;
    case SCORE_Q_ARGMAX:
        return v == row_argmax(t->q, t->vocab);
    case SCORE_DETERMINISTIC:
        return deterministic_place(t, v) >= 0;
    case SCORE_P_ARGMAX:
        return v == row_argmax(t->p, t->vocab);
    case SCORE_SURPRISAL:
        return fmin(8, -log(p));
    case SCORE_END:
        return v == t->end;
    default:
        return v == t->before;
    }
}

static int is_evaluated(const struct observed_token *t, enum score s)
{
    if (s == SCORE_TAIL)
        return 0;
    return s == SCORE_DETERMINISTIC ? t->n_deterministic > 0 : s <= SCORE_Q_ARGMAX ? t->q != NULL : 1;
}

static const struct evidence_part *only_part(const struct evidence *e)
{
    for (int i = 0; i < PARTS; i++)
        if (e->part[i].tokens > 0)
            return &e->part[i];
    return NULL;
}

static void scores_match_plain_loops(void **state)
{
    uint64_t seed = 2;
    int compared = 0;
    for (int run = 0; run < 40 * SIZES; run++) {
        struct made m;
        make(&m, sizes[run % SIZES], run / SIZES % 2, run / SIZES % 5, &seed);
        struct evidence e = { 0 };
        evidence_add(&e, &m.t, evidence_start);
        const struct evidence_part *part = only_part(&e);
        for (int s = 0; s < SCORES; s++) {
            if (!is_evaluated(&m.t, (enum score)s))
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

// The probability of U below a bound: the mass below it.
static double mass_below(const struct observed_token *t, double bound)
{
    double s = 0;
    for (int v = 0; v < t->vocab; v++) {
        double from = sorted_before(t, ORDER_P, v), own = (double)t->p[v] / t->p_sum;
        s += fmax(0, fmin(bound - from, own));
    }
    return s;
}

static int is_favoured(const struct observed_token *t, int v)
{
    return deterministic_place(t, v) >= 0 || (t->q && (double)t->q[v] / t->q_sum > (double)t->p[v] / t->p_sum);
}

static int bet_on(const struct observed_token *t, enum bet b, int v)
{
    if (b == BET_FAVOURED)
        return is_favoured(t, v);
    if (b == BET_DRAFT_TOKEN)
        return v == (t->n_deterministic > 0 ? t->deterministic[0] : row_argmax(t->q, t->vocab));
    return v == row_argmax(t->p, t->vocab);
}

// exp(lambda g(x)) / sum over v of p(v) exp(lambda g(v))
static double factor(const struct observed_token *t, enum bet b, double lambda, double u)
{
    if (b == BET_TAIL || b == BET_HALF) {
        double bound = b == BET_TAIL ? .01 : .5, probability = mass_below(t, bound);
        return exp(u < bound ? lambda : 0) / (probability * exp(lambda) + 1 - probability);
    }
    double mean = 0;
    for (int v = 0; v < t->vocab; v++)
        mean += (double)t->p[v] / t->p_sum * exp(lambda * bet_on(t, b, v));
    return exp(lambda * bet_on(t, b, t->token)) / mean;
}

static void a_bet_is_multiplied_by_its_factor(void **state)
{
    uint64_t seed = 3;
    for (int run = 0; run < 10 * SIZES; run++) {
        struct made m;
        make(&m, sizes[run % SIZES], run / SIZES % 2, run / SIZES % 5, &seed);
        struct evidence e = { 0 };
        struct uniforms u = evidence_add(&e, &m.t, evidence_start);
        double mean = 0;
        for (int b = 0; b < BETS; b++)
            for (int i = 0; i < STAKES; i++) {
                double f = 1;
                if ((b != BET_FAVOURED && b != BET_DRAFT_TOKEN) || m.t.q || m.t.n_deterministic > 0)
                    f = factor(&m.t, (enum bet)b, evidence_stakes[i], u.order[ORDER_P]);
                near(exp(only_part(&e)->log_e[b][i]), f, 1e-10);
                int first = !m.t.bonus && m.t.index == 0;
                mean += (f + (first ? f : 1) + (m.t.bonus ? f : 1)) / EVIDENCE_BETS;
            }
        near(exp(evidence_log_e(&e)), mean, 1e-10);
    }
}

static void vectorised_sums_match_plain_sums(void **state)
{
    enum { N = 5000 };
    float *p = malloc(N * sizeof(*p)), *q = malloc(N * sizeof(*q));
    uint64_t seed = 4;
    for (int i = 0; i < N; i++) {
        p[i] = (float)exp(-12 * uniform(&seed));
        q[i] = p[i] * (float)exp(3 * uniform(&seed) - 1.5);
    }
    double all = row_sum(p, N), by_ratio = 0, above = 0, surprisal = 0;
    struct mass_scale scale = { (float)(1 / all), (float)(all / row_sum(q, N)) };
    const int x = 1234;
    for (int i = 0; i < N; i++) {
        float a = mass_ratio(p[i], q[i]), b = mass_ratio(p[x], q[x]);
        by_ratio += a < b || (a == b && i < x) ? (double)p[i] : 0;
        above += mass_above(p[i], q[i], scale) ? (double)p[i] : 0;
        surprisal += (double)p[i] * (double)mass_surprisal(p[i], scale);
    }
    struct mass m = mass_of(p, q, N, scale, x);
    near(m.all, all, 1e-12 * all);
    near(m.by_ratio, by_ratio, 1e-12 * all);
    near(m.above, above, 1e-12 * all);
    near(m.surprisal, surprisal, 1e-12 * all);
    near(m.p_argmax, row_argmax(p, N), 0);
    near(m.q_argmax, row_argmax(q, N), 0);
    free(p);
    free(q);
}

// ---- edges

static void an_impossible_token_is_proof(void **state)
{
    const float p[] = { .5f, 0, .5f };
    struct observed_token t = { .vocab = 3, .p = p, .p_sum = 1, .token = 1, .before = -1, .end = -1 };
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
    assert_true(list[0].log10_p == -INFINITY);
    for (int i = 1; i < n; i++)
        assert_true(list[i].log10_p > -INFINITY && list[i].log10_p <= 0);
}

static void certain_tokens_add_no_evidence(void **state)
{
    const float one_hot[] = { 0, 1, 0, 0 }, one[] = { 1 };
    struct evidence e = { 0 };
    struct uniforms u = evidence_start;
    const int32_t deterministic[] = { 1, 1, 0 };
    for (int i = 0; i < 20; i++) {
        struct observed_token t = {
            .vocab = 4, .p = one_hot, .p_sum = 1, .token = 1, .before = 1, .end = 1, .u = i / 20.
        };
        if (i % 2) {
            t.q = one_hot;
            t.q_sum = 1;
        } else {
            t.deterministic = deterministic;
            t.n_deterministic = 3;
        }
        u = evidence_add(&e, &t, u);
        struct observed_token only = {
            .vocab = 1, .p = one, .p_sum = 1, .before = 0, .end = -1, .bonus = true, .u = .5
        };
        u = evidence_add(&e, &only, u);
        near(u.order[ORDER_ID], .5, 0);
    }
    for (int i = 0; i < PARTS; i++)
        for (int s = 0; s < SCORES; s++)
            if (s != SCORE_TAIL)
                near(e.part[i].variance[s], 0, 0);
    for (int b = 0; b < BET_TAIL; b++)
        for (int i = 0; i < STAKES; i++)
            near(e.part[PART_FIRST].log_e[b][i], 0, 1e-14);
    struct exact_test list[EVIDENCE_TESTS];
    int n = evidence_tests(&e, list, EVIDENCE_TESTS);
    for (int i = 0; i < n; i++) {
        assert_true(!isnan(list[i].log10_p) && !isnan(list[i].statistic));
        assert_true(strcmp(list[i].kind, "score") != 0 || strcmp(list[i].of, "tail") == 0);
    }
}

static void no_tokens_are_no_evidence(void **state)
{
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

// Sums written by hand, against textbook formulas.
static void tests_match_textbook_formulas(void **state)
{
    struct evidence e = { 0 };
    struct evidence_part *later = &e.part[PART_LATER];
    later->tokens = 2048;
    for (int i = 0; i < CELLS; i++) // three quarters in the lower half
        e.cells[ORDER_ID][i] = i < CELLS / 2 ? 3 : 1;
    for (int i = 0; i < COARSE; i++)
        later->cells[ORDER_P][i] = i % 2 ? 20 : 0;
    for (int i = 0; i < SQUARE; i++)
        e.squares[ORDER_P][i][i] = 80;
    later->score[SCORE_SURPRISAL] = 5e3;
    later->variance[SCORE_SURPRISAL] = 1e6;
    later->seen[SCORE_SURPRISAL] = 2000;
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
    t = test_of(&e, "score", "surprisal", "later");
    near(t.statistic, 5, 1e-12);
    near(t.tokens, 2000, 0);
    near(t.log10_p, tail_normal(5), .1);
    assert_true(t.log10_p > tail_normal(5));
}

// 1,000 tokens of which p expects one end. The two-sided p-value must not be below the binomial tail.
static void rare_events_get_no_normal_tail(void **state)
{
    const float p[] = { .999f, .001f };
    double tail = 1, probability = pow(.999, 1000); // binomial: of at least `ends`, of exactly `ends`
    for (int ends = 0; ends <= 12; ends++) {
        struct evidence e = { 0 };
        for (int i = 0; i < 1000; i++) {
            struct observed_token t = {
                .vocab = 2, .p = p, .p_sum = row_sum(p, 2), .token = i < ends, .before = -1, .end = 1
            };
            t.u = .5;
            evidence_add(&e, &t, evidence_start);
        }
        double seen = pow(10, test_of(&e, "score", "end", "all").log10_p);
        assert_true(seen >= fmin(1, tail) * .9 || ends < 2);
        assert_true(seen <= 12 * tail);
        tail -= probability;
        probability *= (1000. - ends) / (ends + 1) * .001 / .999;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mass_before_a_token_matches_sorting), cmocka_unit_test(scores_match_plain_loops),
        cmocka_unit_test(a_bet_is_multiplied_by_its_factor),   cmocka_unit_test(vectorised_sums_match_plain_sums),
        cmocka_unit_test(an_impossible_token_is_proof),        cmocka_unit_test(certain_tokens_add_no_evidence),
        cmocka_unit_test(no_tokens_are_no_evidence),           cmocka_unit_test(tests_match_textbook_formulas),
        cmocka_unit_test(rare_events_get_no_normal_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
