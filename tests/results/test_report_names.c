// test_report_names.c - names of cells in tables have what differs. Of many cells the fastest are shown.
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "results/report.h"
#include "results/store.h"
#include "results/tally.h"
#include "results/tables/tables.h"
#include "tests/support/check.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"
#include "tests/results/printed_tables.h"
#include "tests/results/sample_facts.h"

// ---- names

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

static void names_have_what_differs(void **state)
{
    (void)state;
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
}

// In a stranger's database they may be anything.
static void a_name_that_its_options_do_not_make_stays_as_it_is(void **state)
{
    (void)state;
    const struct name_case odd[] = {
        { "a(b=1)", "a", "{}", "a(b=1)" },      { "a(b=1)", "a", "{\"b\": 1}", "a(b=1)" },
        { "a(b=1)", "a", "[\"b\"]", "a(b=1)" }, { "a(b=1)", "a", "no JSON", "a(b=1)" },
        { "", "a", "{\"b\": \"1\"}", "" },      { "a(b=1)", "c", "{\"b\": \"1\"}", "a(b=1)" },
    };
    expect_names(odd, 6, "rejection");
}

// ---- many cells

// 120 cells of one pair: text i took i + 1 ns a token, one of none's 200.
static struct store *store_of_many(void)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "DELETE FROM run WHERE id > 2");
    sample_facts_query(s,
                       "UPDATE run SET sampling = 'temperature=0', batch = 1, drafter = 'ngram(tokens=1, longest=3)',"
                       " drafter_options = json_object('tokens', '1', 'longest', '3') WHERE id = 2");
    sample_facts_query(
        s,
        "CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 120) SELECT i FROM n");
    sample_facts_query(s, "CREATE TEMP TABLE r AS SELECT n.i, run.* FROM run JOIN n WHERE run.id = 2");
    sample_facts_query(s,
                       "UPDATE r SET id = i, cell = 'cell ' || i, drafter = 'ngram(tokens=' || i || ', longest=3)',"
                       " drafter_options = json_object('tokens', CAST(i AS TEXT), 'longest', '3'), lossless = i < 101");
    sample_facts_query(s, "ALTER TABLE temp.r DROP COLUMN i");
    sample_facts_query(s, "INSERT INTO run SELECT * FROM r");
    sample_facts_query(s, "CREATE TEMP TABLE q AS SELECT n.i, sequence.* FROM sequence JOIN n WHERE run = 2");
    sample_facts_query(s, "UPDATE q SET id = 1000 * i + id, run = i, decode_ns = new_tokens * (i + 1)");
    sample_facts_query(s, "ALTER TABLE temp.q DROP COLUMN i");
    sample_facts_query(s, "INSERT INTO sequence SELECT * FROM q");
    sample_facts_query(
        s, "CREATE TEMP TABLE t AS SELECT n.i, step.* FROM step JOIN sequence ON id = sequence JOIN n WHERE run = 2");
    sample_facts_query(s, "UPDATE t SET sequence = 1000 * i + sequence");
    sample_facts_query(s, "ALTER TABLE temp.t DROP COLUMN i");
    sample_facts_query(s, "INSERT INTO step SELECT * FROM t");
    sample_facts_query(s, "UPDATE sequence SET decode_ns = new_tokens * 200 WHERE run = 1");
    sample_facts_query(s, "UPDATE sequence SET decode_ns = new_tokens * 2 WHERE run = 2");
    return s;
}

static void of_many_cells_the_fastest_are_shown(void **state)
{
    (void)state;
    struct store *s = store_of_many();
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_contains(text, "; all: rejection; ngram(longest=3)\n");
    expect_contains(text, "\n      109 more cells, 20 of them lossy, with speedups from 15.4 down to 1.65\n");
    expect_contains(text, "These are 120 cells, so the tables of each comparison are left out");
    assert_null(strstr(text, "By prompt"));
    struct printed_rows t = printed_rows_of_summary(text);
    assert_int_equal(t.n, 11);
    printed_rows_free(&t);
    free(text);
    text = sample_report(s, (struct report_options){ .details = true, .top = REPORT_TOP_ALL });
    assert_null(strstr(text, "more cells"));
    assert_null(strstr(text, "left out"));
    expect_contains(text, "\n 120*");
    expect_contains(text, "By prompt");
    free(text);
    store_close(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, test_directory_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(names_have_what_differs),
        TEST(a_name_that_its_options_do_not_make_stays_as_it_is),
        TEST(of_many_cells_the_fastest_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
