// test_empty_residual.c - rules where a residual has no mass after a rejection. Only rounding can cause that, so a
// random source here rejects tokens that are accepted with certainty.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/rule_defaults.h"
#include "verifier/rules/rule.h"

enum { VOCAB = 3, TWO = 2 };

static bool reject_all(struct rng *self, double num, double den, struct address at)
{
    return at.node == 0 && num > 0; // accepts at the root only
}

static struct address sampled_at;
static double sampled_from[VOCAB];

// Picks the first of the largest and records the weights.
static int pick_largest(struct rng *self, const double *weight, int n, struct address at)
{
    int best = 0;
    assert_int_equal(n, VOCAB);
    memcpy(sampled_from, weight, sizeof(sampled_from));
    for (int i = 1; i < n; i++)
        best = weight[i] > weight[best] ? i : best;
    sampled_at = at;
    return best;
}

struct same_row {
    struct rows rows;
    const float *row;
};

static const float *the_row(struct rows *self, int node)
{
    return ((struct same_row *)self)->row;
}

// Verifies two draft tokens, a chain or siblings, that the target accepts with certainty: deterministic token 1 where p
// is 1, or sampled from a q that equals p.
static void verify(const struct rule *rule, enum proposal how, bool chain, const float *p, struct verification *out)
{
    struct same_row rows = { { VOCAB, the_row }, p };
    struct own_draft own;
    struct draft *d = own_draft_begin(&own, 0, TWO + 1);
    d->q = how == DETERMINISTIC ? NULL : &rows.rows;
    draft_add(d, 0, 1, how);
    draft_add(d, chain ? 1 : 0, chain ? 2 : 1, how);
    struct rng rng = { .accept = reject_all, .pick = pick_largest, .root = 11 };
    void *options = rule_defaults(rule);
    rule->verify(rule, d, &rows.rows, options, &rng, out);
    rule_defaults_free(rule, options);
}

// Empty residuals of one step: on a chain, where some rules try the first token only and those that start at its end find one twice,
// unless the end is deterministic and has p = 0; and of siblings, where each rejected one leaves one. 0: not one for each, as the rule
// forms the residual of siblings once.
static const struct empty_residuals {
    const char *rule;
    int chain[2], siblings[2]; // by proposal
} empty_residuals[] = {
    { "rejection", { 1, 1 }, { 2, 2 } }, { "synthetic", { 1, 1 }, { 2, 2 } }, { "block", { 1, 2 }, { 0 } },
    { "traversal", { 1, 2 }, { 2, 2 } }, { "spectr", { 1, 1 }, { 0 } },       { "multipath", { 1, 2 }, { 0 } },
};

static const struct empty_residuals *residuals_of(const struct rule *rule)
{
    for (size_t i = 0; i < sizeof(empty_residuals) / sizeof(*empty_residuals); i++)
        if (strcmp(empty_residuals[i].rule, rule->name) == 0)
            return &empty_residuals[i];
    return NULL;
}

// Other exact rules leave at least one, and sample from a distribution.
TEST(an_empty_residual_keeps_p_and_is_counted)
{
    static const float sure[VOCAB] = { 0, 1, 0 }, mixed[VOCAB] = { 0.25f, 0.5f, 0.25f };
    for (int i = 0; rules[i] != NULL; i++)
        for (int k = 0; k < 4; k++) {
            const enum proposal how = k % 2 == 0 ? DETERMINISTIC : SAMPLED;
            const bool chain = k < 2;
            const float *p = how == DETERMINISTIC ? sure : mixed;
            const struct empty_residuals *known = residuals_of(rules[i]);
            if (!(rules[i]->takes & (how == DETERMINISTIC ? TAKES_DETERMINISTIC : TAKES_SAMPLED)) ||
                (!chain && !(rules[i]->takes & (TAKES_TREES | TAKES_CHAINS))) ||
                (known == NULL && (!rules[i]->exact || rules[i]->drafter_invariant)))
                continue;
            const int expected = known == NULL ? 0 : chain ? known->chain[how] : known->siblings[how];
            struct verification out = verification_create(TWO + 1, VOCAB);
            verify(rules[i], how, chain, p, &out);
            assert_int_equal(out.n, 1);
            assert_int_equal(out.node[0], 0);
            assert_int_equal(sampled_at.purpose, FOR_RESIDUAL);
            assert_int_equal(sampled_at.position, 11);
            assert_int_equal(sampled_at.node, 0);
            double sum = 0;
            for (int x = 0; x < VOCAB; x++)
                sum += sampled_from[x];
            assert_true(sum == 1);
            if (expected > 0) {
                assert_int_equal(out.token[0], 1);
                for (int x = 0; x < VOCAB; x++)
                    assert_true(sampled_from[x] == (double)p[x]);
            }
            if (expected > 0 ? out.empty != expected : known == NULL && out.empty < 1)
                fail_msg("%s, %s %s: %d empty residuals", rules[i]->name,
                         how == DETERMINISTIC ? "deterministic" : "sampled", chain ? "chain" : "siblings", out.empty);
            verification_destroy(&out);
        }
}

// Every entry is written, whatever the array held before.
TEST(end_probabilities_cover_every_node)
{
    static const float mixed[VOCAB] = { 0.25f, 0.5f, 0.25f };
    struct same_row rows = { { VOCAB, the_row }, mixed };
    for (int i = 0; rules[i] != NULL; i++)
        for (int n = 1; n <= TWO + 1; n++)
            for (int how = DETERMINISTIC; how <= SAMPLED; how++) {
                struct own_draft own;
                struct draft *d = own_draft_begin(&own, 0, TWO + 1);
                d->q = how == SAMPLED ? &rows.rows : NULL;
                for (int node = 1; node < n; node++)
                    draft_add(d, node - 1, node, (enum proposal)how);
                double end[TWO + 2] = { NAN, NAN, NAN, 7 }, sum = 0;
                if (!(rules[i]->takes & (how == DETERMINISTIC ? TAKES_DETERMINISTIC : TAKES_SAMPLED)))
                    continue;
                void *options = rule_defaults(rules[i]);
                assert_non_null(rules[i]->end_probabilities);
                rules[i]->end_probabilities(rules[i], d, &rows.rows, options, end);
                for (int node = 0; node < n; node++)
                    sum += end[node];
                if (!(fabs(sum - 1) <= 1e-12))
                    fail_msg("%s, %d nodes: the probabilities sum to %g", rules[i]->name, n, sum);
                assert_true(n == TWO + 1 ? end[n] == 7 : isnan(end[n]));
                rule_defaults_free(rules[i], options);
            }
}

TEST(rule_options_accept_exactly_their_range)
{
    static const struct {
        const char *rule, *values[4]; // the ends of the range, and numbers outside of it
    } cases[] = { { "typical", { "epsilon=0", "epsilon=1", "epsilon=-0.01", "epsilon=1.01" } },
                  { "typical", { "delta=0", "delta=1", "delta=-0.01", "delta=1.01" } },
                  { "lenient", { "lenience=1", "lenience=1000", "lenience=0.99", "lenience=1001" } },
                  { "synthetic", { "rate=0", "rate=1", "rate=-0.01", "rate=1.01" } } };
    for (size_t i = 0; i < 4 * sizeof(cases) / sizeof(cases[0]); i++) {
        const struct rule *rule = rule_named(cases[i / 4].rule);
        struct error err = { "" };
        struct settings *m = settings_pairs(cases[i / 4].values[i % 4], "rule", &err);
        void *options = xcalloc(1, rule->options_size);
        assert_int_equal(options_read(m, rule->name, rule->options, options, &err), i % 4 < 2);
        free(options); // numbers, which own nothing
        settings_free(m);
    }
}

RUN_TESTS(NULL, NULL)
