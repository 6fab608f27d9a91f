// test_report.c - reports of synthetic facts as CSV, JSON Lines and JSON: words, errors, forms that can be read back.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/report_words.h"
#include "results/statistics/intervals.h"
#include "results/store.h"
#include "results/tally.h"
#include "tests/support/file_write.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"
#include "tests/support/check.h"
#include "tests/results/sample_facts.h"

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

// ---- words of JSON

static void expect_words(struct store *s, const char *words)
{
    char *text = sample_report(s, (struct report_options){ .format = REPORT_JSON });
    expect_contains(text, words);
    free(text);
}

static void settings_are_in_words(void **state)
{
    struct sample_facts *m = sample_facts_create(3, 2, 1, 2);
    struct store *s = sample_store(m);
    expect_words(s, "\"target\":\"smollm2-135m-instruct (weights q4_1, activations f32)\"");
    expect_words(s, "\"limits\":\"new_tokens: 40, context: 512\",\"decoding\":\"batch 1, seed 7, 2 repeats\"");
    sample_facts_query(s, "UPDATE run SET cache = 'q8_0', activations = 'int8', marked_inflated = 1, seed = -1");
    sample_facts_query(s, "UPDATE run SET machine = 'another' WHERE id = 3");
    expect_words(s, "(weights q4_1, activations int8, cache q8_0, marked as inflated)\"");
    expect_words(s, "seed 18446744073709551615");
    expect_words(s, "threads; another\"");
    store_close(s);
    sample_facts_free(m);
}

static void sampled_texts_are_compared_under_a_drafter_invariant_rule_only(void **state)
{
    struct sample_facts *m = sample_facts_create(3, 4, 1, 1);
    for (int i = 0; i < SAMPLE_RUNS; i++) {
        m->run[i].sampling = i < PAIR_NONE ? "temperature=0.7, top_p=0.95" : "temperature=1";
        if (i >= PAIR_NONE)
            m->run[i].drafter_invariant = true;
    }
    struct store *s = sample_store(m);
    char *text = sample_report(s, (struct report_options){ .format = REPORT_JSON });
    assert_int_equal(occurrences(text, "\"equal\":\"sampled\""), 3);
    assert_int_equal(occurrences(text, "\"equal\":\"4/4\""), 1);
    free(text);
    store_close(s);
    sample_facts_free(m);
}

// Run 2 has none's texts, except that token 3 of one second turn is another.
static void one_text_of_a_second_turn_differs(void **state)
{
    static const char differs[] = "\"first_difference_prompt\":\"HumanEval/82\",\"first_difference_turn\":1,"
                                  "\"first_difference_token\":3";
    struct sample_facts *m = sample_facts_create(3, 3, 2, 1);
    struct store *s = sample_store(m);
    sample_facts_query(
        s, "UPDATE sequence SET tokens = json_set(tokens, '$[3]', 99999) WHERE run = 2 AND prompt = 1 AND turn = 1");
    expect_words(s, "\"equal\":\"5/6\"");
    expect_words(s, differs);
    sample_facts_query(s, "UPDATE run SET sampling = 'top_k=2'");
    char *text = sample_report(s, (struct report_options){ .format = REPORT_JSON });
    assert_int_equal(occurrences(text, "\"equal\":\"sampled\""), 4);
    free(text);
    sample_facts_query(s, "UPDATE run SET sampling = 'greedy'");
    expect_words(s, "\"equal\":\"5/6\"");
    store_close(s);
    sample_facts_free(m);
}

// ---- errors

static void an_experiment_without_texts_is_reported(void **state)
{
    struct error err;
    struct sample_facts *m = sample_facts_create(3, 1, 1, 1);
    struct store *s = sample_store(NULL);
    FILE *out = fopen("/dev/null", "w");
    assert_false(report_write(s, &(struct report_options){ 0 }, out, &err));
    assert_non_null(strstr(err.text, "no experiment has been run"));
    for (int i = 0; i < SAMPLE_RUNS; i++)
        assert_true(store_run(s, &m->run[i], &m->id[i], &err));
    expect_words(s, " - UNFINISHED\"");
    expect_words(s, "\"equal\":\"-\"");
    for (int format = 0; format < REPORT_FORMATS; format++)
        free(sample_report(s, (struct report_options){ .format = format }));

    m->run[0].experiment = "second";
    assert_true(store_run(s, &m->run[0], &m->id[0], &err));
    assert_false(report_write(s, &(struct report_options){ .experiment = "third" }, out, &err));
    assert_non_null(strstr(err.text, "no experiment \"third\" in it (synthetic, second)"));
    char *text = sample_report(s, (struct report_options){ .experiment = "second" });
    assert_null(strstr(text, "synthetic"));
    free(text);
    fclose(out);
    store_close(s);
    sample_facts_free(m);
}

static void a_failed_write_is_an_error(void **state)
{
    struct store *s = sample_store_small();
    for (int f = 0; f < REPORT_FORMATS; f++) {
        struct error err = { "" };
        FILE *full = fopen("/dev/full", "w"); // accepts buffered writes, fails on flush
        assert_non_null(full);
        assert_false(report_write(s, &(struct report_options){ .format = (enum report_format)f }, full, &err));
        assert_non_null(strstr(err.text, "the report could not be written: No space left on device"));
        fclose(full);
    }
    store_close(s);
}

static void a_view_that_is_missing_is_an_error(void **state)
{
    static const char *const views[] = {
        "acceptance_by_prompt", "sums_by_prompt", "speed_by_prompt", "expected", "texts", "run_summary"
    };
    for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++)
        for (int f = 0; f < REPORT_FORMATS; f++) {
            struct error err = { "" };
            struct store *s = sample_store_small();
            FILE *out = fopen("/dev/null", "w");
            char *sql = xformat("DROP VIEW %s", views[i]);
            sample_facts_query(s, sql);
            free(sql);
            assert_false(report_write(s, &(struct report_options){ .format = (enum report_format)f }, out, &err));
            assert_non_null(strstr(err.text, views[i]));
            fclose(out);
            store_close(s);
            unlink(sample_store_path());
        }
}

// A report is of the runs that there are at its first query.
static void a_run_that_is_added_while_a_report_is_made_is_left_out(void **state)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "CREATE TEMP VIEW run_summary AS SELECT * FROM main.run_summary WHERE run <> 2");
    char *text = sample_report(s, (struct report_options){ .format = REPORT_JSON });
    expect_contains(text, "\"run\":3,");
    assert_null(strstr(text, "\"run\":2,"));
    free(text);
    store_close(s);
}

static void what_cannot_be_stored_is_an_error(void **state)
{
    struct store *s = sample_store_small();
    struct error err = { "" };
    double sum[1] = { 0 };
    struct exact_sums sums = { .sum = sum, .n = 1 };
    const struct exact_row row = { "e", "c", "s", "t", "d", "r", "t=1", "m", "v", true, 1, 1 };
    int64_t id = 0;
    assert_true(store_exact(s, &row, &id, &sums, &err) && id != 0);
    sample_facts_query(s, "DROP TABLE exact_test");
    sample_facts_query(s, "DROP TABLE exact_stream");
    sample_facts_query(s, "DROP TABLE exact");
    assert_false(store_exact(s, &row, &id, &sums, &err));
    assert_non_null(strstr(err.text, "exact"));
    store_close(s);
}

// ---- numbers

// Student's t of one degree of freedom is Cauchy's: tan(pi (0.975 - 0.5)).
static void two_prompts_have_an_interval_and_zero_sums_have_none(void **state)
{
    const double a[] = { 1, 3 }, b[] = { 2, 2 }, c[] = { 1, 1 }, d[] = { 4, 4 }, none[] = { 0, 0 };
    const double t = tan(M_PI * 0.475), half = t * sqrt(2 * (0.25 * 0.25 + 0.25 * 0.25));
    const struct interval i = interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ a, b, c, d },
                                          2); // 1 / 0.25; u = 1/4 - 1/2 - 1/2 + 1/2 and 3/4 - 1/2
    assert_true(i.value == 4 && fabs(i.high - 4 * exp(half)) < 1e-6 && fabs(i.low - 4 * exp(-half)) < 1e-6);
    assert_true(isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ none, b, c, d }, 2).value) &&
                isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ a, none, c, d }, 2).value));
    assert_true(isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ a, b, none, d }, 2).value) &&
                isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ a, b, c, none }, 2).value));
}

static void a_prompt_of_a_nanosecond_has_a_speedup(void **state)
{
    struct sample_facts *m = sample_facts_create(3, 3, 2, 1);
    struct store *s = sample_store(m);
    for (int ns = 0; ns < 2; ns++) {
        char *sql = xformat("UPDATE sequence SET decode_ns = %d * turn, prefill_ns = 0 WHERE run = 2", ns);
        sample_facts_query(s, sql);
        free(sql);
        sql = xformat(
            "SELECT count(*) = 3 AND count(speedup) = 3 * %d AND max(decode_ns) = %d FROM speed_by_prompt WHERE run = 2",
            ns, ns);
        sample_facts_hold(s, sql);
        free(sql);
    }
    store_close(s);
    sample_facts_free(m);
}

// ---- read back

// The next field of RFC 4180. *at moves beyond it and its comma or line end. *last: the last of its record.
static char *next_field(const char **at, bool *last)
{
    struct text field = { 0 };
    const char *c = *at;
    text_puts(&field, "");
    if (*c == '"') {
        for (c++; *c != '\0' && (*c != '"' || c[1] == '"'); c++) {
            c += *c == '"';
            text_add(&field, c, 1);
        }
        assert_int_equal(*c, '"');
        c++;
    } else {
        size_t n = strcspn(c, ",\r\n\"");
        text_add(&field, c, n);
        c += n;
    }
    *last = c[0] == '\r' && c[1] == '\n';
    assert_true(*last || *c == ',');
    *at = c + (*last ? 2 : 1);
    return field.s;
}

static void csv_is_read_back(void **state)
{
    struct sample_facts *m = sample_facts_create(8, 5, 1, 2);
    m->run[LOOKUP].drafter = "ngram, \"quoted\"\r\nand folded";
    struct store *s = sample_store(m);
    char *text = sample_report(s, (struct report_options){ .format = REPORT_CSV }), *name[160];
    const char *at = text;
    int columns = 0, rows = 0;
    for (bool last = false; !last; columns++)
        name[columns] = next_field(&at, &last);
    for (; *at != '\0'; rows++) {
        bool last = false;
        int run = -1, n = 0;
        for (; !last; n++) {
            char *field = next_field(&at, &last);
            if (n == 0)
                run = atoi(field);
            if (strcmp(name[n], "drafter") == 0)
                assert_string_equal(field, m->run[rows].drafter);
            char *sql = xformat("SELECT %s FROM run_summary WHERE run = %d", name[n], run);
            if (strcmp(name[n], "tokens_per_s") == 0 || strcmp(name[n], "speedup") == 0 ||
                strcmp(name[n], "new_tokens") == 0 || strcmp(name[n], "acceptance_rate") == 0 ||
                strcmp(name[n], "equal_texts") == 0) {
                double x = sample_facts_query(s, sql);
                assert_true(isnan(x) ? *field == '\0' : fabs(atof(field) - x) <= 1e-9 * fabs(x));
            }
            if (strncmp(name[n], "acceptance_", 11) == 0 && strlen(name[n]) == 12) {
                char *rate = xformat("SELECT rate FROM acceptance WHERE run = %d AND depth = %s", run, name[n] + 11);
                double x = sample_facts_query(s, rate);
                assert_true(isnan(x) ? *field == '\0' : fabs(atof(field) - x) <= 1e-9);
                free(rate);
            }
            free(sql);
            free(field);
        }
        assert_int_equal(n, columns);
    }
    assert_int_equal(rows, SAMPLE_RUNS);
    assert_string_equal(name[columns - 1], "acceptance_8_high");
    while (columns > 0)
        free(name[--columns]);
    free(text);
    store_close(s);
    sample_facts_free(m);
}

static void json_lines_are_read_back(void **state)
{
    struct error err;
    struct sample_facts *m = sample_facts_create(8, 5, 1, 2);
    struct store *s = sample_store(m);
    char *text = sample_report(s, (struct report_options){ .format = REPORT_JSONL });
    int rows = 0;
    for (char *line = text; *line != '\0'; rows++) {
        size_t n = strcspn(line, "\n");
        struct json *o = json_parse(line, n, "line", &err);
        assert_non_null(o);
        assert_int_equal(json_int(json_get(o, "run")), rows + 1);
        assert_string_equal(json_text(json_get(o, "drafter")), m->run[rows].drafter);
        assert_int_equal(json_bool(json_get(o, "lossless")), m->run[rows].lossless);
        assert_true(json_is_bool(json_get(o, "finished")));
        char *sql = xformat("SELECT speedup FROM run_summary WHERE run = %d", rows + 1);
        double x = sample_facts_query(s, sql), low = json_number(json_get(o, "speedup_low")),
               high = json_number(json_get(o, "speedup_high"));
        if (isnan(x)) {
            assert_true(json_is_null(json_get(o, "speedup")));
            assert_int_equal(json_count(json_get(o, "acceptance_by_position")), 0);
        } else {
            assert_true(fabs(json_number(json_get(o, "speedup")) - x) < 1e-12);
            assert_true(low < x && x < high);
            assert_true(json_count(json_get(o, "acceptance_by_position")) > 0);
        }
        free(sql);
        json_free(o);
        line += n + 1;
    }
    assert_int_equal(rows, SAMPLE_RUNS);
    free(text);
    store_close(s);
    sample_facts_free(m);
}

static void one_experiment_of_several_is_exported_alone(void **state)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "UPDATE run SET experiment = 'another' WHERE id = 2");
    for (int f = REPORT_CSV; f <= REPORT_JSONL; f++) {
        char *text =
            sample_report(s, (struct report_options){ .format = (enum report_format)f, .experiment = "another" });
        assert_int_equal(occurrences(text, "\n"), f == REPORT_CSV ? 2 : 1);
        assert_null(strstr(text, "synthetic"));
        free(text);
    }
    store_close(s);
}

static void fails_against(struct store *s, const char *run, const char *expected)
{
    struct error err = { "" };
    FILE *out = fopen("/dev/null", "w");
    assert_false(report_write(s, &(struct report_options){ .against = run }, out, &err));
    expect_contains(err.text, expected);
    fclose(out);
}

// Runs 2 and 4 differ in the pace of their steps and in drafts, on the same prompts and pairs; run 6 has other pairs.
static void runs_are_compared_with_one_that_is_named(void **state)
{
    struct error err;
    struct sample_facts *m = sample_facts_create(8, 12, 1, 2);
    struct store *s = sample_store(m);
    char *by_id = sample_report(s, (struct report_options){ .against = "3" }),
         *by_name = sample_report(s, (struct report_options){ .against = "widths=[3" });
    assert_string_equal(by_id, by_name);
    assert_int_equal(occurrences(by_id, "\r\n"), 1 + SAMPLE_RUNS - 1);
    assert_null(strstr(by_id, "\r\n3,"));
    free(by_id);
    free(by_name);
    char *lines = sample_report(s, (struct report_options){ .against = "3", .format = REPORT_JSONL });
    const char *end = strchr(lines, '\n');
    struct json *o = json_parse(lines, (size_t)(end - lines), "line", &err);
    assert_ok(o != NULL, err);
    const double
        speed = sample_facts_query(
            s,
            "SELECT 1.0 * sum(new_tokens) / sum(decode_ns) / (1.0 * sum(against_new_tokens) / sum(against_decode_ns))"
            " FROM against_by_slice WHERE (run, against, in_pairs) = (1, 3, 1)"),
        found = json_number(json_get(o, "speed_ratio"));
    assert_int_equal(json_int(json_get(o, "run")), 1);
    assert_int_equal(json_int(json_get(o, "prompts")), 12);
    assert_true(json_bool(json_get(o, "in_pairs")));
    assert_true(fabs(found - speed) < 1e-12 && json_number(json_get(o, "speed_ratio_low")) < speed &&
                json_number(json_get(o, "speed_ratio_high")) > speed);
    json_free(o);
    free(lines);

    fails_against(s, "ngram",
                  "--against ngram: the drafters of runs 2, 4, 6 have this in their names: expected a run's number");
    fails_against(s, "medusa",
                  "--against medusa: no run has this number, and no drafter this in its name (runs: 1, 2, 3, 4, 5, 6)");
    fails_against(s, "17", "no run has this number");
    sample_facts_query(s, "UPDATE run SET prompts = 'others' WHERE id = 3");
    sample_facts_query(s, "UPDATE sequence SET pair = (SELECT max(id) FROM pair) WHERE run = 3 AND repeat = 0");
    sample_facts_query(s, "DELETE FROM sequence WHERE run = 3 AND repeat = 1");
    fails_against(s, "3", "--against 3: no other run has decoded prompts of run 3 (");
    store_close(s);
    sample_facts_free(m);
}

static void the_queries_of_the_results_folder_run(void **state)
{
    extern const char by_category_sql[], losing_prompts_sql[], verify_cost_sql[];
    const char *const sql[] = { by_category_sql, losing_prompts_sql, verify_cost_sql };
    struct error err;
    struct sample_facts *m = sample_facts_create(8, 5, 2, 2);
    struct store *s = sample_store(m);
    for (int i = 0; i < 3; i++) {
        int rows = 0;
        struct query *q = query_open(s, sql[i]);
        while (query_next(q))
            rows++;
        assert_ok(query_close(q, &err), err);
        assert_true(rows > 0 || i == 1);
    }
    store_close(s);
    sample_facts_free(m);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, test_directory_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(names_have_what_differs),
        TEST(a_name_that_its_options_do_not_make_stays_as_it_is),
        TEST(settings_are_in_words),
        TEST(sampled_texts_are_compared_under_a_drafter_invariant_rule_only),
        TEST(one_text_of_a_second_turn_differs),
        TEST(an_experiment_without_texts_is_reported),
        TEST(a_failed_write_is_an_error),
        TEST(a_view_that_is_missing_is_an_error),
        TEST(a_run_that_is_added_while_a_report_is_made_is_left_out),
        TEST(what_cannot_be_stored_is_an_error),
        TEST(two_prompts_have_an_interval_and_zero_sums_have_none),
        TEST(a_prompt_of_a_nanosecond_has_a_speedup),
        TEST(csv_is_read_back),
        TEST(json_lines_are_read_back),
        TEST(one_experiment_of_several_is_exported_alone),
        TEST(runs_are_compared_with_one_that_is_named),
        TEST(the_queries_of_the_results_folder_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
