// test_empty_residual.c - what a rule does where nothing is left after a fall: rounding alone can bring that about, so here a source of
// chance lets fall what surely stands.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "verifier/rules/rule.h"

enum { VOCAB = 3, TWO = 2 };

static bool all_fall(struct rng *self, double num, double den, struct address at)
{
    (void)self, (void)den;
    return at.node == 0 && num > 0; // but the root
}

static struct address sampled_at;
static double sampled_from[VOCAB];

// The first of the largest, and a note of what it was picked from.
static int pick_largest(struct rng *self, const double *weight, int n, struct address at)
{
    (void)self;
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
    (void)node;
    return ((struct same_row *)self)->row;
}

// Two guesses, one behind the other or siblings, of which the target is sure: token 1 chosen where p is nothing else, or drawn
// from a q that is p.
static void verify(const struct rule *rule, enum proposal how, bool chain, const float *p, struct verification *j)
{
    int32_t token[TWO + 1] = { 0, 1, chain ? 2 : 1 }, parent[TWO + 1] = { -1, 0, chain ? 1 : 0 };
    uint8_t proposal[TWO + 1] = { DETERMINISTIC, (uint8_t)how, (uint8_t)how };
    struct same_row rows = { { VOCAB, the_row, NULL }, p };
    struct draft d = { TWO + 1, TWO + 1, token, parent, proposal, how == DETERMINISTIC ? NULL : &rows.rows, NULL };
    struct rng rng = { .accept = all_fall, .pick = pick_largest, .root = 11 };
    void *options = rule->options != NULL ? xcalloc(1, rule->options_size) : NULL;
    if (options != NULL)
        assert_true(options_read(NULL, rule->name, rule->options, options, NULL));
    rule->verify(&d, &rows.rows, options, &rng, j);
    if (options != NULL)
        options_free(rule->options, options);
    free(options);
}

static void what_is_left_of_nothing_is_p_and_is_counted(void **state)
{
    (void)state;
    static const float sure[VOCAB] = { 0, 1, 0 }, mixed[VOCAB] = { 0.25f, 0.5f, 0.25f };
    for (int i = 0; rules[i] != NULL; i++)
        for (int k = 0; k < 4; k++) {
            const enum proposal how = k % 2 == 0 ? DETERMINISTIC : SAMPLED;
            const bool chain = k < 2;
            const float *p = how == DETERMINISTIC ? sure : mixed;
            const bool siblings = (rules[i]->takes & (TAKES_TREES | TAKES_CHAINS)) != 0;
            const bool residual = strcmp(rules[i]->name, "match") != 0 && strcmp(rules[i]->name, "typical") != 0;
            if (!(rules[i]->takes & (how == DETERMINISTIC ? TAKES_DETERMINISTIC : TAKES_SAMPLED)) ||
                (!chain && !siblings) || !residual || strcmp(rules[i]->name, "lenient") == 0)
                continue;
            struct verification j = verification_create(TWO + 1, VOCAB);
            verify(rules[i], how, chain, p, &j);
            assert_int_equal(j.n, 1);
            assert_int_equal(j.node[0], 0);
            assert_int_equal(sampled_at.purpose, FOR_RESIDUAL);
            assert_int_equal(sampled_at.position, 11);
            assert_int_equal(sampled_at.node, 0);
            double sum = 0;
            for (int x = 0; x < VOCAB; x++)
                sum += sampled_from[x];
            assert_true(sum == 1);
            const bool independent = strcmp(rules[i]->name, "multipath") == 0 || strcmp(rules[i]->name, "spectr") == 0;
            if (chain || !independent) { // of siblings those two expect another fall
                assert_int_equal(j.token[0], 1);
                for (int x = 0; x < VOCAB; x++)
                    assert_true(sampled_from[x] == (double)p[x]);
                // Siblings fall one after the other, and each time nothing was left. Of a chain some rules look at the first guess
                // alone; those that go through it from its end find nothing twice, but for a chosen end that p has nothing for.
                const bool from_the_end = strcmp(rules[i]->name, "block") == 0 ||
                                          strcmp(rules[i]->name, "traversal") == 0 ||
                                          strcmp(rules[i]->name, "multipath") == 0;
                if (j.empty != (chain && (how == DETERMINISTIC || !from_the_end) ? 1 : 2))
                    fail_msg("%s, %s %s: nothing was left %d times", rules[i]->name,
                             how == DETERMINISTIC ? "chosen" : "drawn", chain ? "chain" : "siblings", j.empty);
            }
            verification_destroy(&j);
        }
}

// A law is written whole, whatever stood in the array.
static void a_law_leaves_no_node_out(void **state)
{
    (void)state;
    static const float mixed[VOCAB] = { 0.25f, 0.5f, 0.25f };
    int32_t token[TWO + 1] = { 0, 1, 2 }, parent[TWO + 1] = { -1, 0, 1 };
    uint8_t proposal[TWO + 1] = { DETERMINISTIC, SAMPLED, SAMPLED };
    struct same_row rows = { { VOCAB, the_row, NULL }, mixed };
    for (int i = 0; rules[i] != NULL; i++)
        for (int n = 1; n <= TWO + 1; n++)
            for (int how = DETERMINISTIC; how <= SAMPLED; how++) {
                proposal[1] = proposal[2] = (uint8_t)how;
                struct draft d = { n, TWO + 1, token, parent, proposal, how == SAMPLED ? &rows.rows : NULL, NULL };
                double end[TWO + 2] = { NAN, NAN, NAN, 7 }, sum = 0;
                if (!(rules[i]->takes & (how == DETERMINISTIC ? TAKES_DETERMINISTIC : TAKES_SAMPLED)))
                    continue;
                void *options = rules[i]->options != NULL ? xcalloc(1, rules[i]->options_size) : NULL;
                if (options != NULL)
                    assert_true(options_read(NULL, rules[i]->name, rules[i]->options, options, NULL));
                assert_non_null(rules[i]->law);
                rules[i]->law(&d, &rows.rows, options, end);
                for (int node = 0; node < n; node++)
                    sum += end[node];
                if (!(fabs(sum - 1) <= 1e-12))
                    fail_msg("%s, %d nodes: the law sums to %g", rules[i]->name, n, sum);
                assert_true(n == TWO + 1 ? end[n] == 7 : isnan(end[n]));
                if (options != NULL)
                    options_free(rules[i]->options, options);
                free(options);
            }
}

static void options_reach_as_far_as_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *rule, *option, *least, *most, *below, *above;
    } cases[] = { { "typical", "epsilon", "0", "1", "-0.01", "1.01" },
                  { "typical", "delta", "0", "1", "-0.01", "1.01" },
                  { "lenient", "lenience", "1", "1000", "0.99", "1001" },
                  { "synthetic", "rate", "0", "1", "-0.01", "1.01" } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct rule *rule = rule_named(cases[i].rule);
        const char *const values[] = { cases[i].least, cases[i].most, cases[i].below, cases[i].above };
        for (int k = 0; k < 4; k++) {
            struct error err = { "" };
            struct settings *m = settings_map();
            void *options = xcalloc(1, rule->options_size);
            settings_put(m, cases[i].option, settings_scalar(values[k]));
            assert_int_equal(options_read(m, rule->name, rule->options, options, &err), k < 2);
            if (k < 2)
                options_free(rule->options, options);
            free(options);
            settings_free(m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_of_nothing_is_p_and_is_counted),
        cmocka_unit_test(a_law_leaves_no_node_out),
        cmocka_unit_test(options_reach_as_far_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
