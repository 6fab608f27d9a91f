// test_accepted.c - E[accepted] of rules against each other and against the transport bound. Its values are those of a twin (test_rule_twin.c).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "verifier/exact/law.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/rule_defaults.h"
#include "tests/support/numbers.h"
#include "verifier/rules/rejection.h"

#define ROUNDING 1e-12

static const int chain[] = { 1, 1, 1, 1 };

// ---- one rule against another

TEST(block_accepts_no_less_than_rejection)
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
TEST(traversal_accepts_no_less_than_rejection)
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

static void take(double *to, const float *row, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += row[i];
    for (int i = 0; i < n; i++)
        to[i] = row[i] / sum;
}

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

TEST(no_rule_exceeds_the_transport_bound)
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

RUN_TESTS(NULL, NULL)
