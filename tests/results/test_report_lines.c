// test_report_lines.c - lines of a report that only some databases have: expectations, acceptance under other rules, rates and
// speedups at the limits of their columns. SQL sets the facts; the expected lines are computed here.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/prose.h"
#include "results/report.h"
#include "results/store.h"
#include "results/tables/tables.h"
#include "tests/support/check.h"
#include "tests/results/sample_facts.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

struct facts {
    struct sample_facts *m;
    struct store *s;
};

static struct facts facts_open(int prompts)
{
    static int number;
    struct error err = { "" };
    char *name = xformat("facts%d.db", number++), *path = test_path(name);
    struct facts f = { sample_facts_create(3, prompts, 2, 1), store_open(path, &err) };
    assert_ok(f.s != NULL && sample_facts_store(f.m, f.s, &err), err);
    free(name);
    free(path);
    return f;
}

static void facts_close(struct facts *f)
{
    store_close(f->s);
    sample_facts_free(f->m);
}

static void set(struct facts *f, const char *sql)
{
    sample_facts_query(f->s, sql);
}

static char *report(struct facts *f)
{
    return sample_report(f->s, (struct report_options){ 0 });
}

#define EXPECTED "\nAccepted draft tokens and E[accepted | draft] under the rule\n"
#define BY_SOURCE "\nWho proposed the accepted draft tokens: share (accepted/drafted); a+b: both did\n"
#define BY_RULE "\nAccepted tokens per draft under each rule, for the same drafts (* lossy)\n"

#define OF_RUN_2 " WHERE drafted > 0 AND sequence IN (SELECT id FROM sequence WHERE run = 2)"

// No step is cut. n drafts, each with an expectation of `each` and a variance of `of_each`.
static void expectations_are_reported_and_compared_by_variance(void **state)
{
    struct facts f = facts_open(6);
    set(&f, "UPDATE step SET expected = NULL, variance = NULL, accepted_uncut = NULL");
    char *text = report(&f);
    assert_null(strstr(text, EXPECTED));
    free(text);
    set(&f, "UPDATE step SET accepted = 0, tokens = 1" OF_RUN_2);
    set(&f, "UPDATE step SET accepted = 1, tokens = 2" OF_RUN_2 " AND depth > 0");
    const double n = sample_facts_query(f.s, "SELECT count(*) FROM step" OF_RUN_2),
                 accepted = sample_facts_query(f.s, "SELECT sum(accepted) FROM step" OF_RUN_2);
    assert_true(n > 100 && accepted > 100);
    static const struct {
        double each, of_each;
        bool warns;
    } cases[] = { { 0.75, 0.25, true },   { 0.999, 0.25, false }, { 0.75, 0.01, false },
                  { 0.75, 0.001, false }, { 0.75, 0, false },     { 1.5, 0.25, true } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *sql = xformat("UPDATE step SET expected = %g, variance = %g" OF_RUN_2, cases[i].each, cases[i].of_each);
        set(&f, sql);
        const double expected = n * cases[i].each, variance = n * cases[i].of_each;
        const double z = (accepted - expected) / sqrt(variance);
        char *line = variance > 0 ? xformat("  2  %.0f accepted, %.1f expected, z = %.1f\n", accepted, expected, z)
                                  : xformat("  2  %.0f accepted, %.1f expected\n", accepted, expected);
        assert_true(cases[i].warns == (fabs(z) > 5 && variance >= 25));
        text = report(&f);
        assert_int_equal(occurrences(text, EXPECTED), 1);
        expect_contains(text, line);
        assert_int_equal(occurrences(text, "WARNING: more than 5 standard deviations"), cases[i].warns);
        free(text);
        free(line);
        free(sql);
    }
    facts_close(&f);
}

static void other_rules_are_listed_best_first(void **state)
{
    struct facts f = facts_open(2);
    set(&f, "DELETE FROM step_rule");
    char *text = report(&f);
    assert_null(strstr(text, BY_RULE));
    free(text);
    static const char one_draft[] =
        "INSERT INTO step_rule SELECT sequence, step, '%s', %d, %s, %s FROM step AS t" OF_RUN_2
        " AND (sequence, step) IN (SELECT sequence, step FROM step" OF_RUN_2
        " ORDER BY sequence, step LIMIT 1 OFFSET %d)";
    static const struct {
        const char *rule, *accepted[2], *first[2];
        int lossless;
    } rows[] = { { "rejection", { "1.25", "0.75" }, { "0.5", "0.25" }, 1 }, // two drafts: means 1, 0.375
                 { "typical", { "2", "2.5" }, { "0.875", "0.75" }, 0 },
                 { "match", { "0.5", "0.25" }, { "0.5", "0.25" }, 1 },
                 { "(bound)", { "NULL", "NULL" }, { "0.75", "0.5" }, 1 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int k = 0; k < 2; k++) {
            char *sql = xformat(one_draft, rows[i].rule, rows[i].lossless, rows[i].accepted[k], rows[i].first[k], k);
            set(&f, sql);
            free(sql);
        }
    assert_true(sample_facts_query(f.s, "SELECT count(*) FROM step_rule") == 8);
    text = report(&f);
    assert_int_equal(occurrences(text, BY_RULE), 1);
    expect_contains(text,
                    BY_RULE "  2  typical* 2.250, rejection 1.000, match 0.375; at least one accepted: 0.375,\n     "
                            "bound 0.625\n");
    free(text);
    set(&f, "DELETE FROM step_rule WHERE rule = '(bound)'");
    text = report(&f);
    expect_contains(text, BY_RULE "  2  typical* 2.250, rejection 1.000, match 0.375\n");
    free(text);
    set(&f, "DELETE FROM step_rule WHERE rule <> 'match'");
    text = report(&f);
    expect_contains(text, BY_RULE "  2  match 0.375\n");
    free(text);
    facts_close(&f);
}

static void who_drafted_is_listed_by_accepted_tokens(void **state)
{
    struct facts f = facts_open(2);
    char *text = report(&f);
    assert_null(strstr(text, BY_SOURCE)); // no drafter of drafters
    free(text);
    static const char one_step[] = "INSERT INTO step_source SELECT sequence, step, '%s', %d, %d FROM step AS t" OF_RUN_2
                                   " AND (sequence, step) IN (SELECT sequence, step FROM step" OF_RUN_2
                                   " ORDER BY sequence, step LIMIT 1 OFFSET %d)";
    static const struct {
        const char *source;
        int drafted, accepted, step;
    } rows[] = { { "ngram", 4, 1, 0 }, { "ngram+eagle3", 2, 2, 0 }, { "eagle3", 3, 2, 1 }, { "ngram", 5, 3, 1 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *sql = xformat(one_step, rows[i].source, rows[i].drafted, rows[i].accepted, rows[i].step);
        set(&f, sql);
        free(sql);
    }
    text = report(&f);
    expect_contains(text, BY_SOURCE "  2  ngram 50 % (4/9), eagle3 25 % (2/3), ngram+eagle3 25 % (2/2)\n");
    free(text);
    set(&f, "UPDATE step_source SET accepted = 0");
    text = report(&f);
    expect_contains(text, "ngram 0 % (0/9)");
    free(text);
    facts_close(&f);
}

static void rates_near_0_and_1_keep_three_characters(void **state)
{
    static const struct {
        int accepted, of; // drafts with an accepted token, of all
        const char *rate, *percent;
    } cases[] = { { 0, 250, ".00", "0" },    { 1, 250, "+0", "<1" },      { 2, 250, ".01", "1" },
                  { 247, 250, ".99", "99" }, { 249, 250, ">.99", "100" }, { 250, 250, "1.0", "100" },
                  { 1, 200, ".01", "0" },    { 199, 200, ">.99", "100" } };
    struct facts f = facts_open(26);
    set(&f, "DELETE FROM trial");
    set(&f,
        "UPDATE step SET drafted = 1, depth = 1, accepted = 0, tokens = 1, accepted_uncut = NULL, expected = NULL, variance = NULL");
    set(&f, "UPDATE step SET drafted = 0, depth = 0 WHERE sequence IN (SELECT id FROM sequence WHERE run <> 2)");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *sql = xformat("UPDATE step SET drafted = 0, depth = 0, accepted = 0, tokens = 1" OF_RUN_2
                            " AND (sequence, step) NOT IN (SELECT sequence, step FROM step" OF_RUN_2
                            " ORDER BY sequence, step LIMIT %d)",
                            cases[i].of);
        set(&f, sql);
        free(sql);
        assert_true(sample_facts_query(f.s, "SELECT count(*) FROM step" OF_RUN_2) == cases[i].of);
        sql = xformat(
            "UPDATE step SET accepted = rank <= %d, tokens = 1 + (rank <= %d) FROM (SELECT sequence AS s, step AS k,"
            " row_number() OVER (ORDER BY sequence, step) AS rank FROM step" OF_RUN_2
            ") AS o WHERE sequence = s AND step = k AND drafted > 0",
            cases[i].accepted, cases[i].accepted);
        set(&f, sql);
        assert_true(sample_facts_query(f.s, "SELECT sum(accepted) FROM step" OF_RUN_2) == cases[i].accepted);
        char *row = xformat("\n  2 %8d%10d%10d ", cases[i].of, cases[i].of, cases[i].accepted);
        char *text = report(&f), *at = strstr(text, row), percent[16] = "", shown[16] = "";
        if (at == NULL)
            fail_msg("no \"%s\" in:\n%s", row, text);
        assert_int_equal(sscanf(at + strlen(row), "%15s %15s", percent, shown), 2);
        assert_string_equal(percent, cases[i].percent);
        assert_string_equal(shown, cases[i].rate);
        free(text);
        free(row);
        free(sql);
    }
    facts_close(&f);
}

// ns per token of none and of the other run.
static void speedups_have_max_four_characters(void **state)
{
    static const struct {
        int none, other;
        const char *speedup;
    } cases[] = { { 20000000, 10000000, "2.00" }, { 20000000, 500000, "40.0" }, { 5997, 60, "100" },
                  { 20000000, 50000, "400" },     { 20000000, 4000, "5000" },   { 20000000, 2000, ">1e4" },
                  { 20000000, 40, ">1e4" } };
    struct facts f = facts_open(4);
    set(&f, "UPDATE sequence SET category = CASE WHEN prompt = 0 THEN 'other' ELSE 'kind' END");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *sql =
            xformat("UPDATE sequence SET decode_ns = iif(run = 2, %d, %d) * new_tokens", cases[i].other, cases[i].none);
        set(&f, sql);
        free(sql);
        char *text = report(&f), *at = strstr(text, "\nkind ");
        char shown[16] = "";
        assert_non_null(at);
        assert_int_equal(sscanf(at, " kind 3 %15s", shown), 1);
        assert_string_equal(shown, cases[i].speedup);
        free(text);
    }
    set(&f, "DELETE FROM sequence WHERE run = 1 AND category = 'kind'"); // nothing to compare with
    char *text = report(&f), *at = strstr(text, "\nkind "), shown[16] = "";
    assert_non_null(at);
    assert_int_equal(sscanf(at, " kind 3 %15s", shown), 1);
    assert_string_equal(shown, "-");
    free(text);
    facts_close(&f);
}

static void drafts_deeper_than_the_columns_have_a_note(void **state)
{
    static const char note[] = "\n           Drafts deeper than 8: see the view acceptance.\n";
    struct facts f = facts_open(2);
    char *text = report(&f);
    assert_null(strstr(text, note));
    free(text);
    set(&f, "UPDATE step SET depth = 9, drafted = 9" OF_RUN_2);
    text = report(&f);
    expect_contains(text, note);
    free(text);
    facts_close(&f);
}

// Run 2 has none's texts, except that token 3 of one second turn is another.
static void one_text_of_a_second_turn_differs(void **state)
{
    static const char words[] = "  2  differs: 1 of 6, first at token 4 (prompt HumanEval/82, turn 2)\n";
    struct facts f = facts_open(3);
    set(&f, "UPDATE sequence SET tokens = json_set(tokens, '$[3]', 99999) WHERE run = 2 AND prompt = 1 AND turn = 1");
    char *text = report(&f);
    expect_contains(text, words);
    free(text);
    set(&f, "UPDATE run SET sampling = 'top_k=2'");
    text = report(&f);
    expect_contains(text, "  2  not comparable (sampled)\n");
    free(text);
    set(&f, "UPDATE run SET sampling = 'greedy'");
    text = report(&f);
    expect_contains(text, words);
    free(text);
    facts_close(&f);
}

static void a_prompt_of_a_nanosecond_has_a_speedup(void **state)
{
    struct facts f = facts_open(3);
    for (int ns = 0; ns < 2; ns++) {
        char *sql = xformat("UPDATE sequence SET decode_ns = %d * turn, prefill_ns = 0 WHERE run = 2", ns);
        set(&f, sql);
        free(sql);
        sql = xformat(
            "SELECT count(*) = 3 AND count(speedup) = 3 * %d AND max(decode_ns) = %d FROM speed_by_prompt WHERE run = 2",
            ns, ns);
        sample_facts_hold(f.s, sql);
        free(sql);
    }
    facts_close(&f);
}

// A report is of the runs that there are at its first query.
static void a_run_that_is_added_while_a_report_is_made_is_left_out(void **state)
{
    struct facts f = facts_open(3);
    set(&f, "CREATE TEMP VIEW run_summary AS SELECT * FROM main.run_summary WHERE run <> 2");
    char *text = report(&f);
    expect_contains(text, "\n  3  small(");
    assert_null(strstr(text, "ngram(longest=3, tokens=8); rejection"));
    free(text);
    facts_close(&f);
}

static void a_view_that_is_missing_is_an_error(void **state)
{
    static const char *const views[] = { "by_rule",        "acceptance_by_prompt",
                                         "sums_by_prompt", "speed_by_prompt",
                                         "expected",       "texts" };
    for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++) {
        struct error err = { "" };
        struct facts f = facts_open(2);
        FILE *out = fopen("/dev/null", "w");
        char *sql = xformat("DROP VIEW %s", views[i]);
        set(&f, sql);
        free(sql);
        assert_false(report_write(f.s, &(struct report_options){ 0 }, out, &err));
        assert_non_null(strstr(err.text, views[i]));
        fclose(out);
        facts_close(&f);
    }
}

// Two columns of indentation and eight of words: four-letter words of two bytes a letter would not fit twice if bytes were counted.
static void lines_are_wrapped_by_characters(void **state)
{
    for (int width = 0; width <= 12; width++) {
        struct text t = { 0 };
        prose_paragraph(&t, 2, width, "", "\xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6 \xc3\xbc\xc3\xbc ab");
        assert_string_equal(t.s, "  \xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6 \xc3\xbc\xc3\xbc\n  ab\n");
        free(t.s);
    }
    struct text t = { 0 };
    prose_paragraph(
        &t, 4, 16, "  a",
        "  two  blanks  and a word \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4x  ");
    assert_string_equal(
        t.s,
        "  a two  blanks\n    and a word\n    \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\n    \xc3\xa4x\n");
    free(t.s);
}

// Each line of a long word costs a line, not the rest of the word: with the latter this takes minutes.
static void a_word_of_a_million_characters_is_cut_into_lines(void **state)
{
    enum { WORD = 4 << 20, WIDTH = 12, LINE = WIDTH - 2 };
    struct text words = { 0 }, t = { 0 };
    for (int i = 0; i < WORD; i++)
        text_add(&words, i % 7 == 0 ? "\xc3\xa4" : "x", i % 7 == 0 ? 2 : 1);
    alarm(60); // ends the program
    prose_paragraph(&t, 2, WIDTH, "", words.s);
    alarm(0);
    const char *at = t.s;
    int lines = 0, i = 0;
    for (; *at != '\0'; lines++) {
        assert_memory_equal(at, "  ", 2);
        at += 2;
        for (int k = 0; k < LINE && *at != '\n'; k++, i++)
            at += i % 7 == 0 ? 2 : 1;
        assert_int_equal(*at++, '\n');
    }
    assert_int_equal(i, WORD);
    assert_int_equal(lines, (WORD + LINE - 1) / LINE);
    free(words.s);
    free(t.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expectations_are_reported_and_compared_by_variance),
        cmocka_unit_test(other_rules_are_listed_best_first),
        cmocka_unit_test(who_drafted_is_listed_by_accepted_tokens),
        cmocka_unit_test(rates_near_0_and_1_keep_three_characters),
        cmocka_unit_test(speedups_have_max_four_characters),
        cmocka_unit_test(drafts_deeper_than_the_columns_have_a_note),
        cmocka_unit_test(one_text_of_a_second_turn_differs),
        cmocka_unit_test(a_prompt_of_a_nanosecond_has_a_speedup),
        cmocka_unit_test(a_run_that_is_added_while_a_report_is_made_is_left_out),
        cmocka_unit_test(a_view_that_is_missing_is_an_error),
        cmocka_unit_test(lines_are_wrapped_by_characters),
        cmocka_unit_test(a_word_of_a_million_characters_is_cut_into_lines),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
