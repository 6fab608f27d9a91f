// test_rules.c - every exact rule keeps the target's distribution, by enumeration. tests/exact/test_mutants.c shows
// that flaws would be detected.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/outcomes.h"
#include "tests/support/tests.h"
#include "tests/support/rule_defaults.h"
#include "verifier/exact/law.h"
#include "tests/exact/mutants.h"

#define ROUNDING 1e-12
#define FLAW 1e-6

// Takes about a minute under the sanitizers; `speclab exact --rules` enumerates more.
static const struct sweep_size sweep_size = { 30, 12, 260, NULL };

// ---- the law

// Why a rule marked exact is refused; NULL: it is not. *f: the measurements.
static const char *refusal(const struct rule *rule, struct law_result *f)
{
    void *options = rule_defaults(rule);
    *f = law_sweep(rule, options, NULL, sweep_size, ROUNDING);
    rule_defaults_free(rule, options);
    if (f->instances == 0)
        return "it takes no draft that is enumerated";
    if (!f->sound)
        return "its output is no path of the draft";
    if (!(f->distance <= ROUNDING) || !(f->lost <= ROUNDING) || !(f->empty <= ROUNDING))
        return "its output does not have the target's distribution";
    if (!(f->law_error <= ROUNDING) || !(f->accepted_error <= ROUNDING))
        return "its end_probabilities are wrong";
    return f->repeated > 0 ? "it uses randomness twice" : NULL;
}

TEST(exact_rules_keep_the_targets_distribution)
{
    for (int i = 0; rules[i]; i++) {
        struct law_result f;
        if (!rules[i]->exact)
            continue;
        const char *why = refusal(rules[i], &f);
        print_message(
            "%s: %lld instances, %lld outcomes: distance %.1e, lost %.1e, empty %.1e, law %.1e, accepted %.1e\n",
            rules[i]->name, (long long)f.instances, (long long)f.runs, f.distance, f.lost, f.empty, f.law_error,
            f.accepted_error);
        if (why != NULL)
            fail_msg("%s is marked exact, but %s", rules[i]->name, why);
    }
}

static int64_t reported, announced;

static bool note_progress(int64_t done, int64_t all)
{
    assert_int_equal(done, ++reported);
    assert_true(announced == 0 || all == announced);
    announced = all;
    return true;
}

static bool stop_at_five(int64_t done, int64_t all)
{
    (void)all;
    return done < 5;
}

TEST(progress_comes_with_every_instance)
{
    const struct sweep_size size = { 2, 1, 30, note_progress };
    const struct law_result f = law_sweep(rule_named("match"), NULL, NULL, size, ROUNDING);
    assert_true(f.instances > 20);
    assert_int_equal(reported, f.instances);
    assert_int_equal(announced, f.instances);
    const struct sweep_size stopped = { 2, 1, 30, stop_at_five };
    assert_int_equal(law_sweep(rule_named("match"), NULL, NULL, stopped, ROUNDING).instances, 5);
}

// ---- rules that must not pass

static void verify_by_residual_of_one_token(const struct rule *rule, const struct draft *d, struct rows *p,
                                            const void *options, struct rng *rng, struct verification *out)
{
    block_mutant.verify(&block_mutant, d, p, &(enum flaw){ RESIDUAL_OF_ONE_TOKEN }, rng, out);
}

static void verify_at_the_drafts_address(const struct rule *rule, const struct draft *d, struct rows *p,
                                         const void *options, struct rng *rng, struct verification *out)
{
    rejection_mutant.verify(&rejection_mutant, d, p, &(enum flaw){ RESIDUAL_AT_THE_DRAFTS_ADDRESS }, rng, out);
}

// Copies of registered rules with one wrong function. The first is the wrong formula that shows least.
TEST(a_lossy_rule_marked_exact_is_refused)
{
    struct rule off = *rule_named("block"), reused = *rule_named("rejection"), mismatched = *rule_named("rejection"),
                idle = *rule_named("rejection");
    struct law_result f;
    off.verify = verify_by_residual_of_one_token;
    off.end_probabilities = NULL;
    assert_string_equal(refusal(&off, &f), "its output does not have the target's distribution");
    reused.verify = verify_at_the_drafts_address;
    reused.end_probabilities = NULL;
    assert_string_equal(refusal(&reused, &f), "it uses randomness twice");
    mismatched.end_probabilities = rule_named("match")->end_probabilities;
    assert_string_equal(refusal(&mismatched, &f), "its end_probabilities are wrong");
    idle.takes = 0;
    assert_string_equal(refusal(&idle, &f), "it takes no draft that is enumerated");
}

TEST(lossy_rules_are_detected)
{
    for (int i = 0; rules[i]; i++) {
        if (rules[i]->exact)
            continue;
        void *options = rule_defaults(rules[i]);
        assert_true(law_sweep(rules[i], options, NULL, sweep_size, FLAW).distance > FLAW);
        rule_defaults_free(rules[i], options);
    }
}

// ---- contents of a verification

static const int two_by_two[] = { 2, 2 };

TEST(trials_multiply_to_the_end_probability)
{
    for (int seed = 0; seed < 40; seed++) {
        struct instance in = instance_create(two_by_two, 2, 2 + seed % 2, (enum proposal_mix)(seed % PROPOSAL_MIXES),
                                             ANY_ROWS, (uint64_t)seed);
        assert_true(law_examine(&in, rule_named("rejection"), NULL).trial_error <= ROUNDING);
        assert_true(law_examine(&in, rule_named("match"), NULL).trial_error <= ROUNDING);
        instance_free(&in);
    }
}

// ---- a draft of the root alone

enum { LONG = 700 };

struct long_rows {
    struct rows rows;
    float row[LAW_NODES][LONG];
};

static const float *long_row(struct rows *self, int node)
{
    return ((struct long_rows *)self)->row[node];
}

// Whether the rule decides 300 such drafts as a draw from their row at FOR_BONUS. Every third row has a single token, as at temperature 0.
static bool draws_its_bonus(const struct rule *rule, const void *options)
{
    static struct long_rows p;
    struct verification v = verification_create(1, LONG);
    double *work = xcalloc(LONG, sizeof(*work));
    int32_t token = 0, parent = -1;
    uint8_t proposal = DETERMINISTIC;
    const struct draft root = { .n = 1, .capacity = 1, .token = &token, .parent = &parent, .proposal = &proposal };
    struct philox rows = philox_source(7, 0), source = philox_source(8, 3);
    bool all = true;
    p.rows = (struct rows){ LONG, long_row };
    for (int i = 0; i < 300; i++) {
        double sum = 0;
        for (int x = 0; x < LONG; x++)
            sum += work[x] = philox_uniform(rows.seed, (uint64_t)i, (struct address){ FOR_BONUS, x, 0 }, 0);
        for (int x = 0; x < LONG; x++)
            p.row[0][x] = i % 3 == 0 ? x == i : (float)(work[x] / sum);
        source.rng.root = i;
        rule->verify(rule, &root, &p.rows, options, &source.rng, &v);
        assert_int_equal(v.n, 1);
        assert_int_equal(v.node[0], 0);
        const int expected = rng_pick_row(&source.rng, p.row[0], LONG, (struct address){ FOR_BONUS, i, 0 }, work);
        assert_true(i % 3 != 0 || v.token[0] == expected); // greedy decoding is one, whatever the rule
        all = all && v.token[0] == expected;
    }
    verification_destroy(&v);
    free(work);
    return all;
}

TEST(rules_that_share_a_baseline_are_those_with_one_text_of_none)
{
    assert_true(rules[0]->bonus_alone);
    for (int i = 0; rules[i] != NULL; i++) {
        void *options = rule_defaults(rules[i]);
        if (draws_its_bonus(rules[i], options) != rules[i]->bonus_alone)
            fail_msg("%s: bonus_alone is %d, and a draft of the root alone is decided %s", rules[i]->name,
                     rules[i]->bonus_alone, rules[i]->bonus_alone ? "otherwise" : "so");
        rule_defaults_free(rules[i], options);
    }
}

TEST(only_rows_on_the_path_are_read)
{
    for (int seed = 0; seed < 200; seed++) {
        struct instance in = instance_create(two_by_two, 2, 4, MIXED, ANY_ROWS, (uint64_t)seed);
        struct philox source = philox_source((uint64_t)seed, 0);
        struct verification out = verification_create(LAW_NODES, 4);
        struct table_draft g;
        instance_draft(&in, &source.rng, 0, &g);
        for (int i = 0; rules[i]; i++) {
            if (strcmp(rules[i]->name, "rejection") != 0 && strcmp(rules[i]->name, "match") != 0)
                continue;
            g.p.requested = 0;
            rules[i]->verify(rules[i], &g.draft, &g.p.rows, NULL, &source.rng, &out);
            assert_int_equal(g.p.requested, out.n);
        }
        verification_destroy(&out);
        instance_free(&in);
    }
}

// By hand: p = (0, 1/4, 3/4), q = (1/2, 1/4, 1/4), and three siblings sampled without replacement, tokens 0, 1, 2. The
// first cannot be accepted and leaves (p - q)+ = (0, 0, 1/2), so p = (0, 0, 1). The second came from (0, 1/2, 1/2); its
// p is 0, and p is unchanged. The third came from (0, 0, 1): 1 against 1.
TEST(distinct_siblings_lose_the_rejected_token)
{
    float p[] = { 0, 0.25f, 0.75f }, q[] = { 0.5f, 0.25f, 0.25f };
    struct instance in = { .vocab = 3, .p = p, .q = q };
    struct table_draft g;
    struct philox source = philox_source(1, 0);
    struct verification out = verification_create(4, 3);
    in.nodes = 1;
    instance_draft(&in, &source.rng, 0, &g);
    for (int x = 0; x < 3; x++)
        draft_add(&g.draft, 0, x, SAMPLED_WITHOUT_REPLACEMENT);
    memset(g.prefix, 0, sizeof(g.prefix)); // every node has the root's row
    const struct rule *rejection = rule_named("rejection");
    rejection->verify(rejection, &g.draft, &g.p.rows, NULL, &source.rng, &out);
    assert_true(out.trial_p[1] == 0 && out.trial_q[1] == 0.5);
    assert_true(out.trial_p[2] == 0 && out.trial_q[2] == 0.5);
    assert_true(out.trial_p[3] == 1 && out.trial_q[3] == 1);
    assert_int_equal(out.n, 2);
    assert_int_equal(out.token[0], 2);
    assert_int_equal(out.node[1], 3);
    verification_destroy(&out);
}

RUN_TESTS(NULL, NULL)
