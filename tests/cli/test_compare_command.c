// test_compare_command.c - `compare` from outside: the rows of files in the forms of eight programs (tests/cases/make_compare.py), a database beside
// its own exports, which rows get a speedup, the printed table (golden file cases/compare.txt), and mistakes.
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/results/sample_facts.h"
#include "tests/support/file_write.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

static bool write_golden;

static int set_up(void **state)
{
    return chdir(CASES "/compare"); // the files have plain names in what is printed
}

static int tear_down(void **state)
{
    test_directory_remove();
    return 0;
}

static bool same(const struct json *a, const struct json *b)
{
    if (json_is_number(b))
        return json_is_number(a) && fabs(json_number(a) - json_number(b)) <= 1e-9 * fmax(1, fabs(json_number(b)));
    if (json_is_array(b)) {
        bool all = json_count(a) == json_count(b);
        for (size_t i = 0; all && i < json_count(b); i++)
            all = same(json_at(a, i), json_at(b, i));
        return all;
    }
    return json_is_null(b) ? json_is_null(a) : strcmp(json_text(a), json_text(b)) == 0;
}

static void expect_row(const struct json *row, const struct json *expected)
{
    for (void *at = json_first(expected); at != NULL; at = json_next(expected, at))
        if (!same(json_get(row, json_key(at)), json_value(at))) {
            char *found =
                     json_get(row, json_key(at)) != NULL ? json_write(json_get(row, json_key(at))) : xstrdup("nothing"),
                 *wanted = json_write(json_value(at));
            fail_msg("%s: %s: found %s, expected %s", json_text(json_get(expected, "file")), json_key(at), found,
                     wanted);
        }
}

// A line of JSON Lines as JSON; *text moves behind it.
static struct json *next_line(char **text)
{
    struct error err;
    const size_t n = strcspn(*text, "\n");
    struct json *o = json_parse(*text, n, "line", &err);
    assert_ok(o != NULL, err);
    *text += n + 1;
    return o;
}

static const char files[] =
    "vllm_serve.jsonl vllm_plain.json vllm_latency.json vllm_throughput.json sglang.jsonl llama_server.jsonl spec_bench.jsonl"
    " spec_bench_plain.jsonl profile.json llama_bench.json llama_bench.jsonl llama_bench.csv";

static void rows_equal_those_that_plain_loops_make(void **state)
{
    struct child_result r = child_run("compare --jsonl %s", files);
    struct json *expected = golden_json("compare/expected.json");
    child_expect_success(&r, "compare");
    char *at = r.out;
    for (size_t i = 0; i < json_count(expected); i++) {
        struct json *row = next_line(&at);
        expect_row(row, json_at(expected, i));
        json_free(row);
    }
    assert_int_equal(*at, '\0');
    json_free(expected);
    child_result_free(&r);
}

static void printed_comparisons_are_the_reviewed_text(void **state)
{
    static const char *const commands[] = {
        "compare vllm_serve.jsonl vllm_plain.json sglang.jsonl vllm_latency.json --baseline plain",
        "compare spec_bench.jsonl spec_bench_plain.jsonl llama_bench.json profile.json llama_server.jsonl --baseline 2",
        "compare vllm_serve.jsonl vllm_plain.json --baseline vllm_plain.json --markdown",
        "compare spec_bench.jsonl --csv",
    };
    struct text all = { 0 };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct child_result r = child_run("%s", commands[i]);
        child_expect_success(&r, commands[i]);
        text_printf(&all, "$ speclab %s\n%s\n", commands[i], r.out);
        child_result_free(&r);
    }
    char *plain = xstrdup(all.s), *to = plain;
    for (const char *from = all.s; *from != '\0'; from++) // CSV ends its lines with \r\n
        if (*from != '\r')
            *to++ = *from;
    *to = '\0';
    assert_golden_file("compare.txt", plain, write_golden);
    free(plain);
    free(all.s);
}

// Runs 1 to 6 of sample_facts.h: two comparisons, with a `none` each.
static void a_database_is_compared_within_its_pairs(void **state)
{
    struct sample_facts *m = sample_facts_create(5, 6, 2, 1);
    struct store *s = sample_store(m);
    struct child_result r = child_run("compare %s --jsonl --baseline 1", sample_store_path());
    child_expect_success(&r, "compare");
    char *at = r.out;
    for (int run = 1; run <= SAMPLE_RUNS; run++) {
        struct json *row = next_line(&at), *speedup = json_get(row, "speedup");
        char *sql = xformat("SELECT speedup FROM speed WHERE run = %d", run);
        const double paired = sample_facts_query(s, sql);
        const bool in_pairs = json_bool(json_get(row, "speedup_in_pairs"));
        assert_int_equal(in_pairs, run == 2 || run == 3 || run == 4);
        if (in_pairs)
            assert_true(fabs(json_number(speedup) - paired) < 1e-12);
        else
            assert_true(json_is_null(speedup));
        if (run > 4)
            assert_string_equal(json_text(json_get(row, "differs")), "definition of tokens/s, batch");
        free(sql);
        json_free(row);
    }
    child_result_free(&r);
    store_close(s);
    sample_facts_free(m);
}

static void expect_in_pairs(const char *baseline, int run, bool expected)
{
    struct child_result r = child_run("compare %s --jsonl --baseline %s", sample_store_path(), baseline);
    child_expect_success(&r, "compare");
    char *at = r.out;
    for (int i = 1; i <= run; i++) {
        struct json *row = next_line(&at);
        if (i == run) {
            assert_int_equal(json_bool(json_get(row, "speedup_in_pairs")), expected);
            assert_int_equal(json_is_null(json_get(row, "not_stated")), expected);
        }
        json_free(row);
    }
    child_result_free(&r);
}

// A pair has a `none` for each rule. The speedup of a run within pairs is over that of its own rule, and over no other.
static void the_none_of_another_rule_is_not_in_pairs(void **state)
{
    struct sample_facts *m = sample_facts_create(5, 6, 2, 1);
    m->run[LOOKUP].drafter = m->run[LOOKUP].drafter_kind = "none";
    m->run[LOOKUP].rule = m->run[LOSSY].rule;
    struct store *s = sample_store(m);
    expect_in_pairs("1", 3, true);
    expect_in_pairs("1", 4, false);
    expect_in_pairs("2", 3, false);
    expect_in_pairs("2", 4, true);
    store_close(s);
    sample_facts_free(m);
}

// Tokens/s of a run over its steps with both slots in use, by a plain loop.
static double steady_speed(const struct sample_facts *m, int run)
{
    double tokens = 0, ns = 0;
    for (int i = 0; i < m->n; i++) {
        const struct sample_sequence *q = &m->sequence[i];
        for (int k = 0; q->run == run && k < q->row.n_steps; k++)
            if (q->step[k].batch == 2) {
                tokens += q->step_tokens[k];
                ns += (double)(q->step[k].propose_ns + q->step[k].verify_ns + q->step[k].advance_ns) / 2;
            }
    }
    return 1e9 * tokens / ns;
}

// Runs 5 and 6 are batches of two; each text's last step is alone in its pass, and takes ten times as long.
static void a_batch_is_compared_in_steady_state(void **state)
{
    struct sample_facts *m = sample_facts_create(5, 6, 2, 1);
    for (int i = 0; i < m->n; i++) {
        struct sample_sequence *q = &m->sequence[i];
        struct step_row *last = &q->step[q->row.n_steps - 1];
        if (q->run < PAIR_NONE)
            continue;
        last->batch = 1;
        last->verify_ns *= 10;
        q->row.decode_ns += last->verify_ns;
    }
    struct store *s = sample_store(m);
    struct child_result r = child_run("compare %s --jsonl --baseline 5", sample_store_path());
    child_expect_success(&r, "compare");
    char *at = r.out;
    for (int run = NONE; run <= PAIR_LOOKUP; run++) {
        struct json *row = next_line(&at);
        const double speed = json_number(json_get(row, "tokens_per_s"));
        if (run >= PAIR_NONE)
            assert_true(fabs(speed / steady_speed(m, run) - 1) < 1e-12);
        assert_int_equal(strstr(json_text(json_get(row, "tokens_per_s_is")), "steady state") != NULL, run >= PAIR_NONE);
        if (run == PAIR_LOOKUP) {
            const double speedup = json_number(json_get(row, "speedup"));
            assert_true(json_bool(json_get(row, "speedup_in_pairs")));
            assert_true(fabs(speedup / (steady_speed(m, run) / steady_speed(m, PAIR_NONE)) - 1) < 1e-12);
        }
        json_free(row);
    }
    child_result_free(&r);
    store_close(s);
    sample_facts_free(m);
}

// What `report --export` writes is read back: the same acceptance and, in vLLM's form, the throughput with prefill.
static void exports_are_read_back(void **state)
{
    struct sample_facts *m = sample_facts_create(5, 6, 2, 1);
    struct store *s = sample_store(m);
    static const struct {
        const char *form, *ending, *length;
    } form[] = {
        { "spec-bench", ".jsonl", "(SELECT mean_accepted_tokens FROM spec_bench WHERE run = 2)" },
        { "vllm", ".json", "(SELECT acceptance_length FROM vllm_metrics WHERE run = 2)" },
        { "sglang", ".jsonl", "(SELECT accept_length FROM sglang_metrics WHERE run = 2)" },
        { "nvidia", ".speculation_profile.json",
          "(SELECT round(mean_accept_length, 6) FROM nvidia_profile WHERE run = 2)" },
    };
    for (size_t i = 0; i < sizeof(form) / sizeof(form[0]); i++) {
        char *folder = test_path(form[i].form), *name = NULL;
        struct child_result r = child_run("report --db %s --export %s %s", sample_store_path(), form[i].form, folder);
        child_expect_success(&r, "report");
        for (char *line = strtok(r.out, "\n"); line != NULL; line = strtok(NULL, "\n"))
            if (strstr(line, "-run2-") != NULL && ends_with(line, form[i].ending))
                name = xstrdup(line);
        assert_non_null(name);
        struct child_result c = child_run("compare --jsonl %s", name);
        child_expect_success(&c, "compare");
        char *at = c.out, *sql = xformat("SELECT %s", form[i].length);
        struct json *row = next_line(&at);
        assert_true(fabs(json_number(json_get(row, "acceptance_length")) - sample_facts_query(s, sql)) < 1e-9);
        json_free(row);
        free(sql);
        child_result_free(&c);
        child_result_free(&r);
        free(name);
        free(folder);
    }
    store_close(s);
    sample_facts_free(m);
}

// A name is a text in a cell, whatever signs it has; a file's need not be UTF-8.
static void names_in_markdown_are_escaped(void **state)
{
    char *path = test_path("caf\xE9|.json");
    file_write(path, "{\"output_throughput\": 2, \"total_token_throughput\": 3, \"model_id\": \"m\\\\|_\\u001b[1m\","
                     " \"speclab\": {\"drafter\": \"a<b>`x|y\", \"lossless\": false}}");
    struct child_result r = child_run("compare --markdown '%s'", path);
    child_expect_success(&r, "compare");
    if (strstr(r.out, "caf\xEF\xBF\xBD\\|.json | speclab, vLLM's form | m\\\\\\|\\_ \\[1m | a\\<b>\\`x\\|y\\* | - |") ==
        NULL)
        fail_msg("%s", r.out);
    child_result_free(&r);
    free(path);
}

// Columns are counted in characters: 21 of two bytes fit, and the figures stand where an ASCII name has them.
static void columns_are_characters(void **state)
{
    const char *const name[] = { "aaaaaaaaaaaaaaaaaaaaa",
                                 "\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4"
                                 "\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4"
                                 "\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4" };
    char *path = test_path("names.json");
    for (int i = 0; i < 2; i++) {
        char *text = xformat(
                 "{\"output_throughput\": 2, \"total_token_throughput\": 3, \"speclab\": {\"drafter\": \"%s\"}}",
                 name[i]),
             *row = xformat("\n  1  %s%*s    -     2.000", name[i], 8, "");
        file_write(path, text);
        struct child_result r = child_run("compare '%s'", path);
        child_expect_success(&r, "compare");
        if (strstr(r.out, row) == NULL)
            fail_msg("%s", r.out);
        child_result_free(&r);
        free(row);
        free(text);
    }
    free(path);
}

// ---- mistakes

static void expect_refused(const char *text, const char *with)
{
    char *path = test_path("wrong"), *words = xformat("compare %s", path), *said = xformat("%s%s", path, with);
    file_write(path, text);
    child_expect_error(2, said, words);
    free(said);
    free(words);
    free(path);
}

static void wrong_files_are_named_with_line_and_key(void **state)
{
    static const struct {
        const char *text, *with;
    } wrong[] = {
        { "{\"timings\": 1}\n", ": an object with other keys" },
        { "", ": not JSON; expected results of vllm bench serve" },
        { "tokens per second: 12\n", ": not JSON; expected results of" },
        { "{\"output_throughput\": 1, \"total_token_throughput\": 2, \"max_concurrency\": 1e30}",
          ": max_concurrency: expected a count up to 10^15, found 1e+30" },
        { "{\"output_throughput\": NaN, \"total_token_throughput\": \"NaN\"}",
          ": output_throughput: expected a number of at least 0, found none" },
        { "[]", ": no results; expected results of" },
        { "[1]", ": not an object; expected results of" },
        { "{\"speed\": 3}", ": an object with other keys; expected results of" },
        { "{\n \"output_throughput\": 3,\n \"total_token_throughput\": }", ":3:" },
        { "{\"question_id\": 1, \"choices\": []}\n{\"question_id\": 2\n", ":2:" },
        { "{\"question_id\": 1, \"choices\": [{}]}", ": choices[0].new_tokens: expected an array of numbers" },
        { "{\"question_id\": 1, \"choices\": [{\"new_tokens\": [3], \"wall_time\": [0], \"accept_lengths\": [3]}]}",
          ": choices[0].wall_time: expected seconds above 0" },
        { "{\"question_id\": 1, \"choices\": [{\"new_tokens\": [\"3\"], \"wall_time\": [1], \"accept_lengths\": []}]}",
          ": choices[0].new_tokens[0]: expected a number of at least 0" },
        { "{\"avg_latency\": 1, \"latencies\": []}\n{\"elapsed_time\": 1, \"tokens_per_second\": 2}\n",
          ":2: expected results of vllm bench latency as before, found those of vllm bench throughput" },
        { "{\"output_throughput\": \"fast\", \"total_token_throughput\": 2}",
          ": output_throughput: expected a number of at least 0, found a text" },
        { "{\"output_throughput\": -1, \"total_token_throughput\": 2}",
          ": output_throughput: expected a number of at least 0, found a number below 0" },
        { "{\"output_throughput\": null, \"total_token_throughput\": 2}",
          ": output_throughput: expected a number of at least 0, found none" },
        { "{\"output_throughput\": 1, \"total_token_throughput\": 2, \"spec_decode_per_position_acceptance_rates\": [0.5, 7]}",
          ": spec_decode_per_position_acceptance_rates[1]: expected a number from 0 to 1" },
        { "{\"timings\": {\"predicted_n\": 5}}", ": predicted_ms: expected a number of at least 0, found none" },
        { "{\"timings\": {\"predicted_n\": 5, \"predicted_ms\": 0, \"prompt_n\": 1}}",
          ": predicted_ms: expected a time above 0" },
        { "build_commit,avg_ts\n\"a\",\"1\",\"2\"\n", ":2: expected 2 fields, found more" },
        { "build_commit,avg_ts\n\"a\"\n", ":2: expected 2 fields, found 1" },
        { "build_commit,avg_ts\n\"a\",\"1\"\n", ":2: n_prompt: expected a number of at least 0, found none" },
        { "| model | size |\n", ": a Markdown table cannot be read: run llama-bench with -o json, jsonl or csv" },
        { "CREATE TABLE IF NOT EXISTS llama_bench (\n", ": SQL cannot be read: run llama-bench with -o json" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_refused(wrong[i].text, wrong[i].with);
}

static void mistakes_are_refused(void **state)
{
    child_expect_error(2, "nowhere.json: No such file or directory", "compare nowhere.json");
    child_expect_error(2, "/: ", "compare /");
    child_expect_error(2, "missing argument", "compare");
    child_expect_error(2, "--csv, --jsonl and --markdown exclude each other", "compare profile.json --csv --jsonl");
    child_expect_error(
        2,
        "--baseline 9: expected the number of a row (1 to 1), a file with one row, or a part of one method: no row has this",
        "compare profile.json --baseline 9");
    child_expect_error(2, "--baseline eagle3: expected the number of a row (1 to 3)",
                       "compare vllm_serve.jsonl profile.json --baseline eagle3");
    child_expect_error(2, "several rows have this", "compare vllm_serve.jsonl --baseline vllm_serve.jsonl");
}

int main(int argc, char **argv)
{
    write_golden = argc == 2 && strcmp(argv[1], "write") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_equal_those_that_plain_loops_make),
        cmocka_unit_test(printed_comparisons_are_the_reviewed_text),
        cmocka_unit_test_teardown(a_database_is_compared_within_its_pairs, tear_down),
        cmocka_unit_test_teardown(the_none_of_another_rule_is_not_in_pairs, tear_down),
        cmocka_unit_test_teardown(a_batch_is_compared_in_steady_state, tear_down),
        cmocka_unit_test_teardown(exports_are_read_back, tear_down),
        cmocka_unit_test(names_in_markdown_are_escaped),
        cmocka_unit_test(columns_are_characters),
        cmocka_unit_test(wrong_files_are_named_with_line_and_key),
        cmocka_unit_test(mistakes_are_refused),
    };
    return child_is_present() ? cmocka_run_group_tests(tests, set_up, tear_down) : child_is_missing();
}
