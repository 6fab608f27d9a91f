// test_report.c - the words of reports, and their errors. The numbers: test_view_twin.c; CSV: python/tests/test_report.py.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/report_words.h"
#include "results/store.h"
#include "results/tally.h"
#include "tests/results/sample_facts.h"
#include "tests/support/tests.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

static const struct report_options as_json = { .format = REPORT_JSON };

// Facts of `prompts` prompts in a new database.
static struct store *facts_of(int prompts, int turns, int repeats)
{
    struct sample_facts *m = sample_facts_create(3, prompts, turns, repeats);
    struct store *s = sample_store(m);
    sample_facts_free(m);
    return s;
}

// ---- names of cells

struct name_case {
    const char *drafter, *kind, *options, *expected;
};

static void expect_names(const struct name_case *of, int n, const char *common)
{
    struct tally run[8];
    struct comparison c = { .n = n, .run = run };
    struct cell_names names;
    for (int i = 0; i < n; i++)
        run[i] = (struct tally){ .drafter = (char *)of[i].drafter,
                                 .drafter_kind = (char *)of[i].kind,
                                 .drafter_options = (char *)of[i].options,
                                 .rule = "rejection",
                                 .lossless = true,
                                 .finished = true };
    cell_names_make(&c, &names);
    for (int i = 0; i < n; i++)
        assert_string_equal(names.name[i], of[i].expected);
    assert_string_equal(names.common, common);
    cell_names_free(&names);
}

TEST(names_have_what_differs)
{
    const struct name_case lookups[] = {
        { "none", "none", "{}", "none" },
        { "ngram(longest=3, tokens=8)", "ngram", "{\"longest\": \"3\", \"tokens\": \"8\"}", "ngram(tokens=8)" },
        { "ngram(longest=3, tokens=4)", "ngram", "{\"longest\": \"3\", \"tokens\": \"4\"}", "ngram(tokens=4)" },
        { "ngram(longest=3)", "ngram", "{\"longest\": \"3\"}", "ngram" },
    };
    expect_names(lookups, 4, "rejection; ngram(longest=3)");
    const struct name_case lists[] = {
        { "ladder(of=[{kind: a, n: 1}, {kind: b}], tree=[[0], [1]])", "ladder",
          "{\"of\": \"[{kind: a, n: 1}, {kind: b}]\", \"tree\": \"[[0], [1]]\"}", "ladder(tree=[[0], [1]])" },
        { "ladder(of=[{kind: a, n: 1}, {kind: b}], tree=[[0]])", "ladder",
          "{\"of\": \"[{kind: a, n: 1}, {kind: b}]\", \"tree\": \"[[0]]\"}", "ladder(tree=[[0]])" },
    };
    expect_names(lists, 2, "rejection; ladder(of=[{kind: a, n: 1}, {kind: b}])");
    const struct name_case odd[] = {
        // In a stranger's database names and options may be anything.
        { "a(b=1)", "a", "{}", "a(b=1)" },      { "a(b=1)", "a", "{\"b\": 1}", "a(b=1)" },
        { "a(b=1)", "a", "[\"b\"]", "a(b=1)" }, { "a(b=1)", "a", "no JSON", "a(b=1)" },
        { "", "a", "{\"b\": \"1\"}", "" },      { "a(b=1)", "c", "{\"b\": \"1\"}", "a(b=1)" },
    };
    expect_names(odd, 6, "rejection");
}

// ---- words of JSON

TEST(words_say_what_the_rows_are)
{
    static const struct {
        const char *change, *words;
        int times;
    } rows[] = {
        { "SELECT 1", "\"target\":\"smollm2-135m-instruct (weights q4_1, activations f32)\"", 2 },
        { "SELECT 1", "\"limits\":\"new_tokens: 40, context: 512\",\"decoding\":\"batch 1, seed 7, 2 repeats\"", 1 },
        { "UPDATE run SET cache = 'q8_0', activations = 'int8', marked_inflated = 1",
          "(weights q4_1, activations int8, cache q8_0, marked as inflated)\"", 2 },
        { "UPDATE run SET seed = -1", "seed 18446744073709551615", 2 },
        { "UPDATE run SET machine = 'another' WHERE id = 3", "threads; another\"", 1 },
        // Texts are compared at temperature 0, and where the rule's do not depend on the drafter.
        { "SELECT 1", "\"equal\":\"sampled\"", 0 },
        { "UPDATE run SET sampling = 'temperature=0.7, top_p=0.95' WHERE batch = 1", "\"equal\":\"sampled\"", 3 },
        { "UPDATE run SET sampling = 'temperature=1', drafter_invariant = 1 WHERE batch = 2", "\"equal\":\"sampled\"",
          3 },
        { "SELECT 1", "\"equal\":\"12/12\"", 1 },
        { "UPDATE run SET sampling = 'top_k=2', drafter_invariant = 0", "\"equal\":\"sampled\"", 4 },
        // Run 2 has none's texts, but for token 3 of a second turn.
        { "UPDATE run SET sampling = 'greedy'", "\"equal\":\"12/12\"", 2 },
        { "UPDATE sequence SET tokens = json_set(tokens, '$[3]', 99999) WHERE (run, prompt, turn, repeat) = (2, 1, 1, 0)",
          "\"first_difference_prompt\":\"HumanEval/82\",\"first_difference_turn\":1,\"first_difference_token\":3", 1 },
        { "SELECT 1", "\"equal\":\"11/12\"", 2 }, // and run 3, whose first text ends early
    };
    struct store *s = facts_of(3, 2, 2);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        sample_facts_query(s, rows[i].change);
        char *text = sample_report(s, as_json);
        if (occurrences(text, rows[i].words) != rows[i].times)
            fail_msg("expected %d times \"%s\" after %s: %s", rows[i].times, rows[i].words, rows[i].change, text);
        free(text);
    }
    store_close(s);
}

TEST(a_report_is_of_the_runs_of_its_experiment)
{
    struct store *s = facts_of(2, 1, 1);
    sample_facts_query(s, "UPDATE run SET experiment = 'another' WHERE id = 2");
    for (int f = 0; f < REPORT_FORMATS; f++) {
        char *text = sample_report(s, (struct report_options){ .format = f, .experiment = "another" });
        assert_null(strstr(text, "synthetic"));
        free(text);
    }
    // Its runs are those of its first query: one that is added later is left out.
    sample_facts_query(s, "CREATE TEMP VIEW run_summary AS SELECT * FROM main.run_summary WHERE run <> 3");
    char *text = sample_report(s, as_json);
    assert_int_equal(occurrences(text, "\"run\":3,") + 2 * occurrences(text, "\"run\":4,"), 2);
    free(text);
    store_close(s);
}

TEST(a_prompt_of_a_nanosecond_has_a_speedup)
{
    struct store *s = facts_of(3, 2, 1);
    for (int ns = 0; ns < 2; ns++) {
        char *sql = xformat("UPDATE sequence SET decode_ns = %d * turn, prefill_ns = 0 WHERE run = 2", ns);
        sample_facts_query(s, sql);
        free(sql);
        sql = xformat("SELECT count(*) = 3 AND count(speedup) = 3 * %d AND max(decode_ns) = %d FROM speed_by_prompt"
                      " WHERE run = 2",
                      ns, ns);
        sample_facts_hold(s, sql);
        free(sql);
    }
    store_close(s);
}

// ---- errors

static void expect_failure(struct store *s, struct report_options o, const char *to, const char *words)
{
    struct error err = { "" };
    FILE *out = fopen(to, "w");
    assert_non_null(out);
    assert_false(report_write(s, &o, out, &err));
    expect_contains(err.text, words);
    (void)fclose(out);
}

TEST(an_experiment_without_texts_is_reported)
{
    struct error err;
    struct sample_facts *m = sample_facts_create(3, 1, 1, 1);
    struct store *s = sample_store(NULL);
    expect_failure(s, as_json, "/dev/null", "no experiment has been run");
    for (int i = 0; i < SAMPLE_RUNS; i++)
        assert_true(store_run(s, &m->run[i], &m->id[i], &err));
    char *text = sample_report(s, as_json);
    expect_contains(text, " - UNFINISHED\"");
    expect_contains(text, "\"equal\":\"-\"");
    free(text);
    expect_failure(s, (struct report_options){ .experiment = "third" }, "/dev/null", "\"third\" in it (synthetic)");
    store_close(s);
    sample_facts_free(m);
}

TEST(a_failed_write_and_a_missing_view_are_errors_in_every_form)
{
    static const char *const views[] = {
        "acceptance_by_prompt", "sums_by_prompt", "speed_by_prompt", "expected", "texts", "run_summary"
    };
    for (int f = 0; f < REPORT_FORMATS; f++) {
        const struct report_options o = { .format = f };
        struct store *s = sample_store_small();
        expect_failure(s, o, "/dev/full",
                       "No space left on device"); // which accepts buffered writes and fails on flush
        for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++) {
            char *sql = xformat("DROP VIEW %s", views[i]);
            sample_facts_query(s, "BEGIN");
            sample_facts_query(s, sql);
            expect_failure(s, o, "/dev/null", views[i]);
            sample_facts_query(s, "ROLLBACK");
            free(sql);
        }
        store_close(s);
        unlink(sample_store_path());
    }
}

TEST(a_run_to_compare_with_is_named_or_numbered)
{
    static const struct {
        const char *change, *run, *words;
    } rows[] = {
        { "SELECT 1", "ngram", "runs 2, 4, 6 have this in their names" },
        { "SELECT 1", "medusa", "(runs: 1, 2, 3, 4, 5, 6)" },
        { "SELECT 1", "17", "no run has this number" },
        { "DELETE FROM sequence WHERE run = 3", "3", "no other run has decoded prompts of run 3" },
    };
    struct store *s = facts_of(2, 1, 1);
    char *by_id = sample_report(s, (struct report_options){ .against = "3" }),
         *by_name = sample_report(s, (struct report_options){ .against = "widths=[3" });
    assert_string_equal(by_id, by_name);
    assert_int_equal(occurrences(by_id, "\r\n"), 1 + SAMPLE_RUNS - 1);
    free(by_id);
    free(by_name);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        sample_facts_query(s, rows[i].change);
        expect_failure(s, (struct report_options){ .against = rows[i].run }, "/dev/null", rows[i].words);
    }
    store_close(s);
}

TEST(an_exact_test_that_cannot_be_stored_is_an_error)
{
    struct store *s = sample_store_small();
    struct error err = { "" };
    struct exact_sums sums = { .sum = (double[1]){ 0 }, .n = 1 };
    const struct exact_row row = { "e", "c", "s", "t", "d", "r", "t=1", "m", "v", true, 1, 1 };
    int64_t id = 0;
    assert_true(store_exact(s, &row, &id, &sums, &err) && id != 0);
    sample_facts_query(s, "DROP TABLE exact_test");
    sample_facts_query(s, "DROP TABLE exact_stream");
    sample_facts_query(s, "DROP TABLE exact");
    assert_false(store_exact(s, &row, &id, &sums, &err));
    expect_contains(err.text, "exact");
    store_close(s);
}

RUN_EACH_TEST(NULL, test_directory_tear_down)
