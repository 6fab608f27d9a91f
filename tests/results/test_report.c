// test_report.c - reports of synthetic facts: 80 columns with any names, the numbers of the views, and exports that can
// be read back.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/store.h"
#include "tests/support/file_write.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"
#include "tests/support/check.h"
#include "tests/results/sample_facts.h"

static void expect_fits(const char *text, int width)
{
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        int characters = 0;
        for (size_t i = 0; i < n; i++)
            characters += ((unsigned char)line[i] & 0xC0) != 0x80;
        if (characters > width)
            fail_msg("%d columns: %.*s", characters, (int)n, line);
        if (n > 0 && line[n - 1] == ' ')
            fail_msg("trailing blank: %.*s|", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void the_table_has_the_views_numbers(void **state)
{
    struct sample_facts *m = sample_facts_create(3, 6, 2, 2);
    struct store *s = sample_store(m);
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_fits(text, 80);

    expect_contains(text, "synthetic (1 of 2)\n");
    expect_contains(text, "target     smollm2-135m-instruct (weights q4_1, activations f32)\n");
    expect_contains(text, "sampling   temperature=0\n");
    expect_contains(text, "limits     new_tokens: 40, context: 512\n");
    expect_contains(text, "decoding   batch 1, seed 7, 2 repeats\n");
    expect_contains(text, "machine    AMD EPYC, avx2, 2 threads\n");
    expect_contains(text, "  2  ngram(longest=3, tokens=8); rejection\n");
    expect_contains(
        text, "  4* ngram(longest=3, tokens=8); typical(epsilon=0.3) - LOSSY - UNFINISHED, 24\n     texts so far\n");
    expect_contains(text, "  2  all 24 equal none's\n");
    expect_contains(text, "4 of 24");
    expect_contains(text, "* LOSSY    the rule changes");

    // A row of each table, formatted from the views.
    char *row = xformat("  2 %9.0f%8.0f%7.2f", sample_facts_query(s, "SELECT tokens_per_s FROM speed WHERE run = 2"),
                        sample_facts_query(s, "SELECT end_to_end_tokens_per_s FROM speed WHERE run = 2"),
                        sample_facts_query(s, "SELECT speedup FROM speed WHERE run = 2"));
    expect_contains(text, row);
    free(row);
    row = xformat("%6.2f%7.2f%7.0f%5.0f", sample_facts_query(s, "SELECT speedup_geometric FROM speed WHERE run = 2"),
                  sample_facts_query(s, "SELECT tokens_per_step FROM steps WHERE run = 2"),
                  100 * sample_facts_query(s, "SELECT propose_share FROM timing WHERE run = 2"),
                  100 * sample_facts_query(s, "SELECT verify_share FROM timing WHERE run = 2"));
    expect_contains(text, row);
    free(row);
    row = xformat("  2 %8.0f%10.0f%10.0f%5.0f ", sample_facts_query(s, "SELECT drafts FROM steps WHERE run = 2"),
                  sample_facts_query(s, "SELECT drafted_tokens FROM steps WHERE run = 2"),
                  sample_facts_query(s, "SELECT accepted_tokens FROM steps WHERE run = 2"),
                  100 * sample_facts_query(s, "SELECT acceptance_rate FROM vllm_metrics WHERE run = 2"));
    for (int i = 0; i < 5; i++) {
        char *rate = xformat("SELECT rate FROM acceptance WHERE run = 2 AND depth = %d", i + 1);
        char *more = xformat("%s  %.2f", row, sample_facts_query(s, rate));
        memmove(strrchr(more, '.') - 1, strrchr(more, '.'), strlen(strrchr(more, '.')) + 1);
        free(row);
        free(rate);
        row = xformat("%s", more);
        free(more);
    }
    expect_contains(text, row);
    free(row);
    free(text);
    store_close(s);
    sample_facts_free(m);
}

static void long_names_are_wrapped(void **state)
{
    struct sample_facts *m = sample_facts_create(4, 3, 1, 1);
    char *drafter = xcalloc(1, 4000), *word = xcalloc(1, 1000);
    for (int i = 0; i < 40; i++)
        strcat(drafter, "an option with caf\xC3\xA9s=[1, 2, 3], ");
    for (int i = 0; i < 150; i++)
        strcat(word, "\xC3\xA9\xE2\x82\xAC");
    for (int i = 0; i < SAMPLE_RUNS; i++) {
        m->run[i].experiment = word;
        m->run[i].target = word;
        m->run[i].machine = i == 2 ? "another machine" : word;
        m->run[i].prompts = drafter;
        m->run[i].sampling =
            "temperature=0.0, top_p=0.95, top_k=40, min_p=0.0125, repetition_penalty=1.1000001, logit_bias={1: 2}";
        m->run[i].seed = UINT64_MAX;
        m->run[i].marked_inflated = true;
    }
    m->run[LOOKUP].drafter = drafter;
    m->run[LOSSY].rule = word;
    for (int i = 0; i < m->n; i++) {
        m->sequence[i].row.prompt_id = word;
        m->sequence[i].row.category = m->sequence[i].row.prompt == 0 ? word : "short";
        for (int k = 0; k < m->sequence[i].row.n_steps; k++)
            m->sequence[i].step[k].verify_ns *= 100;
    }
    struct store *s = sample_store(m);
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_fits(text, 80);
    expect_contains(text, "seed 18446744073709551615");
    expect_contains(text, "INFLATED TARGET");
    expect_contains(text, "another machine in run 3");
    free(text);
    for (int width = 1; width < 80; width += 13) { // too narrow for a table: it is as narrow as it can be, and ends
        text = sample_report(s, (struct report_options){ .width = width });
        expect_fits(text, 80);
        free(text);
    }
    text = sample_report(s, (struct report_options){ .width = 120 });
    expect_fits(text, 120);
    free(text);
    free(drafter);
    free(word);
    store_close(s);
    sample_facts_free(m);
}

static void a_cache_that_is_not_f32_is_named(void **state)
{
    struct sample_facts *m = sample_facts_create(3, 2, 1, 1);
    struct store *s = sample_store(m);
    sample_facts_query(s, "UPDATE run SET cache = 'q8_0', activations = 'int8'");
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_contains(text, "target     smollm2-135m-instruct (weights q4_1, activations int8, cache q8_0)\n");
    free(text);
    store_close(s);
    sample_facts_free(m);
}

// A category of three or more prompts has an interval, which contains its speedup.
static void categories_of_three_prompts_have_intervals(void **state)
{
    struct sample_facts *m = sample_facts_create(4, 7, 1, 1);
    for (int i = 0; i < m->n; i++)
        m->sequence[i].row.category = m->sequence[i].row.prompt < 2 ? "few" : "many";
    struct store *s = sample_store(m);
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_fits(text, 80);
    expect_contains(text,
                    "\nSpeedup over none, by category, with 95 % intervals by prompt\nrun              prompts    2");
    const char *few = strstr(text, "\nfew                    2 "), *many = strstr(text, "\nmany                   5 ");
    assert_true(few != NULL && many != NULL);
    double value, low, high;
    assert_int_equal(sscanf(many + 25, "%lf [%lf, %lf]", &value, &low, &high), 3);
    assert_true(low <= value && value <= high);
    assert_true(strchr(few, '[') > strchr(few + 1, '\n'));
    free(text);
    store_close(s);
    sample_facts_free(m);
}

// Twelve cells: the table of categories comes in parts. Numbers from a thousandth to millions, and drafts deeper than
// shown.
static void many_runs_and_large_numbers_keep_their_columns(void **state)
{
    struct error err;
    struct store *s = sample_store(NULL);
    for (int run = 0; run < 13; run++) {
        char *cell = xformat("c%d", run);
        struct run_row r = { .experiment = "wide",
                             .cell = cell,
                             .peers = "p",
                             .settings = "{}",
                             .target = "t",
                             .target_hash = "h",
                             .drafter = run == 0 ? "none" : "deep",
                             .drafter_kind = run == 0 ? "none" : "deep",
                             .rule = "rejection",
                             .sampling = "temperature=0",
                             .device = "cpu",
                             .machine = "m",
                             .revision = "r",
                             .prompts = "p",
                             .model_type = "f32",
                             .activations = "f32",
                             .cache = "f32",
                             .lossless = run % 2 == 0,
                             .batch = 1 };
        int64_t id, pair;
        assert_true(store_run(s, &r, &id, &err));
        if (run == 0)
            for (int i = 0; i < 3; i++)
                assert_true(store_new_pair(s, "wide", &pair, &err));
        for (int prompt = 0; prompt < 3; prompt++) {
            int32_t token[21] = { 0 };
            struct step_row step = { .drafted = 20 * (run > 0),
                                     .depth = 20 * (run > 0),
                                     .accepted = 20 * (run > 0),
                                     .expected = NAN,
                                     .variance = NAN,
                                     .accepted_uncut = -1,
                                     .verify_ns = run * run * run * 100000L + 1,
                                     .batch = 1 };
            struct sequence_row q = { .prompt = prompt,
                                      .prompt_id = "1",
                                      .category = prompt == 0 ? "a" : "b",
                                      .pair = prompt + 1,
                                      .new_tokens = run > 0 ? 21 : 1,
                                      .decode_ns = run == 6 ? 1 : step.verify_ns * 1000,
                                      .token = token,
                                      .stop = "end",
                                      .step = &step,
                                      .n_steps = 1 };
            assert_true(store_sequence(s, id, &q, &err));
        }
        free(cell);
    }
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_fits(text, 80);
    expect_contains(text, "Drafts deeper than 8");
    expect_contains(text, "  1.0  1.0  1.0  1.0  1.0  1.0  1.0  1.0\n");
    free(text);
    store_close(s);
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
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_contains(
        text, "Texts compared with those of none\n  2  not comparable (sampled)\n  3  not comparable (sampled)\n");
    expect_contains(text, "Texts compared with those of none\n  6  all 4 equal none's\n");
    free(text);
    store_close(s);
    sample_facts_free(m);
}

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
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_fits(text, 80);
    expect_contains(text, "UNFINISHED, 0 texts so far");
    expect_contains(text, "nothing to compare with");
    free(text);
    for (int format = REPORT_CSV; format <= REPORT_JSONL; format++)
        free(sample_report(s, (struct report_options){ .format = format }));

    m->run[0].experiment = "second";
    assert_true(store_run(s, &m->run[0], &m->id[0], &err));
    assert_false(report_write(s, &(struct report_options){ .experiment = "third" }, out, &err));
    assert_non_null(strstr(err.text, "no experiment \"third\" in it (synthetic, second)"));
    text = sample_report(s, (struct report_options){ .experiment = "second" });
    assert_null(strstr(text, "synthetic"));
    free(text);
    fclose(out);
    store_close(s);
    sample_facts_free(m);
}

static void a_failed_write_is_an_error(void **state)
{
    struct error err;
    struct sample_facts *m = sample_facts_create(3, 2, 1, 1);
    struct store *s = sample_store(m);
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_false(report_write(s, &(struct report_options){ 0 }, full, &err));
    assert_non_null(strstr(err.text, "No space left on device"));
    fclose(full);
    store_close(s);
    sample_facts_free(m);
}

// ---- read back ----

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
    expect_fits(by_id, 97);
    expect_contains(by_id, "Compared with run 3: small(model=smollm2-135m-instruct, widths=[3, 2, 1]); rejection");
    expect_contains(by_id, "\n   4*");
    expect_contains(by_id, "        ngram; rejection; batch 2\n");
    assert_null(strstr(by_id, "\n   3 "));
    free(by_id);
    free(by_name);

    char *csv = sample_report(s, (struct report_options){ .against = "3", .format = REPORT_CSV });
    assert_int_equal(occurrences(csv, "\r\n"), 1 + SAMPLE_RUNS - 1);
    free(csv);
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
        TEST(the_table_has_the_views_numbers),
        TEST(long_names_are_wrapped),
        TEST(a_cache_that_is_not_f32_is_named),
        TEST(categories_of_three_prompts_have_intervals),
        TEST(many_runs_and_large_numbers_keep_their_columns),
        TEST(sampled_texts_are_compared_under_a_drafter_invariant_rule_only),
        TEST(an_experiment_without_texts_is_reported),
        TEST(a_failed_write_is_an_error),
        TEST(csv_is_read_back),
        TEST(json_lines_are_read_back),
        TEST(runs_are_compared_with_one_that_is_named),
        TEST(the_queries_of_the_results_folder_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
