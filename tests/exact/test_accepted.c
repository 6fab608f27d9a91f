// test_accepted.c - how much rules accept: beside closed forms, beside one another, and beside what no rule can surpass.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "exact/law.h"
#include "exact/transport.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/numbers.h"

#define ROUNDING 1e-12

static const int chain[] = { 1, 1, 1, 1 };

// ---- closed forms on chains, written down from the tables alone

struct
    place { // along a chain of drawn tokens: of row i the target's and the drafter's, normalised, and the token drawn
    double p[LAW_VOCAB], q[LAW_VOCAB];
    int x;
};

static void take(double *to, const float *row, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += row[i];
    for (int i = 0; i < n; i++)
        to[i] = row[i] / sum;
}

static int places(const struct instance *in, const struct draft_batch *g, struct place *to)
{
    for (int i = 0; i + 1 < g->draft.n; i++) {
        take(to[i].p, in->p + g->prefix[i] * in->vocab, in->vocab);
        take(to[i].q, in->q + g->prefix[i] * in->vocab, in->vocab);
        to[i].x = g->token[i + 1];
        if (g->proposal[i + 1] == DETERMINISTIC)
            for (int v = 0; v < in->vocab; v++)
                to[i].q[v] = v == to[i].x;
    }
    return g->draft.n - 1;
}

// Rejection: sum over i of the product of the first i min(1, p / q).
static double by_rejection(const struct place *c, int n)
{
    double stands = 1, sum = 0;
    for (int i = 0; i < n; i++) {
        stands *= fmin(1, c[i].p[c[i].x] / c[i].q[c[i].x]);
        sum += stands;
    }
    return sum;
}

// Block (Sun et al. 2024): b carried along the chain, h_i from the rows behind x_i, the last i whose coin comes up.
static double by_block(const struct place *c, int n, int vocab)
{
    double b[LAW_DEPTH + 1] = { 1 }, h[LAW_DEPTH + 1] = { 0 }, sum = 0;
    for (int i = 1; i <= n; i++)
        b[i] = fmin(1, b[i - 1] * c[i - 1].p[c[i - 1].x] / c[i - 1].q[c[i - 1].x]);
    for (int i = 1; i < n; i++) {
        double left = 0;
        for (int v = 0; v < vocab; v++)
            left += fmax(b[i] * c[i].p[v] - c[i].q[v], 0);
        h[i] = left > 0 ? left / (left + 1 - b[i]) : 0;
    }
    h[n] = b[n];
    for (int i = 1; i <= n; i++) {
        double ends = h[i];
        for (int k = i + 1; k <= n; k++)
            ends *= 1 - h[k];
        sum += i * ends;
    }
    return sum;
}

static double by_law(const struct rule *r, struct draft_batch *g)
{
    double end[LAW_NODES], sum = 0;
    r->law(&g->draft, &g->p.rows, NULL, end);
    for (int v = 0; v < g->draft.n; v++)
        sum += end[v] * draft_depth(&g->draft, v);
    return sum;
}

static void laws_on_chains_are_the_closed_forms(void **state)
{
    (void)state;
    double worst = 0;
    for (int seed = 0; seed < 20000; seed++) {
        const enum way way = seed % 3 == 0 ? ALL_DETERMINISTIC : ALL_SAMPLED;
        struct instance in = instance_create(chain, 1 + seed % LAW_DEPTH, 2 + seed / 4 % 4, way,
                                             (enum family)(seed % (FAMILIES + 1)), (uint64_t)seed);
        struct philox source = philox_source((uint64_t)seed, 0);
        struct place c[LAW_NODES];
        struct draft_batch g;
        instance_draft(&in, &source.rng, 0, &g);
        int n = places(&in, &g, c);
        worst = worse(worst, fabs(by_law(rule_named("rejection"), &g) - by_rejection(c, n)));
        if (n > 0)
            worst = worse(worst, fabs(by_law(rule_named("block"), &g) - by_block(c, n, in.vocab)));
        instance_free(&in);
    }
    print_message("20000 chains: rejection's and block's E[accepted | draft] off their closed forms by %.1e\n", worst);
    assert_true(worst <= ROUNDING);
}

// ---- a rule of which the shape says all

static const int forked[] = { 2, 2 };

// Of the i-th sibling, from 0: rate (1 - rate)^i of the chance that its parent is reached.
static double by_replay(const struct draft *d, double rate)
{
    double reached[LAW_NODES] = { 1 }, sum = 0;
    for (int v = 1; v < d->n; v++) {
        reached[v] = reached[d->parent[v]] * rate;
        for (int s = draft_next_child(d, d->parent[v], d->parent[v]); s < v; s = draft_next_child(d, d->parent[v], s))
            reached[v] *= 1 - rate;
        sum += reached[v];
    }
    return sum;
}

static void replayed_accepts_what_the_shape_says(void **state)
{
    (void)state;
    const struct rule *r = rule_named("synthetic");
    double worst = 0;
    for (int seed = 0; seed < 2000; seed++) {
        const double rate = seed % 11 / 10.0;
        struct instance in = instance_create(forked, seed % 3, 2 + seed / 3 % 4, (enum way)(seed % WAYS),
                                             (enum family)(seed % (FAMILIES + 1)), (uint64_t)seed);
        struct philox source = philox_source((uint64_t)seed, 0);
        struct draft_batch g;
        double end[LAW_NODES], sum = 0;
        instance_draft(&in, &source.rng, 0, &g);
        r->law(&g.draft, &g.p.rows, &rate, end);
        for (int v = 0; v < g.draft.n; v++)
            sum += end[v] * draft_depth(&g.draft, v);
        worst = worse(worst, fabs(sum - by_replay(&g.draft, rate)));
        instance_free(&in);
    }
    assert_true(worst <= ROUNDING);
}

// Its coins fall as its law says, and what it names of each trial multiplies to that.
static void replayed_ends_where_its_law_says(void **state)
{
    (void)state;
    const double rate = 0.3;
    for (int seed = 0; seed < 60; seed++) {
        struct instance in =
            instance_create(forked, 1 + seed % 2, 2 + seed % 2, (enum way)(seed % WAYS), ANY_ROWS, (uint64_t)seed);
        const struct finding f = law_examine(&in, rule_named("synthetic"), &rate);
        assert_true(f.sound && f.repeated == 0 && f.lost <= ROUNDING);
        assert_true(f.law_error <= ROUNDING && f.accepted_error <= ROUNDING && f.trial_error <= ROUNDING);
        instance_free(&in);
    }
}

// ---- one rule beside another

static void block_accepts_no_less_than_rejection(void **state)
{
    (void)state;
    double least = INFINITY, gained = 0, of = 0;
    for (int seed = 0; seed < 1500; seed++) {
        struct instance in = instance_create(chain, 1 + seed % LAW_DEPTH, 2 + seed / 4 % 3, ALL_SAMPLED,
                                             (enum family)(seed / 12 % (FAMILIES + 1)), (uint64_t)seed);
        double a = law_examine(&in, rule_named("rejection"), NULL).accepted,
               b = law_examine(&in, rule_named("block"), NULL).accepted;
        least = fmin(least, b - a);
        gained += b - a;
        of += a;
        instance_free(&in);
    }
    print_message("1500 chains: block over rejection %.2f %% more, never less than %.1e\n", 100 * gained / of, least);
    assert_true(least >= -ROUNDING);
    assert_true(gained > 0.01 * of);
}

// What is known of trees is what was seen: traversal is below rejection nowhere.
static void traversal_accepts_no_less_than_rejection(void **state)
{
    (void)state;
    static const int two_two[] = { 2, 2 }, two_one[] = { 2, 1 };
    double least = INFINITY, gained = 0;
    for (int seed = 0; seed < 300; seed++) {
        struct instance in = instance_create(seed % 2 ? two_two : two_one, 2, 2 + seed / 2 % 2,
                                             seed % 3 == 0 ? ALL_DISTINCT : ALL_SAMPLED, ANY_ROWS, (uint64_t)seed);
        double gain = law_examine(&in, rule_named("traversal"), NULL).accepted -
                      law_examine(&in, rule_named("rejection"), NULL).accepted;
        least = fmin(least, gain);
        gained += gain;
        instance_free(&in);
    }
    assert_true(least >= -ROUNDING);
    assert_true(gained > 0.1);
}

// ---- what no rule can surpass

static double transport_by_all_sets(const double *p, const double *q, int vocab, int k)
{
    double least = 1;
    for (int set = 0; set < 1 << vocab; set++) {
        double of_p = 0, of_q = 0;
        for (int v = 0; v < vocab; v++)
            if (set >> v & 1) {
                of_p += p[v];
                of_q += q[v];
            }
        least = fmin(least, of_p + 1 - pow(fmin(of_q, 1), k));
    }
    return least;
}

static void no_rule_accepts_more_than_transport_allows(void **state)
{
    (void)state;
    double share[8] = { 0 }, bound = 0;
    for (int seed = 0; seed < 600; seed++) {
        const int k = 1 + seed % 3, vocab = 2 + seed / 3 % 4;
        struct instance in =
            instance_create(&k, 1, vocab, ALL_SAMPLED, (enum family)(seed / 12 % (FAMILIES + 1)), (uint64_t)seed);
        double p[LAW_VOCAB], q[LAW_VOCAB];
        int order[LAW_VOCAB];
        take(p, in.p, vocab);
        take(q, in.q, vocab);
        double most = transport_sampled(p, q, vocab, k, order);
        assert_true(fabs(most - transport_by_all_sets(p, q, vocab, k)) <= ROUNDING);
        for (int r = 0; rules[r] != NULL; r++) {
            if (!rules[r]->exact || !(rules[r]->takes & TAKES_SAMPLED) || (k > 1 && !(rules[r]->takes & ~7u)))
                continue;
            double accepted = law_examine(&in, rules[r], NULL).accepted;
            assert_true(accepted <= most + ROUNDING);
            if (k == 1 && rules[r] != rule_named("match"))
                assert_true(fabs(accepted - most) <= ROUNDING); // every rule is optimal for a single token
            if (k > 1 && r < 8)
                share[r] += accepted;
        }
        bound += k > 1 ? most : 0;
        instance_free(&in);
    }
    for (int r = 0; rules[r] != NULL && r < 8; r++)
        if (share[r] > 0)
            print_message("two or three draws: %s accepts %.3f of what could be\n", rules[r]->name, share[r] / bound);
    const double p[] = { 0.1, 0.2, 0.7 };
    assert_true(fabs(transport_deterministic(p, (const int[]){ 2, 0, 2 }, 3) - 0.8) <= ROUNDING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws_on_chains_are_the_closed_forms),
        cmocka_unit_test(replayed_accepts_what_the_shape_says),
        cmocka_unit_test(replayed_ends_where_its_law_says),
        cmocka_unit_test(block_accepts_no_less_than_rejection),
        cmocka_unit_test(traversal_accepts_no_less_than_rejection),
        cmocka_unit_test(no_rule_accepts_more_than_transport_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
