// test_accepted.c - E[accepted] of rules against closed forms, against each other, and against the transport bound.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "verifier/exact/law.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "tests/support/rule_defaults.h"
#include "tests/support/numbers.h"
#include "verifier/rules/rejection.h"

#define ROUNDING 1e-12

static const int chain[] = { 1, 1, 1, 1 };

// ---- closed forms on chains, from the tables alone

struct
    place { // along a chain of sampled tokens: the target's and the drafter's normalised row i, and the sampled token
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

static int places(const struct instance *in, const struct table_draft *g, struct place *to)
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
    double accepted = 1, sum = 0;
    for (int i = 0; i < n; i++) {
        accepted *= fmin(1, c[i].p[c[i].x] / c[i].q[c[i].x]);
        sum += accepted;
    }
    return sum;
}

// Block (Sun et al. 2024): b along the chain, h_i from the rows after x_i, the last i whose acceptance test succeeds.
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

static double by_end_probabilities(const struct rule *r, struct table_draft *g)
{
    double end[LAW_NODES], sum = 0;
    r->end_probabilities(r, &g->draft, &g->p.rows, NULL, end);
    for (int v = 0; v < g->draft.n; v++)
        sum += end[v] * draft_depth(&g->draft, v);
    return sum;
}

static void end_probabilities_on_chains_match_closed_forms(void **state)
{
    double worst = 0;
    for (int seed = 0; seed < 20000; seed++) {
        const enum proposal_mix mix = seed % 3 == 0 ? ALL_DETERMINISTIC : ALL_SAMPLED;
        struct instance in = instance_create(chain, 1 + seed % LAW_DEPTH, 2 + seed / 4 % 4, mix,
                                             (enum family)(seed % (FAMILIES + 1)), (uint64_t)seed);
        struct philox source = philox_source((uint64_t)seed, 0);
        struct place c[LAW_NODES];
        struct table_draft g;
        instance_draft(&in, &source.rng, 0, &g);
        int n = places(&in, &g, c);
        worst = worse(worst, fabs(by_end_probabilities(rule_named("rejection"), &g) - by_rejection(c, n)));
        if (n > 0)
            worst = worse(worst, fabs(by_end_probabilities(rule_named("block"), &g) - by_block(c, n, in.vocab)));
        instance_free(&in);
    }
    print_message("20000 chains: rejection's and block's E[accepted | draft] off their closed forms by %.1e\n", worst);
    assert_true(worst <= ROUNDING);
}

// ---- a rule that depends on the shape only

static const int forked[] = { 2, 2 };

// The i-th sibling, from 0, is reached with rate (1 - rate)^i times the probability of its parent.
static double by_shape(const struct draft *d, double rate)
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

static void synthetic_acceptance_follows_from_the_tree_shape(void **state)
{
    const struct rule *r = rule_named("synthetic");
    double worst = 0;
    for (int seed = 0; seed < 2000; seed++) {
        const double rate = seed % 11 / 10.0;
        struct instance in =
            instance_create(forked, seed % 3, 2 + seed / 3 % 4, (enum proposal_mix)(seed % PROPOSAL_MIXES),
                            (enum family)(seed % (FAMILIES + 1)), (uint64_t)seed);
        struct philox source = philox_source((uint64_t)seed, 0);
        struct table_draft g;
        double end[LAW_NODES], sum = 0;
        instance_draft(&in, &source.rng, 0, &g);
        r->end_probabilities(r, &g.draft, &g.p.rows, &(struct acceptance_test){ 0, rate }, end);
        for (int v = 0; v < g.draft.n; v++)
            sum += end[v] * draft_depth(&g.draft, v);
        worst = worse(worst, fabs(sum - by_shape(&g.draft, rate)));
        instance_free(&in);
    }
    assert_true(worst <= ROUNDING);
}

// Its outcomes agree with its end_probabilities, and so does the product of its trials.
static void synthetic_ends_as_its_end_probabilities_predict(void **state)
{
    const struct acceptance_test options = { .rate = 0.3 };
    for (int seed = 0; seed < 60; seed++) {
        struct instance in = instance_create(forked, 1 + seed % 2, 2 + seed % 2,
                                             (enum proposal_mix)(seed % PROPOSAL_MIXES), ANY_ROWS, (uint64_t)seed);
        const struct law_result f = law_examine(&in, rule_named("synthetic"), &options);
        assert_true(f.sound && f.repeated == 0 && f.lost <= ROUNDING);
        assert_true(f.law_error <= ROUNDING && f.accepted_error <= ROUNDING && f.trial_error <= ROUNDING);
        instance_free(&in);
    }
}

// ---- one rule against another

static void block_accepts_no_less_than_rejection(void **state)
{
    double min = INFINITY, gained = 0, of = 0;
    for (int seed = 0; seed < 1500; seed++) {
        struct instance in = instance_create(chain, 1 + seed % LAW_DEPTH, 2 + seed / 4 % 3, ALL_SAMPLED,
                                             (enum family)(seed / 12 % (FAMILIES + 1)), (uint64_t)seed);
        double a = law_examine(&in, rule_named("rejection"), NULL).accepted,
               b = law_examine(&in, rule_named("block"), NULL).accepted;
        min = fmin(min, b - a);
        gained += b - a;
        of += a;
        instance_free(&in);
    }
    print_message("1500 chains: block accepts %.2f %% more than rejection, minimum %.1e\n", 100 * gained / of, min);
    assert_true(min >= -ROUNDING);
    assert_true(gained > 0.01 * of);
}

// On trees this is an observation, not a theorem.
static void traversal_accepts_no_less_than_rejection(void **state)
{
    static const int two_two[] = { 2, 2 }, two_one[] = { 2, 1 };
    double min = INFINITY, gained = 0;
    for (int seed = 0; seed < 300; seed++) {
        struct instance in = instance_create(seed % 2 ? two_two : two_one, 2, 2 + seed / 2 % 2,
                                             seed % 3 == 0 ? ALL_DISTINCT : ALL_SAMPLED, ANY_ROWS, (uint64_t)seed);
        double gain = law_examine(&in, rule_named("traversal"), NULL).accepted -
                      law_examine(&in, rule_named("rejection"), NULL).accepted;
        min = fmin(min, gain);
        gained += gain;
        instance_free(&in);
    }
    assert_true(min >= -ROUNDING);
    assert_true(gained > 0.1);
}

// ---- the transport bound

static double transport_by_all_sets(const double *p, const double *q, int vocab, int k)
{
    double min = 1;
    for (int set = 0; set < 1 << vocab; set++) {
        double of_p = 0, of_q = 0;
        for (int v = 0; v < vocab; v++)
            if (set >> v & 1) {
                of_p += p[v];
                of_q += q[v];
            }
        min = fmin(min, of_p + 1 - pow(fmin(of_q, 1), k));
    }
    return min;
}

static void no_rule_exceeds_the_transport_bound(void **state)
{
    double share[8] = { 0 }, bound = 0;
    for (int seed = 0; seed < 600; seed++) {
        const int k = 1 + seed % 3, vocab = 2 + seed / 3 % 4;
        struct instance in =
            instance_create(&k, 1, vocab, ALL_SAMPLED, (enum family)(seed / 12 % (FAMILIES + 1)), (uint64_t)seed);
        double p[LAW_VOCAB], q[LAW_VOCAB];
        int order[LAW_VOCAB];
        take(p, in.p, vocab);
        take(q, in.q, vocab);
        double max = transport_sampled(p, q, vocab, k, order);
        assert_true(fabs(max - transport_by_all_sets(p, q, vocab, k)) <= ROUNDING);
        for (int r = 0; rules[r] != NULL; r++) {
            if (!rules[r]->exact || !(rules[r]->takes & TAKES_SAMPLED) || (k > 1 && !(rules[r]->takes & ~7u)))
                continue;
            void *options = rule_defaults(rules[r]);
            double accepted = law_examine(&in, rules[r], options).accepted;
            rule_defaults_free(rules[r], options);
            assert_true(accepted <= max + ROUNDING);
            if (k == 1 && !rules[r]->drafter_invariant)
                assert_true(fabs(accepted - max) <= ROUNDING); // every rule is optimal for a single token
            if (k > 1 && r < 8)
                share[r] += accepted;
        }
        bound += k > 1 ? max : 0;
        instance_free(&in);
    }
    for (int r = 0; rules[r] != NULL && r < 8; r++)
        if (share[r] > 0)
            print_message("two or three samples: %s reaches %.3f of the bound\n", rules[r]->name, share[r] / bound);
    const double p[] = { 0.1, 0.2, 0.7 };
    assert_true(fabs(transport_deterministic(p, (const int[]){ 2, 0, 2 }, 3) - 0.8) <= ROUNDING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(end_probabilities_on_chains_match_closed_forms),
        cmocka_unit_test(synthetic_acceptance_follows_from_the_tree_shape),
        cmocka_unit_test(synthetic_ends_as_its_end_probabilities_predict),
        cmocka_unit_test(block_accepts_no_less_than_rejection),
        cmocka_unit_test(traversal_accepts_no_less_than_rejection),
        cmocka_unit_test(no_rule_exceeds_the_transport_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
