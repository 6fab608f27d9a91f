// test_evidence.c - what one token adds, against sorting and plain double loops; tails against another program; and
// whole texts from a table of rows, drawn right and drawn wrong.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exact/evidence.h"
#include "exact/mass.h"
#include "exact/power.h"
#include "exact/tails.h"
#include "tests/check.h"

static void near(double a, double b, double within)
{
    if (!(a == b || fabs(a - b) <= within))
        fail_msg("%.17g is not %.17g", a, b);
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

// ---- one token, done slowly

enum { MOST = 300 };

struct made {
    float p[MOST], q[MOST];
    int32_t chosen[4];
    struct token_seen t;
};

static double sum(const float *w, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)w[i];
    return s;
}

// Few different values, so that there are ties, and zeros. Sums a little beside 1 unless there is only one token.
static void fill(float *w, int n, uint64_t *seed)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)(w[i] = (float)pow(2, -floor(12 * uniform(seed))) * (uniform(seed) < .8 || n == 1));
    w[0] += s == 0;
    s = sum(w, n);
    for (int i = 0; i < n; i++)
        w[i] = (float)((double)w[i] / s);
}

static void make(struct made *m, int vocab, int with_q, int n_chosen, uint64_t *seed)
{
    fill(m->p, vocab, seed);
    fill(m->q, vocab, seed);
    for (int i = 0; i < vocab && !with_q; i++) // a sum well beside 1, which must not matter
        m->p[i] *= .75f;
    for (int i = 0; i < n_chosen; i++)
        m->chosen[i] = (int32_t)(uniform(seed) * vocab);
    int32_t token = (int32_t)(uniform(seed) * vocab);
    while (!(m->p[token] > 0))
        token = (token + 1) % vocab;
    m->t = (struct token_seen){ .vocab = vocab,
                                .p = m->p,
                                .p_sum = sum(m->p, vocab),
                                .q = with_q ? m->q : NULL,
                                .q_sum = sum(m->q, vocab),
                                .chosen = m->chosen,
                                .n_chosen = n_chosen,
                                .token = token,
                                .before = (int32_t)(uniform(seed) * vocab),
                                .end = (int32_t)(uniform(seed) * vocab),
                                .index = (int)(uniform(seed) * 3),
                                .bonus = uniform(seed) < .3,
                                .u = uniform(seed) };
}

static int chosen_place(const struct token_seen *t, int v)
{
    for (int i = 0; i < t->n_chosen; i++)
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

static int best_of(const float *w, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (w[i] > w[best])
            best = i;
    return best;
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
        return v == best_of(t->q, t->vocab);
    case SCORE_CHOSEN:
        return chosen_place(t, v) >= 0;
    case SCORE_P_BEST:
        return v == best_of(t->p, t->vocab);
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
    return s == SCORE_CHOSEN ? t->n_chosen > 0 : s <= SCORE_Q_BEST ? t->q != NULL : 1;
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
    if (b == BET_GUESS)
        return v == (t->n_chosen > 0 ? t->chosen[0] : best_of(t->q, t->vocab));
    return v == best_of(t->p, t->vocab);
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
                if ((b != BET_LIKED && b != BET_GUESS) || m.t.q || m.t.n_chosen > 0)
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
    double all = sum(p, N), by_ratio = 0, above = 0, surprise = 0;
    struct mass_scale scale = { (float)(1 / all), (float)(all / sum(q, N)) };
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
    near(m.p_best, best_of(p, N), 0);
    near(m.q_best, best_of(q, N), 0);
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
            t.n_chosen = 3;
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
            struct token_seen t = { .vocab = 2, .p = p, .p_sum = sum(p, 2), .token = i < ends, .before = -1, .end = 1 };
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

// ---- texts

enum { WORDS = 12, GUESSES = 2 };

struct table {
    float p[WORDS][WORDS], q[WORDS][WORDS]; // the rows after each token
};

enum flaw { EXACT, LENIENT, RESAMPLES_P, LIKES_CHOSEN, CHOSEN_EXACT };

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
        double p = sum(t->p[i], WORDS), q = sum(t->q[i], WORDS);
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
                               .p_sum = sum(t->p[w->before], WORDS),
                               .token = token,
                               .before = w->before,
                               .end = 0,
                               .index = index,
                               .bonus = index == GUESSES,
                               .u = uniform(&w->seed) };
    if (index < GUESSES && !chosen) {
        seen.q = t->q[w->before];
        seen.q_sum = sum(seen.q, WORDS);
    }
    if (index < GUESSES && chosen) {
        seen.chosen = chosen;
        seen.n_chosen = 1;
    }
    w->last = evidence_add(&w->e, &seen, w->last);
    w->before = token;
}

// One guess drawn or chosen, and judged; the token that comes of it. *stood: it was the guess.
static int32_t judge(struct writer *w, int32_t *chosen, int *stood)
{
    const float *p = w->table->p[w->before], *q = w->table->q[w->before];
    double left[WORDS];
    int certain = w->flaw >= LIKES_CHOSEN;
    int32_t guess = *chosen = certain ? best_of(q, WORDS) : pick_row(q, &w->seed);
    double chance = (double)p[guess] / (certain ? 1 : (double)q[guess]);
    chance *= w->flaw == LENIENT || w->flaw == LIKES_CHOSEN ? 1.25 : 1;
    *stood = uniform(&w->seed) < chance;
    if (*stood)
        return guess;
    for (int v = 0; v < WORDS; v++) {
        left[v] = certain ? (v == guess ? 0 : (double)p[v]) : fmax(0, (double)p[v] - (double)q[v]);
        if (w->flaw == RESAMPLES_P)
            left[v] = (double)p[v];
    }
    return pick(left, &w->seed);
}

static void write_text(struct writer *w, int tokens)
{
    for (int n = 0; n < tokens;) {
        int stood = 1, index = 0;
        for (; index < GUESSES && stood; index++, n++) {
            int32_t chosen, token = judge(w, &chosen, &stood);
            write_token(w, token, index, w->flaw >= LIKES_CHOSEN ? &chosen : NULL);
        }
        if (stood) {
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
        w.flaw = run % 3 == 2 ? CHOSEN_EXACT : EXACT;
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
    for (int flaw = EXACT; flaw <= CHOSEN_EXACT; flaw++) {
        struct table t;
        uint64_t seed = 9;
        draw_table(&t, &seed);
        struct writer w = { .table = &t, .flaw = (enum flaw)flaw, .seed = 10, .last = evidence_start };
        write_text(&w, 20000);
        struct exact_test by = { 0 };
        double log10_p = least_holm(&w.e, &by), log10_e = evidence_log_e(&w.e) / log(10);
        print_message("%s: p = 10^%.1f by %s %s %s, e = 10^%.1f\n", says[flaw], log10_p, by.kind ? by.kind : "-",
                      by.of ? by.of : "", by.part ? by.part : "", log10_e);
        if (flaw == EXACT || flaw == CHOSEN_EXACT)
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

// ---- tails

// mpmath 1.4.1, 40 digits: log10(gammainc(mpf(k)/2, mpf(x)/2, inf, regularized=True)), log10(erfc(mpf(z)/sqrt(2))),
// log10(2*sum((-1)**(i-1)*exp(-2*i*i*mpf(x)**2) for i in range(1, 200))), findroot of erfc(z/sqrt(2))/2 = tail.
static void tails_are_those_of_mpmath(void **state)
{
    (void)state;
    static const double chi[][3] = {
        { 0.5, 1, -0.31921127782572033 },     { 3.841458820694124, 1, -1.3010299956639807 },
        { 25, 1, -6.2416156767266733 },       { 1000, 1, -218.74573410420501 },
        { 10, 31, -5.4673091958312467e-5 },   { 31, 31, -0.33141608064726554 },
        { 100, 31, -8.460375700158585 },      { 2000, 31, -402.31298053267925 },
        { 63, 63, -0.32211724534541401 },     { 49, 49, -0.32502107799401561 },
        { 900, 999, -0.0049700864356121907 }, { 1300, 999, -9.4687488283764335 },
    };
    static const double normal[][2] = {
        { 0.1, -0.036049661062642284 }, { 1, -0.4985155458279893 },  { 1.959963984540054, -1.301029995663981 },
        { 6, -8.704834331812723 },      { 40, -349.13597646368186 }, { 200, -8688.2887388558992 },
    };
    static const double limit[][2] = {
        { 0.3, -4.041476973910279e-6 },  { 0.5, -0.015947635235754491 }, { 0.9, -0.40590513955521088 },
        { 0.99, -0.55148870938894474 },  { 1, -0.56863676394767902 },    { 1.2, -0.94981493997523828 },
        { 1.6276, -1.9999332396050027 }, { 3, -7.5162706785945517 },     { 20, -347.13455552693748 },
    };
    static const double quantile[][2] = {
        { 0.5, 0 },
        { 0.3, 0.52440051270804078 },
        { 0.001, 3.0902323061678135 },
        { 5e-7, 4.8916384756985904 },
        { 0.7, -0.52440051270804078 },
        { 1e-100, 21.273453560965324 },
    };
    for (size_t i = 0; i < sizeof(chi) / sizeof(chi[0]); i++)
        near(tail_chi_square(chi[i][0], chi[i][1]), chi[i][2], 1e-11 * fmax(1, -chi[i][2]));
    for (size_t i = 0; i < sizeof(normal) / sizeof(normal[0]); i++)
        near(tail_normal(-normal[i][0]), normal[i][1], 1e-11 * fmax(1, -normal[i][1]));
    for (size_t i = 0; i < sizeof(limit) / sizeof(limit[0]); i++)
        near(tail_kolmogorov(limit[i][0] / 1e10, 1e20), limit[i][1], 1e-9 * fmax(1, -limit[i][1]));
    for (size_t i = 0; i < sizeof(quantile) / sizeof(quantile[0]); i++)
        near(quantile_normal(quantile[i][0]), quantile[i][1], 1e-10);
    near(tail_chi_square(0, 3), 0, 0);
    near(tail_kolmogorov(0, 3), 0, 0);
    assert_true(tail_normal(INFINITY) == -INFINITY);
}

// scipy 1.17.1: log10(kstwo.sf(d, n)), exact.
static void kolmogorovs_tail_holds_for_finite_samples(void **state)
{
    (void)state;
    static const double exact[][3] = { { 10, 0.379473, -1.076721 },   { 100, 0.100000, -0.597407 },
                                       { 100, 0.160000, -1.977015 },  { 1000, 0.041110, -1.179034 },
                                       { 1000, 0.079057, -5.156938 }, { 20000, 0.019021, -5.990110 } };
    for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++) {
        double p = tail_kolmogorov(exact[i][1], exact[i][0]);
        near(p, exact[i][2], .01);
        assert_true(p > exact[i][2] || exact[i][2] > -1);
    }
}

static void holm_asks_less_of_each_after_the_first(void **state)
{
    (void)state;
    const double p[] = { -1, -3, NAN, -INFINITY, -2.5, 0 };
    double adjusted[6];
    holm(adjusted, p, 6);
    assert_true(adjusted[3] == -INFINITY && isnan(adjusted[2]));
    near(adjusted[1], -3 + log10(4), 1e-15);
    near(adjusted[4], -2.5 + log10(3), 1e-15);
    near(adjusted[0], -1 + log10(2), 1e-15);
    near(adjusted[5], 0, 0);
    const double equal[] = { -1, -1 };
    holm(adjusted, equal, 2);
    near(adjusted[0], -1 + log10(2), 1e-15);
    near(adjusted[1], adjusted[0], 0); // never below that of a smaller one
}

// ---- sample sizes

static void sample_sizes_are_those_of_the_plan(void **state)
{
    (void)state;
    const struct power plan = { 1e-6, .999, 1 }, mean = { 1e-6, .5, 1 };
    near(power_tokens(POWER_SCORE, .01, plan), 159e3, 1e3);
    near(power_tokens(POWER_KS, .01, plan), 180e3, 1e3);
    near(power_tokens(POWER_SCORE, .001, plan), 159e5, 1e5);
    // The matched bet of 150 would take 94,100 in the mean; lambda = .03 is not quite .04, which takes 1 / (1 - 1/4^2).
    near(power_tokens(POWER_E, .01, mean), 94100 * 16 / 15., 1500);
    assert_true(power_tokens(POWER_E, .01, plan) > power_tokens(POWER_E, .01, mean));
    assert_true(power_tokens(POWER_E, .001, plan) == INFINITY); // stakes of .01 and more are too high for so little
    assert_true(power_tokens(POWER_SCORE, 0, plan) == INFINITY);
    const struct power shared = { 1e-6, .999, 4000 };
    near(power_tokens(POWER_SCORE, .01, shared) / power_tokens(POWER_SCORE, .01, plan), 1.39, .01);
    near(power_tokens(POWER_KS, .01, shared) / power_tokens(POWER_KS, .01, plan), 1.35, .01);
    near(power_tokens(POWER_E, .01, shared) / power_tokens(POWER_E, .01, plan), 1, 0);
}

static void what_is_visible_takes_just_the_tokens_there_are(void **state)
{
    (void)state;
    const struct power w = { 1e-6, .999, 50 };
    for (int test = 0; test < POWER_TESTS; test++)
        for (double tokens = 1e3; tokens < 1e8; tokens *= 10) {
            double d = power_visible((enum power_test)test, tokens, w);
            near(power_tokens((enum power_test)test, d, w) / tokens, 1, 1e-6);
        }
    assert_true(power_visible(POWER_SCORE, 5, w) == INFINITY);
}

// 100 texts that are as biased and as long as the formula says, of two tokens, are found out with the power it says.
static void a_bias_of_the_planned_size_is_seen(void **state)
{
    (void)state;
    const struct power w = { 1e-3, .9, 1 };
    const float half[] = { .5f, .5f };
    const double d = .1;
    const double tokens[] = { power_tokens(POWER_SCORE, d, w), power_tokens(POWER_KS, d, w),
                              power_tokens(POWER_E, d, w) };
    uint64_t seed = 12;
    int found[POWER_TESTS] = { 0 };
    for (int run = 0; run < 100; run++)
        for (int test = 0; test < POWER_TESTS; test++) {
            struct evidence e = { 0 };
            struct uniforms last = evidence_start;
            for (int i = 0; i < tokens[test]; i++) {
                struct token_seen t = { .vocab = 2, .p = half, .p_sum = 1, .before = -1, .end = 1, .index = 1 };
                t.token = uniform(&seed) < .5 + d;
                t.u = uniform(&seed);
                last = evidence_add(&e, &t, last);
            }
            struct exact_test list[EVIDENCE_TESTS];
            int n = evidence_tests(&e, list, EVIDENCE_TESTS);
            for (int i = 0; i < n; i++)
                if (!strcmp(list[i].part, "all") && !strcmp(list[i].of, test == POWER_KS ? "id" : "end") &&
                    !strcmp(list[i].kind, test == POWER_KS ? "KS" : "score") && test != POWER_E)
                    found[test] += list[i].p < w.alpha;
            found[test] += test == POWER_E && evidence_log_e(&e) > -log(w.alpha);
        }
    print_message("of 100: score %d, KS %d, e %d\n", found[0], found[1], found[2]);
    assert_in_range(found[POWER_SCORE], 75, 99);
    assert_in_range(found[POWER_KS], 80, 100);
    assert_in_range(found[POWER_E], 80, 100);
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
        cmocka_unit_test(sequences_add_up),
        cmocka_unit_test(an_exact_text_raises_no_alarm),
        cmocka_unit_test(a_wrong_text_is_found_out),
        cmocka_unit_test(numbers_that_depend_on_the_one_before_are_found_out),
        cmocka_unit_test(tails_are_those_of_mpmath),
        cmocka_unit_test(kolmogorovs_tail_holds_for_finite_samples),
        cmocka_unit_test(holm_asks_less_of_each_after_the_first),
        cmocka_unit_test(sample_sizes_are_those_of_the_plan),
        cmocka_unit_test(what_is_visible_takes_just_the_tokens_there_are),
        cmocka_unit_test(a_bias_of_the_planned_size_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
