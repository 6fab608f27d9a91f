// test_evidence.c - the order of tokens against sorting, vector loops against plain ones, edges, and the size of a bias. Bets, scores and
// tests of sums are compared with a twin (test_evidence_twin.c), whole texts in test_observer.c.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verifier/exact/evidence.h"
#include "verifier/exact/mass.h"
#include "results/statistics/distributions.h"
#include "verifier/exact/verdict.h"
#include "results/statistics/statistics.h"
#include "tests/support/tests.h"
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

TEST(mass_before_a_token_matches_sorting)
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

// p * log p and the like are floats of every token; their sums are doubles.
TEST(vectorised_sums_match_plain_sums)
{
    enum { LONGEST = 5000 };
    static float p[LONGEST], q[LONGEST];
    uint64_t seed = 4;
    for (int run = 0; run <= SIZES; run++) {
        const int n = run < SIZES ? sizes[run] : LONGEST, x = n / 4;
        for (int i = 0; i < n; i++) {
            p[i] = (float)exp(-12 * uniform(&seed));
            q[i] = p[i] * (float)exp(3 * uniform(&seed) - 1.5);
        }
        double all = row_sum(p, n), by_ratio = 0, above = 0, surprisal[2] = { 0 }, log_ratio[2] = { 0 };
        struct mass_scale scale = { (float)(1 / all), (float)(all / row_sum(q, n)) };
        for (int i = 0; i < n; i++) {
            float a = mass_ratio(p[i], q[i]), b = mass_ratio(p[x], q[x]);
            by_ratio += a < b || (a == b && i < x) ? (double)p[i] : 0;
            above += mass_above(p[i], q[i], scale) ? (double)p[i] : 0;
            const double of_p = (double)p[i] * (double)scale.p,
                         ratio = (double)q[i] / (double)p[i] * (double)scale.ratio;
            near((double)mass_surprisal(p[i], scale), fmin(8, -log(of_p)), 2e-6); // the library's logarithm
            near((double)mass_log_ratio(p[i], q[i], scale), fmax(-3, fmin(3, log(ratio))), 2e-6);
            for (int power = 1; power <= 2; power++) {
                surprisal[power - 1] += (double)p[i] * pow((double)mass_surprisal(p[i], scale), power);
                log_ratio[power - 1] += (double)p[i] * pow((double)mass_log_ratio(p[i], q[i], scale), power);
            }
        }
        struct mass m = mass_of(p, q, n, scale, x);
        near(m.all, all, 1e-12 * all);
        near(m.by_ratio, by_ratio, 1e-12 * all);
        near(m.above, above, 1e-12 * all);
        near(m.surprisal, surprisal[0], 1e-12 * all);
        near(m.surprisal_square, surprisal[1], 1e-11 * all);
        near(m.log_ratio, log_ratio[0], 1e-12 * all);
        near(m.log_ratio_square, log_ratio[1], 1e-12 * all);
        near(m.p_argmax, row_argmax(p, n), 0);
        near(m.q_argmax, row_argmax(q, n), 0);
    }
}

// ---- edges

TEST(an_impossible_token_is_proof)
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

TEST(certain_tokens_add_no_evidence)
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

TEST(no_tokens_are_no_evidence)
{
    struct evidence e = { 0 };
    near(evidence_log_e(&e), 0, 1e-15);
    assert_int_equal(evidence_tests(&e, NULL, 0), 0);
}

// 1,000 tokens of which p expects one end. The two-sided p-value must not be below the binomial tail.
TEST(rare_events_get_no_normal_tail)
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
        struct exact_test list[EVIDENCE_TESTS];
        int found = 0;
        for (int i = 0, n = evidence_tests(&e, list, EVIDENCE_TESTS); i < n; i++)
            if (!strcmp(list[i].kind, "score") && !strcmp(list[i].of, "end") && !strcmp(list[i].part, "all")) {
                const double seen = pow(10, list[i].log10_p);
                assert_true(seen <= 12 * tail && (seen >= fmin(1, tail) * .9 || ends < 2));
                found++;
            }
        assert_int_equal(found, 1);
        tail -= probability;
        probability *= (1000. - ends) / (ends + 1) * .001 / .999;
    }
}

// ---- whole texts

// Pairs: a text whose uniform numbers are uniform one by one, but dependent.
TEST(serially_dependent_uniforms_are_detected)
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
TEST(the_size_of_a_bias_is_never_below_its_bound)
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
TEST(the_bound_reaches_the_size_of_a_bias)
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
TEST(impossible_tokens_count_in_the_size_of_a_bias)
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

RUN_TESTS(NULL, NULL)
