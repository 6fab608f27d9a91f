// test_setting_search.c - the probes of drafters, and what they predict of other settings: plain arithmetic on steps whose costs are known.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/tune/setting_search.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/results/sample_facts.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

// A pass of n rows takes PASS + ROW n, whatever the context; a step has OUTSIDE besides; a level of a draft takes LEVEL.
enum { PASS = 1000, ROW = 100, OUTSIDE = 50, LEVEL = 30 };
enum { NONE_RUN = 1, CHAIN_RUN, TREE_RUN };
static const int accepted[] = { 3, 0, 1, 2, 3, 1, 0, 3, 2, 0 };
enum { STEPS = sizeof(accepted) / sizeof(*accepted) };

// ---- probes

static struct setting_search probes_of(const char *drafter, const char *rule, int most)
{
    struct setting_search s = { 0 };
    struct error err;
    struct settings *d = settings_inline(drafter, "--drafter", &err), *r = settings_inline(rule, "--rule", &err);
    s.rule = r;
    if (!setting_search_add(&s, d, 5, &err))
        fail_msg("%s: %s", drafter, err.text);
    setting_search_widen(&s, most);
    s.rule = NULL;
    settings_free(d);
    settings_free(r);
    return s;
}

static void a_probe_has_the_shape_that_says_most(void **unused)
{
    static const struct {
        const char *drafter, *rule;
        int most, lengths, trees, themselves, rows;
        const char *tokens; // of the chain
    } cases[] = {
        { "ngram", "rejection", 40, 1, 0, 0, 5, "5" },
        { "ngram:tokens=7,shortest=2", "rejection", 2, 1, 0, 0, 7, "7" },
        { "small:model=x", "rejection", 40, 1, 1, 3, 63, "5" },
        { "small:model=x", "rejection", 12, 1, 1, 2, 63, "5" },
        { "small:model=x", "rejection", 2, 1, 1, 1, 63, "5" },
        { "small:model=x,widths=[2,2],pick=greedy", "rejection", 40, 1, 1, 3, 63, "5" },
        { "small:model=x", "block", 40, 1, 0, 0, 63, "5" },
        { "recycling", "rejection", 40, 0, 0, 4, 40, NULL },
        { "rest:datastore=x", "rejection", 40, 0, 0, 3, 40, NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct setting_search s = probes_of(cases[i].drafter, cases[i].rule, cases[i].most);
        int n[3] = { 0 };
        for (int k = 0; k < s.n_probes; k++) {
            const struct settings *d = s.probe[k].drafter;
            n[s.probe[k].form]++;
            assert_null(settings_get(d, "widths"));
            if (s.probe[k].form == PROBE_LENGTH)
                assert_string_equal(settings_get(d, "tokens")->text, cases[i].tokens);
        }
        assert_int_equal(n[PROBE_LENGTH], cases[i].lengths);
        assert_int_equal(n[PROBE_TREE], cases[i].trees);
        assert_int_equal(n[PROBE_ITSELF], cases[i].themselves);
        assert_int_equal(setting_search_rows(&s), cases[i].rows);
        setting_search_free(&s);
    }
}

// At temperature 0 a row of q is one token, so a sampled tree would be a chain.
static void at_temperature_0_trees_are_of_the_largest_q(void **unused)
{
    for (int greedy = 0; greedy < 2; greedy++) {
        struct setting_search s = { .greedy = greedy };
        struct error err;
        struct settings *d = settings_inline("small:model=x", "--drafter", &err);
        assert_ok(setting_search_add(&s, d, 5, &err), err);
        setting_search_widen(&s, 12);
        assert_int_equal(s.probe[1].form, PROBE_TREE);
        assert_int_equal(settings_get(s.probe[1].drafter, "pick") != NULL, greedy);
        settings_free(d);
        setting_search_free(&s);
    }
}

static void predict(struct setting_search *s, int of, double speedup)
{
    s->candidate = xrealloc(s->candidate, ((size_t)s->n + 1) * sizeof(*s->candidate));
    s->candidate[s->n++] = (struct candidate){ .of = of, .speedup = speedup, .drafter = settings_map() };
}

static void drafters_far_behind_have_a_chain_only(void **unused)
{
    static const struct {
        double ngram, first, second; // predicted
        int wide[2];                 // probes of the two others after their chains
    } cases[] = {
        { 1, 1, 0.95, { 3, 3 } },
        { 1, 1, 0.85, { 3, 0 } },
        { 1.2, 1, 0.95, { 3, 0 } }, // 0.79 of the best chain
        { 2, 1, 1, { 0, 0 } },
    };
    static const char *const drafters[] = { "ngram", "small:model=x", "small:model=y" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct setting_search s = { 0 };
        struct error err;
        for (int k = 0; k < 3; k++) {
            struct settings *d = settings_inline(drafters[k], "--drafter", &err);
            assert_ok(setting_search_add(&s, d, 5, &err), err);
            settings_free(d);
        }
        predict(&s, 0, cases[i].ngram);
        predict(&s, 1, cases[i].first);
        predict(&s, 2, cases[i].second);
        setting_search_widen(&s, 12);
        int wide[3] = { -1, -1, -1 };
        for (int k = 0; k < s.n_probes; k++)
            wide[s.probe[k].of]++;
        assert_int_equal(wide[0], 0);
        assert_int_equal(wide[1], cases[i].wide[0]);
        assert_int_equal(wide[2], cases[i].wide[1]);
        setting_search_free(&s);
    }
}

static void a_drafter_without_a_shape_is_refused(void **unused)
{
    static const char *const drafters[] = { "none", "lookahead", "ladder:of=[ngram]" };
    for (size_t i = 0; i < sizeof(drafters) / sizeof(*drafters); i++) {
        struct setting_search s = { 0 };
        struct error err;
        struct settings *d = settings_inline(drafters[i], "--drafter", &err);
        assert_false(setting_search_add(&s, d, 5, &err));
        assert_non_null(strstr(err.text, "has no option that tune searches: tokens, tree or nodes"));
        settings_free(d);
        setting_search_free(&s);
    }
}

// ---- a database with known costs

static void put(struct store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct store *s, const char *format, ...)
{
    char sql[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    sample_facts_query(s, sql);
}

static void put_run(struct store *s, int run, const char *kind, int steps, int tokens, int decode_ns)
{
    put(s,
        "INSERT INTO run (id, experiment, cell, peers, settings, target, target_hash, model_type, activations, cache, drafter,"
        " drafter_kind, rule, lossless, drafter_invariant, marked_inflated, sampling, prompts, seed, batch, device, machine, revision,"
        " started) VALUES (%d, 'e', 'c%d', 'A', '{}', 't', '00', 'f32', 'f32', 'f32', '%s', '%s', 'rejection', 1, 0, 0,"
        " 'temperature=0', 'p', 1, 1, 'cpu', 'm', 'r', '2026-01-01T00:00:00Z')",
        run, run, kind, kind);
    put(s,
        "INSERT INTO sequence VALUES (%d, %d, 1, 0, 'p', NULL, 0, 0, 5, %d, %d, 0, 7, %d, %d, json('[' || substr(replace(hex(zeroblob(%d)),"
        " '00', ',1'), 2) || ']'), '00', NULL, 'limit', NULL)",
        run, run, tokens, steps, decode_ns, decode_ns, tokens);
}

static void put_step(struct store *s, int run, int step, int drafted, int depth, int right)
{
    put(s,
        "INSERT INTO step (sequence, step, drafted, depth, accepted, tokens, propose_ns, verify_ns, advance_ns, at_ns, batch) VALUES"
        " (%d, %d, %d, %d, %d, %d, %d, %d, 0, %d, 1)",
        run, step, drafted, depth, right, right + 1, LEVEL * depth, PASS + ROW * (drafted + 1), 10000 * (step + 1));
}

// Of depth 1 ten tokens of rank 0 are tested and six accepted, then four of rank 1 and two; of depth 2 eight and four, four and one.
static void put_trials(struct store *s)
{
    static const int tested[4] = { 10, 4, 8, 4 }, right[4] = { 6, 2, 4, 1 };
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < tested[i]; k++)
            put(s, "INSERT INTO trial VALUES (%d, %d, %d, %d, %d, 1, 0, NULL, NULL, %d, NULL)", TREE_RUN, k, i + 1,
                i / 2 + 1, i % 2, k < right[i]);
}

static struct store *known_costs(void)
{
    struct store *s = sample_store(NULL);
    int tokens = 0;
    for (int i = 0; i < STEPS; i++)
        tokens += accepted[i] + 1;
    put(s, "INSERT INTO pair (id, experiment, started) VALUES (1, 'e', '2026-01-01T00:00:00Z')");
    put_run(s, NONE_RUN, "none", 20, 20, 20 * (PASS + ROW + OUTSIDE));
    put_run(s, CHAIN_RUN, "ngram", STEPS, tokens, STEPS * (PASS + 4 * ROW + 3 * LEVEL + OUTSIDE));
    put_run(s, TREE_RUN, "small", STEPS, STEPS, STEPS * (PASS + 5 * ROW + 2 * LEVEL + OUTSIDE));
    for (int i = 0; i < 20; i++)
        put_step(s, NONE_RUN, i, 0, 0, 0);
    for (int i = 0; i < STEPS; i++)
        put_step(s, CHAIN_RUN, i, 3, 3, accepted[i]);
    for (int i = 0; i < STEPS; i++)
        put_step(s, TREE_RUN, i, 4, 2, 0);
    put_trials(s);
    return s;
}

static void expect_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("found %.12g, expected %.12g", a, b);
}

static double speedup_of(double tokens, int rows, int depth)
{
    return tokens / (PASS + ROW * rows + LEVEL * depth + OUTSIDE) * (PASS + ROW + OUTSIDE);
}

static void a_chain_predicts_every_shorter_one(void **unused)
{
    struct store *store = known_costs();
    struct setting_search s = probes_of("ngram:tokens=3,shortest=2", "rejection", 40);
    struct error err;
    assert_true(setting_search_read(&s, &s.probe[0], store, CHAIN_RUN, &err));
    assert_int_equal(s.n, 3);
    for (int length = 1; length <= 3; length++) {
        double tokens = 0;
        for (int i = 0; i < STEPS; i++)
            tokens += 1 + (accepted[i] < length ? accepted[i] : length);
        const struct candidate *c = &s.candidate[length - 1];
        assert_int_equal(atoi(settings_get(c->drafter, "tokens")->text), length);
        assert_string_equal(settings_get(c->drafter, "shortest")->text, "2");
        expect_near(c->tokens_per_step, tokens / STEPS);
        expect_near(c->speedup, speedup_of(tokens / STEPS, length + 1, length));
    }
    setting_search_free(&s);
    store_close(store);
    test_directory_remove();
}

// The shares are 0.6 and 0.4 * 0.5 at depth 1, 0.5 and 0.5 * 0.25 at depth 2.
static void a_tree_predicts_every_other_one(void **unused)
{
    static const struct {
        int depth, nodes;
        double tokens;
    } expected[] = { { 1, 2, 1.8 }, { 2, 3, 2.1 }, { 2, 4, 2.2 }, { 2, 5, 2.275 }, { 2, 6, 2.3 } };
    struct store *store = known_costs();
    struct setting_search s = probes_of("small:model=x", "rejection", 40);
    struct error err;
    assert_int_equal(s.probe[1].form, PROBE_TREE);
    assert_true(setting_search_read(&s, &s.probe[1], store, TREE_RUN, &err));
    assert_int_equal(s.n, sizeof(expected) / sizeof(*expected));
    for (int i = 0; i < s.n; i++) {
        assert_int_equal(settings_get(s.candidate[i].drafter, "tree")->n, expected[i].nodes);
        expect_near(s.candidate[i].tokens_per_step, expected[i].tokens);
        expect_near(s.candidate[i].speedup, speedup_of(expected[i].tokens, expected[i].nodes + 1, expected[i].depth));
    }
    setting_search_free(&s);
    store_close(store);
    test_directory_remove();
}

static void the_best_of_each_family_is_confirmed_first(void **unused)
{
    struct setting_search s = { .n_families = 2 };
    s.candidate = xcalloc(3, sizeof(*s.candidate));
    for (s.n = 0; s.n < 3; s.n++) // a family close behind comes before the second of the best
        s.candidate[s.n] =
            (struct candidate){ .family = s.n == 2, .speedup = 2 - 0.1 * s.n, .drafter = settings_map() };
    setting_search_sort(&s, 2);
    expect_near(s.candidate[0].speedup, 2);
    expect_near(s.candidate[1].speedup, 1.8);
    expect_near(s.candidate[2].speedup, 1.9);
    s.candidate[1].speedup = 1.5; // now it is far behind
    setting_search_sort(&s, 2);
    expect_near(s.candidate[1].speedup, 1.9);
    setting_search_free(&s);
}

static void settings_that_are_confirmed_differ(void **unused)
{
    static const double tokens[] = { 1.84, 1.81, 1.78, 1.65, 1.5, 1.49 };
    static const double order[] = { 1.84, 1.65, 1.5, 1.81, 1.78, 1.49 };
    struct setting_search s = { .n_families = 1 };
    s.candidate = xcalloc(6, sizeof(*s.candidate));
    for (s.n = 0; s.n < 6; s.n++)
        s.candidate[s.n] = (struct candidate){ .speedup = 1.4 - 0.01 * s.n,
                                               .tokens_per_step = tokens[s.n],
                                               .drafter = settings_map() };
    setting_search_sort(&s, 3);
    for (int i = 0; i < 6; i++)
        expect_near(s.candidate[i].tokens_per_step, order[i]);
    setting_search_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_probe_has_the_shape_that_says_most),
        cmocka_unit_test(at_temperature_0_trees_are_of_the_largest_q),
        cmocka_unit_test(drafters_far_behind_have_a_chain_only),
        cmocka_unit_test(a_drafter_without_a_shape_is_refused),
        cmocka_unit_test(a_chain_predicts_every_shorter_one),
        cmocka_unit_test(a_tree_predicts_every_other_one),
        cmocka_unit_test(the_best_of_each_family_is_confirmed_first),
        cmocka_unit_test(settings_that_are_confirmed_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
