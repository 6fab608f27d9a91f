// test_facts.c - every fact of a sequence and of an exact test is stored in its column: each has a distinct value, and SQL reads it
// back.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/exact/exact_run.h"
#include "core/error.h"
#include "core/memory.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/experiments/small_experiments.h"
#include "tests/results/sample_facts.h"
#include "tests/support/small_model.h"

static const struct run_row row_of_run = { .experiment = "e",
                                           .cell = "c",
                                           .peers = "p",
                                           .settings = "{\"batch\": 3}",
                                           .target = "target",
                                           .drafter = "small(tokens=3)",
                                           .rule = "typical(epsilon=0.1)",
                                           .sampling = "temperature=1",
                                           .drafter_kind = "small",
                                           .device = "cpu",
                                           .machine = "m",
                                           .revision = "r",
                                           .target_hash = "th",
                                           .drafter_hash = "dh",
                                           .prompts = "prompts",
                                           .model_type = "q4_1",
                                           .activations = "int8",
                                           .cache = "bf16",
                                           .lossless = false,
                                           .marked_inflated = true,
                                           .seed = 9,
                                           .batch = 3 };

TEST(every_fact_of_a_sequence_is_in_its_column)
{
    struct error err = { "" };
    struct store *s = open_store("facts.db");
    int64_t id = 0, pair = 0;
    const struct trial_row trials[] = { { 1, 1, 0, 71, 1, 0.25, 0.5, true, "ngram" },
                                        { 2, 1, 1, 72, 0, 0.125, NAN, false, NULL } };
    const struct source_row sources[] = { { "ngram", 4, 2 }, { "ngram+suffix", 1, 0 } };
    const struct expected_row under_rules[] = { { "rejection", true, 1.5, 0.75 },
                                                { "typical", false, 2.5, 0.875 },
                                                { "(bound)", true, NAN, 0.9 } };
    const struct step_row steps[] = { { .drafted = 5,
                                        .depth = 3,
                                        .accepted = 2,
                                        .expected = 1.25,
                                        .variance = 0.5,
                                        .accepted_uncut = 2,
                                        .propose_ns = 1001,
                                        .verify_ns = 1002,
                                        .advance_ns = 1003,
                                        .at_ns = 1004,
                                        .batch = 3,
                                        .experts = 17,
                                        .trial = trials,
                                        .n_trials = 2,
                                        .by_rule = under_rules,
                                        .n_by_rule = 3,
                                        .by_source = sources,
                                        .n_by_source = 2 },
                                      { .expected = NAN,
                                        .variance = NAN,
                                        .accepted_uncut = -1,
                                        .propose_ns = 2001,
                                        .verify_ns = 2002,
                                        .advance_ns = 2003,
                                        .at_ns = 2004,
                                        .batch = 2 } };
    const int32_t token[] = { 71, 80, 81, 82 };
    struct sequence_row q = { 6,    "prompt six", "chat", 1,     2,        0,       13,    4, 11,
                              3001, 3002,         3003,   token, "a text", "limit", steps, 2, NULL };
    assert_true(store_run(s, &row_of_run, &id, &err) && store_new_pair(s, "e", &pair, &err));
    q.pair = pair;
    assert_ok(store_sequence(s, id, &q, &err), err);
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM run WHERE experiment = 'e' AND cell = 'c' AND peers = 'p' AND settings = '{\"batch\": 3}' AND"
        " target = 'target' AND drafter = 'small(tokens=3)' AND rule = 'typical(epsilon=0.1)' AND sampling = 'temperature=1'"
        " AND drafter_kind = 'small' AND device = 'cpu' AND machine = 'm' AND revision = 'r' AND target_hash = 'th' AND"
        " drafter_hash = 'dh' AND prompts = 'prompts' AND model_type = 'q4_1' AND activations = 'int8' AND cache = 'bf16' AND"
        " lossless = 0 AND marked_inflated = 1 AND seed = 9 AND batch = 3");
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM sequence WHERE prompt = 6 AND prompt_id = 'prompt six' AND category = 'chat' AND turn = 1 AND"
        " repeat = 2 AND prompt_tokens = 13 AND new_tokens = 4 AND steps = 2 AND shared_tokens = 11 AND prefill_ns = 3001 AND decode_ns = 3002 AND"
        " wall_ns = 3003 AND tokens = '[71,80,81,82]' AND text = 'a text' AND stop = 'limit'"
        " AND text_hash = '3215ec0c50699c91'"); // FNV-1a, by Python
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM step WHERE step = 0 AND drafted = 5 AND depth = 3 AND accepted = 2 AND tokens = 3 AND"
        " expected = 1.25 AND variance = 0.5 AND accepted_uncut = 2 AND propose_ns = 1001 AND verify_ns = 1002 AND advance_ns = 1003"
        " AND at_ns = 1004 AND batch = 3 AND experts = 17");
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM step WHERE step = 1 AND drafted = 0 AND depth = 0 AND accepted = 0 AND tokens = 1 AND"
        " expected IS NULL AND variance IS NULL AND accepted_uncut IS NULL AND propose_ns = 2001 AND at_ns = 2004 AND batch = 2 AND experts IS NULL");
    sample_facts_hold(
        s,
        "SELECT count(*) = 2 FROM trial WHERE step = 0 AND ((node = 1 AND depth = 1 AND rank = 0 AND token = 71 AND proposal = 1"
        " AND p = 0.25 AND q = 0.5 AND accepted = 1 AND source = 'ngram') OR (node = 2 AND depth = 1 AND rank = 1 AND token = 72 AND proposal = 0 AND"
        " p = 0.125 AND q IS NULL AND accepted = 0 AND source IS NULL))");
    sample_facts_hold(
        s,
        "SELECT count(*) = 2 FROM step_source WHERE step = 0 AND ((source = 'ngram' AND drafted = 4 AND accepted = 2) OR"
        " (source = 'ngram+suffix' AND drafted = 1 AND accepted = 0))");
    sample_facts_hold(
        s,
        "SELECT count(*) = 3 FROM step_rule WHERE step = 0 AND ((rule = 'rejection' AND lossless = 1 AND accepted = 1.5 AND"
        " first = 0.75) OR (rule = 'typical' AND lossless = 0 AND accepted = 2.5 AND first = 0.875) OR (rule = '(bound)' AND"
        " accepted IS NULL AND first = 0.9))");
    store_close(s);
}

TEST(a_failing_step_rolls_back_its_sequence)
{
    struct error err = { "" };
    struct store *s = open_store("refused.db");
    int64_t id = 0, pair = 0;
    const struct expected_row twice[] = { { "rejection", true, 1.5, 0.75 },
                                          { "rejection", true, 1.5, 0.75 },
                                          { "match", true, 1, 1 } };
    const struct trial_row trials[] = { { 1, 1, 0, 71, 1, 0.25, 0.5, true, NULL },
                                        { 0, 1, 1, 72, 0, 0.125, NAN, false, NULL },
                                        { 3, 1, 1, 72, 0, 0.125, NAN, false, NULL } };
    const struct source_row sources[] = { { "ngram", 2, 1 }, { "suffix", 2, 3 }, { "eagle3", 1, 1 } };
    const int32_t token[] = { 71 };
    assert_true(store_run(s, &row_of_run, &id, &err) && store_new_pair(s, "e", &pair, &err));
    for (int k = 0; k < 3; k++) { // the second of three rows violates a constraint, the third does not
        const struct step_row step = { .drafted = 5,
                                       .depth = 3,
                                       .expected = 1.25,
                                       .variance = 0.5,
                                       .propose_ns = 1,
                                       .verify_ns = 1,
                                       .advance_ns = 1,
                                       .at_ns = 1,
                                       .batch = 1,
                                       .trial = k == 1 ? trials : NULL,
                                       .n_trials = k == 1 ? 3 : 0,
                                       .by_rule = k == 0 ? twice : NULL,
                                       .n_by_rule = k == 0 ? 3 : 0,
                                       .by_source = k == 2 ? sources : NULL,
                                       .n_by_source = k == 2 ? 3 : 0 };
        const struct sequence_row q = {
            6, "p", NULL, 0, 0, pair, 0, 1, 0, 1, 1, 1, token, NULL, "limit", &step, 1, NULL
        };
        assert_false(store_sequence(s, id, &q, &err));
        assert_non_null(strstr(err.text, "constraint"));
        assert_true(sample_facts_query(s, "SELECT count(*) FROM sequence") +
                        sample_facts_query(s, "SELECT count(*) FROM step") ==
                    0);
    }
    store_close(s);
}

// FNV-1a over the bytes 04 03 02 01 ff 00 80 00, computed in Python.
TEST(the_hash_of_a_text_covers_every_byte)
{
    struct error err = { "" };
    struct store *s = open_store("hash.db");
    int64_t id = 0, pair = 0;
    static const int32_t token[] = { 0x01020304, 0x008000ff };
    const struct step_row step = {
        .drafted = 1, .depth = 1, .accepted = 1, .expected = NAN, .variance = NAN, .batch = 1
    };
    assert_true(store_run(s, &row_of_run, &id, &err) && store_new_pair(s, "e", &pair, &err));
    const struct sequence_row q = { 6, "p", NULL, 0, 0, pair, 0, 2, 0, 1, 1, 1, token, NULL, "limit", &step, 1, NULL };
    assert_ok(store_sequence(s, id, &q, &err), err);
    sample_facts_hold(s, "SELECT text_hash = 'c3482d83562d2a6a' FROM sequence");

    // Tokens that are not a list are damage.
    struct stored_turn turn;
    assert_true(store_turn(s, id, 6, 0, 0, &turn, &err) && turn.found && turn.n == 2);
    free(turn.token);
    sample_facts_query(s, "PRAGMA ignore_check_constraints = 1");
    sample_facts_query(s, "UPDATE sequence SET tokens = '[1'");
    assert_false(store_turn(s, id, 6, 0, 0, &turn, &err));
    assert_non_null(strstr(err.text, "tokens of a stored turn"));
    store_close(s);
}

TEST(every_fact_of_an_exact_test_is_in_its_column)
{
    struct error err = { "" };
    struct store *s = open_store("exact.db");
    const struct exact_row row = { "e",        "c",       "settings", "target", "drafter", "rule",
                                   "sampling", "machine", "revision", true,     3,         17 };
    double some[] = { 1, 2, 3 };
    struct exact_sums sums = { .sum = some, .n = 3 };
    int64_t id = 0;
    assert_true(store_exact(s, &row, &id, &sums, &err));
    const struct exact_sums now = { 4, 5, 6, 7.5, some, 3 };
    assert_true(store_exact_sums(s, id, &now, &err));
    const struct exact_sums none = { 4, 5, 6, NAN, some, 3 }; // no evidence yet
    double read[3] = { 0 };
    struct exact_sums back = { .max_log_e = 9, .sum = read, .n = 3 };
    assert_true(store_exact_sums(s, id, &none, &err) && store_exact(s, &row, &id, &back, &err));
    assert_true(back.max_log_e == 0 && back.sequences == 4 && back.tokens == 5 && back.steps == 6 && read[2] == 3);
    assert_true(store_exact_sums(s, id, &now, &err));
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM exact WHERE experiment = 'e' AND cell = 'c' AND settings = 'settings' AND target = 'target'"
        " AND drafter = 'drafter' AND rule = 'rule' AND sampling = 'sampling' AND machine = 'machine' AND"
        " revision = 'revision' AND lossless = 1 AND batch = 3 AND seed = 17 AND sequences = 4 AND tokens = 5 AND steps = 6"
        " AND max_log_e = 7.5 AND finished IS NULL");
    static struct verdict v = {
        .answer = NO_VERDICT,
        .level = 0.5,
        .detectable_ks = 4.5,
        .detectable_e = 9,
        .z_accepted = 3.5,
        .of = { [STREAM_TEXT] = { 21, 2.5, NULL, true }, [STREAM_CONTROL] = { 22, 3.5, NULL, false } },
        .n = 2,
        .row = { { STREAM_TEXT, { "KS", "order", "all", 0.1, -2, 31 }, -1 },
                 { STREAM_CONTROL, { "score", "first", "later", 0.2, -3, 32 }, -2.5 } }
    };
    static const struct observed seen = { .steps = 2, .accepted = 3, .expected = 5 };
    for (int again = 0; again < 2; again++) // replaces what is stored
        assert_ok(exact_store(s, id, &v, &seen, &err), err);
    sample_facts_hold(s, "SELECT count(*) = 1 FROM exact WHERE level = 0.5 AND accepted = 1.5 AND expected = 2.5 AND"
                         " z_accepted = 3.5 AND detectable = 4.5 AND verdict = 'no verdict' AND finished IS NOT NULL");
    sample_facts_hold(
        s,
        "SELECT count(*) = 2 FROM exact_stream WHERE (stream = 'text' AND tokens = 21 AND log_e = 2.5 AND alarm = 1) OR"
        " (stream = 'control' AND tokens = 22 AND log_e = 3.5 AND alarm = 0)");
    sample_facts_hold(
        s,
        "SELECT count(*) = 2 FROM exact_test WHERE (stream = 'text' AND kind = 'KS' AND \"of\" = 'order' AND part = 'all' AND"
        " tokens = 31 AND statistic = 0.1 AND log10_p = -2 AND log10_adjusted = -1) OR (stream = 'control' AND kind = 'score' AND"
        " \"of\" = 'first' AND part = 'later' AND tokens = 32 AND statistic = 0.2 AND log10_p = -3 AND log10_adjusted = -2.5)");
    const struct logit_comparison bits = { 1, 51, 52, 0.25, 2, 53, 54, 55, { .sequence = -1 } };
    char *bits_sql = xformat(
        "SELECT count(*) = 1 FROM exact_bits WHERE experiment = 'e' AND cell = 'c' AND settings = 'settings' AND target = 'target' AND"
        " drafter = 'drafter' AND rule = 'rule' AND sampling = 'sampling' AND machine = 'machine' AND revision = 'revision' AND"
        " verdict = '%s' AND compared = 51 AND different = 52 AND ties = 53 AND argmax_changed = 54 AND bugs = 55 AND largest = 0.25",
        agreement_names[comparison_result(&bits)]);
    assert_ok(bits_store(s, &row, &bits, &err), err);
    sample_facts_hold(s, bits_sql);
    free(bits_sql);
    const struct exact_rule_row rule = { "block", "exact", "rev", true, 41, 42, 1e-16, 2e-16 };
    assert_true(store_exact_rule(s, &rule, &err));
    sample_facts_hold(
        s,
        "SELECT count(*) = 1 FROM exact_rule WHERE rule = 'block' AND verdict = 'exact' AND revision = 'rev' AND declared_exact = 1 AND"
        " instances = 41 AND outcomes = 42 AND distance = 1e-16 AND formula_error = 2e-16");
    store_close(s);
}

RUN_TESTS(NULL, test_directory_tear_down)
