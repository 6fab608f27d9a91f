// evidence.c - the contribution of one token, and the tests of the sums.
#include "verifier/exact/evidence.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "verifier/exact/mass.h"
#include "results/statistics/distributions.h"
#include "results/statistics/statistics.h"

const double evidence_stakes[STAKES] = { -1, -.3, -.1, -.03, -.01, .01, .03, .1, .3, 1 };
const struct uniforms evidence_start = { { -1, -1, -1 } };

static const char *const order_names[ORDERS] = { "guided", "p", "id" };
static const char *const part_names[] = { "first", "later", "bonus", "all" };
static const char *const score_names[SCORES] = { "log q/p",   "q > p", "argmax q", "deterministic", "argmax p",
                                                 "surprisal", "tail",  "end",      "repeat" };

// The largest difference between two values of a function.
static const double score_width[SCORES] = { 6, 1, 1, 1, 1, 8, 1, 1, 1 };

// ---- one token

static bool has_guide(const struct observed_token *t)
{
    return t->q || t->n_deterministic > 0;
}

// Returns the first place of a token among the deterministic ones; n_deterministic: it is not among them.
static int place_of(const struct observed_token *t, int32_t token)
{
    int i = 0;
    while (i < t->n_deterministic && t->deterministic[i] != token)
        i++;
    return i;
}

static double key(const struct observed_token *t, int32_t token)
{
    return (double)(t->q ? mass_ratio(t->p[token], t->q[token]) : t->p[token]);
}

// Returns the mass before the token in the guided order. Deterministic tokens come at its end.
static double before_guided(const struct observed_token *t, const struct mass *m)
{
    int place = place_of(t, t->token);
    double own = key(t, t->token), before = place < t->n_deterministic ? m->all : t->q ? m->by_ratio : m->by_p;
    for (int i = 0; i < t->n_deterministic; i++) {
        int32_t c = t->deterministic[i];
        double k = key(t, c);
        bool leaves = place < t->n_deterministic ? i <= place : k < own || (k == own && c < t->token);
        if (leaves && place_of(t, c) == i)
            before -= (double)t->p[c];
    }
    return fmax(before, 0);
}

static struct uniforms uniforms_of(const struct observed_token *t, const struct mass *m)
{
    double before[ORDERS] = { before_guided(t, m), m->by_p, m->by_id }, own = t->u * (double)t->p[t->token];
    struct uniforms u;
    for (int i = 0; i < ORDERS; i++)
        u.order[i] = fmin((before[i] + own) / m->all, 0x1.fffffffffffffp-1); // a rounded sum may reach 1
    return u;
}

static int part_of(const struct observed_token *t)
{
    return t->bonus ? PART_BONUS : t->index > 0 ? PART_LATER : PART_FIRST;
}

static void add_uniforms(struct evidence *to, struct evidence_part *part, struct uniforms u, struct uniforms last)
{
    for (int i = 0; i < ORDERS; i++) {
        to->cells[i][(int)(u.order[i] * CELLS)]++;
        part->cells[i][(int)(u.order[i] * COARSE)]++;
        if (last.order[i] >= 0)
            to->squares[i][(int)(last.order[i] * SQUARE)][(int)(u.order[i] * SQUARE)]++;
    }
}

// A function without variance under p adds nothing. The rows show before the token is sampled that the variance is 0 up
// to rounding.
static void add_score(struct evidence_part *part, enum score s, double g, double mean, double square)
{
    double variance = square - mean * mean;
    if (variance <= 1e-12 * square)
        return;
    part->seen[s]++;
    part->score[s] += g - mean;
    part->variance[s] += variance;
}

static void add_bet(struct evidence_part *part, enum bet b, bool won, double probability)
{
    for (int i = 0; i < STAKES; i++) {
        double lambda = evidence_stakes[i];
        part->log_e[b][i] += (won ? lambda : 0) - log1p(probability * expm1(lambda));
    }
}

static void add_event(struct evidence_part *part, enum score s, bool happened, double probability)
{
    add_score(part, s, happened ? 1 : 0, probability, probability);
}

// Adds functions that compare the token with another one, if that is given.
static void add_same(struct evidence_part *part, enum score s, const struct observed_token *t, int32_t other,
                     double all)
{
    if (other >= 0 && other < t->vocab)
        add_event(part, s, t->token == other, (double)t->p[other] / all);
}

static void add_of_p(struct evidence_part *part, const struct observed_token *t, const struct mass *m,
                     struct mass_scale s, double by_p)
{
    double best = (double)t->p[m->p_argmax] / m->all, surprisal = (double)mass_surprisal(t->p[t->token], s);
    add_event(part, SCORE_P_ARGMAX, t->token == m->p_argmax, best);
    add_bet(part, BET_P_ARGMAX, t->token == m->p_argmax, best);
    add_score(part, SCORE_SURPRISAL, surprisal, m->surprisal / m->all, m->surprisal_square / m->all);
    add_event(part, SCORE_TAIL, by_p < .01, .01);
    add_bet(part, BET_TAIL, by_p < .01, .01);
    add_bet(part, BET_HALF, by_p < .5, .5);
    add_same(part, SCORE_END, t, t->end, m->all);
    add_same(part, SCORE_REPEAT, t, t->before, m->all);
}

static void add_of_q(struct evidence_part *part, const struct observed_token *t, const struct mass *m,
                     struct mass_scale s)
{
    float p = t->p[t->token], q = t->q[t->token];
    add_score(part, SCORE_LOG_RATIO, (double)mass_log_ratio(p, q, s), m->log_ratio / m->all,
              m->log_ratio_square / m->all);
    add_event(part, SCORE_ABOVE, mass_above(p, q, s), m->above / m->all);
    add_event(part, SCORE_Q_ARGMAX, t->token == m->q_argmax, (double)t->p[m->q_argmax] / m->all);
}

static void add_of_guide(struct evidence_part *part, const struct observed_token *t, const struct mass *m,
                         struct mass_scale s)
{
    double deterministic = 0, favoured = m->above;
    for (int i = 0; i < t->n_deterministic; i++) {
        int32_t c = t->deterministic[i];
        if (place_of(t, c) < i)
            continue;
        deterministic += (double)t->p[c];
        if (!(t->q && mass_above(t->p[c], t->q[c], s)))
            favoured += (double)t->p[c];
    }
    bool among = place_of(t, t->token) < t->n_deterministic;
    bool above = t->q && mass_above(t->p[t->token], t->q[t->token], s);
    int32_t draft_token = t->n_deterministic > 0 ? t->deterministic[0] : m->q_argmax;
    if (t->n_deterministic > 0)
        add_event(part, SCORE_DETERMINISTIC, among, fmin(deterministic / m->all, 1));
    add_bet(part, BET_FAVOURED, among || above, favoured / m->all);
    add_bet(part, BET_DRAFT_TOKEN, t->token == draft_token, (double)t->p[draft_token] / m->all);
}

static void check(const struct observed_token *t)
{
    assert(t->vocab > 0 && t->token >= 0 && t->token < t->vocab);
    assert(t->u >= 0 && t->u < 1 && t->p_sum > 0 && (!t->q || t->q_sum > 0));
    for (int i = 0; i < t->n_deterministic; i++)
        assert(t->deterministic[i] >= 0 && t->deterministic[i] < t->vocab);
}

struct uniforms evidence_add(struct evidence *to, const struct observed_token *t, struct uniforms last)
{
    check(t);
    if (!(t->p[t->token] > 0)) {
        to->impossible++;
        return evidence_start;
    }
    struct mass_scale scale = { (float)(1 / t->p_sum), t->q ? (float)(t->p_sum / t->q_sum) : 1 };
    struct mass m = mass_of(t->p, t->q, t->vocab, scale, t->token);
    assert(fabs(m.all - t->p_sum) <= 1e-5 * m.all);
    struct uniforms u = uniforms_of(t, &m);
    struct evidence_part *part = &to->part[part_of(t)];
    part->tokens++;
    add_uniforms(to, part, u, last);
    add_of_p(part, t, &m, scale, u.order[ORDER_P]);
    if (t->q)
        add_of_q(part, t, &m, scale);
    if (has_guide(t)) {
        part->guided++;
        add_of_guide(part, t, &m, scale);
    }
    return u;
}

// ---- sums

void evidence_sum(double *to, const double *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

static struct evidence_part whole(const struct evidence *e)
{
    struct evidence_part all = e->part[0];
    for (int i = 1; i < PARTS; i++)
        evidence_sum((double *)&all, (const double *)&e->part[i], sizeof(all) / sizeof(double));
    return all;
}

double evidence_tokens(const struct evidence *e)
{
    return e->impossible + whole(e).tokens;
}

double evidence_log_e(const struct evidence *e)
{
    if (e->impossible > 0)
        return INFINITY;
    const struct evidence_part all = whole(e), *on[] = { &all, &e->part[PART_FIRST], &e->part[PART_BONUS] };
    double max = -INFINITY, sum = 0;
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < BETS * STAKES; i++)
            max = fmax(max, on[f]->log_e[i / STAKES][i % STAKES]);
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < BETS * STAKES; i++)
            sum += exp(on[f]->log_e[i / STAKES][i % STAKES] - max);
    return max + log(sum / EVIDENCE_BETS);
}

// ---- tests

struct list {
    struct exact_test *to;
    int n, capacity;
};

static void list_add(struct list *l, struct exact_test t)
{
    if (l->n < l->capacity)
        l->to[l->n] = t;
    l->n++;
}

static double total(const double *count, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += count[i];
    return s;
}

static void test_impossible(struct list *l, const struct evidence *e)
{
    double tokens = evidence_tokens(e);
    if (tokens > 0)
        list_add(l, (struct exact_test){ "impossible", "p = 0", "all", e->impossible, e->impossible > 0 ? -INFINITY : 0,
                                         tokens });
}

static void test_ks(struct list *l, const double cells[CELLS], const char *of)
{
    double n = total(cells, CELLS), below = 0, max = 0;
    if (n == 0)
        return;
    for (int i = 0; i < CELLS; i++) {
        below += cells[i];
        max = fmax(max, fabs(below / n - (i + 1.0) / CELLS));
    }
    list_add(l, (struct exact_test){ "KS", of, "all", max, tail_kolmogorov(max, n), n });
}

static void test_cells(struct list *l, const double cells[COARSE], const char *of, const char *part)
{
    double n = total(cells, COARSE), chi;
    if (n < MIN_EXPECTED * COARSE)
        return;
    const double log10_p = tail_even(cells, COARSE, &chi);
    list_add(l, (struct exact_test){ "chi-square", of, part, chi, log10_p, n });
}

// Pairs overlap: each number is in two of them. The counts less the shares of their row and column are products of a
// function of one number and a function of the next, each of mean 0. Such products are uncorrelated from pair to pair,
// and there are (SQUARE - 1)^2 of them.
static void test_pairs(struct list *l, const double square[SQUARE][SQUARE], const char *of)
{
    double line[SQUARE] = { 0 }, column[SQUARE] = { 0 }, chi = 0;
    for (int i = 0; i < SQUARE; i++)
        for (int k = 0; k < SQUARE; k++) {
            line[i] += square[i][k];
            column[k] += square[i][k];
        }
    double n = total(line, SQUARE), expected = n / (SQUARE * SQUARE);
    if (expected < MIN_EXPECTED)
        return;
    for (int i = 0; i < SQUARE; i++)
        for (int k = 0; k < SQUARE; k++) {
            double d = square[i][k] - line[i] / SQUARE - column[k] / SQUARE + expected;
            chi += d * d / expected;
        }
    double log10_p = tail_chi_square(chi, (SQUARE - 1) * (SQUARE - 1));
    list_add(l, (struct exact_test){ "pairs", of, "all", chi, log10_p, n });
}

static void test_scores(struct list *l, const struct evidence_part *e, const char *part)
{
    for (int i = 0; i < SCORES; i++)
        if (e->variance[i] > 0)
            list_add(l, (struct exact_test){ "score", score_names[i], part, e->score[i] / sqrt(e->variance[i]),
                                             tail_sum(e->score[i], e->variance[i], score_width[i]), e->seen[i] });
}

static void test_part(struct list *l, const struct evidence_part *e, const char *part)
{
    for (int i = e->guided > 0 ? 0 : ORDER_P; i < ORDERS; i++)
        test_cells(l, e->cells[i], order_names[i], part);
    test_scores(l, e, part);
}

int evidence_tests(const struct evidence *e, struct exact_test *to, int capacity)
{
    struct list l = { to, 0, capacity };
    const struct evidence_part all = whole(e);
    test_impossible(&l, e);
    for (int i = all.guided > 0 ? 0 : ORDER_P; i < ORDERS; i++) {
        test_ks(&l, e->cells[i], order_names[i]);
        test_pairs(&l, e->squares[i], order_names[i]);
    }
    test_part(&l, &all, part_names[PARTS]);
    for (int i = 0; i < PARTS; i++)
        test_part(&l, &e->part[i], part_names[i]);
    return l.n;
}
