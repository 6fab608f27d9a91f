// test_exports.c - the files of `report --export` have the keys of the forms that they are in, and the numbers of the views; golden acceptance
// lengths hold for the runs that they were written from.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/report.h"
#include "results/store.h"
#include "tests/results/sample_facts.h"
#include "tests/support/check.h"
#include "tests/support/printed_text.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct sample_facts *facts;
static struct store *s;
static char *folder;

static int set_up(void **state)
{
    facts = sample_facts_create(5, 6, 2, 1);
    s = sample_store(facts);
    folder = test_path("exports");
    return 0;
}

static int tear_down(void **state)
{
    store_close(s);
    sample_facts_free(facts);
    free(folder);
    test_directory_remove();
    return 0;
}

// The name of the file of a run (from 1) with this ending; NULL: there is none.
static char *file_of(enum report_format format, int run, const char *ending)
{
    char *text = sample_report(s, (struct report_options){ .format = format, .directory = folder }), *found = NULL;
    char *part = xformat("-run%d-", run);
    for (char *name = strtok(text, "\n"); name != NULL; name = strtok(NULL, "\n"))
        if (strstr(name, part) != NULL && ends_with(name, ending))
            found = xstrdup(name);
    free(part);
    free(text);
    return found;
}

static struct json *json_of(enum report_format format, int run, const char *ending)
{
    struct error err;
    char *path = file_of(format, run, ending);
    assert_non_null(path);
    struct json *o = json_read(path, &err);
    assert_ok(o != NULL, err);
    free(path);
    return o;
}

static double stored(const char *what, const char *view, int run)
{
    char *sql = xformat("SELECT %s FROM %s WHERE run = %d", what, view, run);
    const double x = sample_facts_query(s, sql);
    free(sql);
    return x;
}

static void expect_near(const struct json *o, const char *key, double x)
{
    const struct json *found = json_get(o, key);
    if (!json_is_number(found) || !(fabs(json_number(found) - x) <= 1e-9 * fmax(1e-3, fabs(x))))
        fail_msg("%s: found %.17g, expected %.17g", key, json_number(found), x);
}

static void expect_keys(const struct json *o, const char *const *key)
{
    for (; *key != NULL; key++)
        if (json_get(o, *key) == NULL)
            fail_msg("%s is missing", *key);
}

static void vllm_files_have_the_keys_of_bench_serve(void **state)
{
    static const char *const always[] = { "date",
                                          "endpoint_type",
                                          "backend",
                                          "label",
                                          "model_id",
                                          "tokenizer_id",
                                          "num_prompts",
                                          "request_rate",
                                          "burstiness",
                                          "max_concurrency",
                                          "duration",
                                          "completed",
                                          "failed",
                                          "total_input_tokens",
                                          "total_output_tokens",
                                          "request_throughput",
                                          "request_goodput",
                                          "output_throughput",
                                          "total_token_throughput",
                                          "mean_ttft_ms",
                                          "median_ttft_ms",
                                          "std_ttft_ms",
                                          "p99_ttft_ms",
                                          "mean_tpot_ms",
                                          "median_tpot_ms",
                                          "std_tpot_ms",
                                          "p99_tpot_ms",
                                          "mean_itl_ms",
                                          "median_itl_ms",
                                          "std_itl_ms",
                                          "p99_itl_ms",
                                          NULL };
    for (int run = 1; run <= SAMPLE_RUNS; run++) {
        struct json *o = json_of(REPORT_VLLM, run, ".json"),
                    *rates = json_get(o, "spec_decode_per_position_acceptance_rates");
        expect_keys(o, always);
        expect_near(o, "output_throughput", stored("end_to_end_tokens_per_s", "speed", run));
        expect_near(o, "median_ttft_ms", stored("max(p50_ns) FILTER (WHERE what = 'ttft') / 1e6", "latency", run));
        const double drafts = stored("num_drafts", "vllm_metrics", run);
        assert_int_equal(rates != NULL, !isnan(drafts));
        if (rates != NULL) {
            double sum = 0;
            for (size_t i = 0; i < json_count(rates); i++)
                sum += json_number(json_at(rates, i));
            expect_near(o, "spec_decode_num_drafts", drafts);
            expect_near(o, "spec_decode_acceptance_rate", 100 * stored("acceptance_rate", "vllm_metrics", run));
            expect_near(o, "spec_decode_acceptance_length", 1 + sum); // a property of their definitions
        }
        json_free(o);
    }
}

// As vLLM's fetch_spec_decode_metrics reads them: lines of vllm:spec_decode.. that end with _total before the labels.
static void vllm_counters_are_read_as_vllm_reads_them(void **state)
{
    assert_null(file_of(REPORT_VLLM, 1, ".prom")); // none
    char *path = file_of(REPORT_VLLM, 2, ".prom"), *line = NULL;
    size_t capacity = 0;
    double drafts = 0, drafted = 0, accepted = 0, by_position = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (getline(&line, &capacity, f) > 0) {
        double *to = strncmp(line, "vllm:spec_decode_num_drafts_total{", 34) == 0            ? &drafts
                     : strncmp(line, "vllm:spec_decode_num_draft_tokens_total{", 40) == 0    ? &drafted
                     : strncmp(line, "vllm:spec_decode_num_accepted_tokens_total{", 43) == 0 ? &accepted
                     : strncmp(line, "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=", 60) == 0
                         ? &by_position
                         : NULL;
        assert_true((to != NULL) == (line[0] != '#'));
        if (to != NULL)
            *to += strtod(strrchr(line, ' '), NULL);
    }
    fclose(f);
    assert_true(drafts == stored("num_drafts", "vllm_metrics", 2) &&
                drafted == stored("num_draft_tokens", "vllm_metrics", 2));
    assert_true(accepted == stored("num_accepted_tokens", "vllm_metrics", 2) && by_position == accepted);
    free(line);
    free(path);
}

static void sglang_files_have_the_keys_of_bench_serving(void **state)
{
    static const char *const keys[] = { "tag",
                                        "backend",
                                        "dataset_name",
                                        "request_rate",
                                        "max_concurrency",
                                        "duration",
                                        "completed",
                                        "total_input_tokens",
                                        "total_output_tokens",
                                        "request_throughput",
                                        "input_throughput",
                                        "output_throughput",
                                        "total_throughput",
                                        "mean_e2e_latency_ms",
                                        "mean_ttft_ms",
                                        "median_ttft_ms",
                                        "mean_tpot_ms",
                                        "mean_itl_ms",
                                        "concurrency",
                                        "accept_length",
                                        "server_info",
                                        NULL };
    struct json *o = json_of(REPORT_SGLANG, 3, ".jsonl"), *none = json_of(REPORT_SGLANG, 1, ".jsonl");
    expect_keys(o, keys);
    expect_keys(none, keys);
    expect_near(o, "accept_length", stored("tokens_per_step", "steps", 3));
    assert_true(json_is_null(json_get(none, "accept_length")));
    assert_true(stored("spec_accept_rate", "sglang_metrics", 3) <= stored("acceptance_rate", "vllm_metrics", 3));
    json_free(o);
    json_free(none);
    assert_null(file_of(REPORT_SGLANG, 1, ".prom"));
}

// Of at least `length` tokens, out of all: with gaps, as a survival function has them.
static double survival(const struct json *histogram, int length)
{
    double all = 0, some = 0;
    for (void *at = json_first(histogram); at != NULL; at = json_next(histogram, at)) {
        all += json_number(json_value(at));
        some += atoi(json_key(at)) >= length ? json_number(json_value(at)) : 0;
    }
    return some / all;
}

static void a_speculation_profile_follows_from_its_histogram(void **state)
{
    struct json *o = json_of(REPORT_NVIDIA, 2, ".speculation_profile.json"),
                *histogram = json_get(o, "acceptance_length_histogram");
    const struct json *marginal = json_get(o, "marginal_accept_rates"),
                      *conditional = json_get(o, "conditional_accept_rates");
    double before = 1, sum = 1;
    assert_int_equal(json_count(marginal), json_int(json_get(o, "num_speculative_tokens")));
    for (size_t i = 0; i < json_count(marginal); i++) {
        const double rate = survival(histogram, (int)i + 2);
        assert_true(fabs(json_number(json_at(marginal, i)) - rate) < 1e-6);
        assert_true(fabs(json_number(json_at(conditional, i)) - (before > 0 ? rate / before : 0)) < 1e-6);
        before = rate;
        sum += rate;
    }
    assert_true(fabs(json_number(json_get(o, "mean_accept_length")) - sum) < 1e-6);
    assert_true(json_bool(json_get(json_get(json_get(o, "validation"), "mean_consistency"), "passed")));
    json_free(o);
    assert_null(file_of(REPORT_NVIDIA, 1, ".speculation_profile.json"));
}

static void a_rule_about_whole_drafts_has_no_vectors(void **state)
{
    sample_facts_query(s, "UPDATE run SET rule = 'block' WHERE id = 2");
    struct json *o = json_of(REPORT_NVIDIA, 2, ".speculation_profile.json");
    assert_true(json_is_null(json_get(o, "marginal_accept_rates")) &&
                json_is_text(json_get(o, "vectors_unavailable_reason")));
    assert_string_equal(json_text(json_get(o, "verification_method")), "block");
    json_free(o);
    sample_facts_query(s, "UPDATE run SET rule = 'rejection' WHERE id = 2");
}

static char *checked(const char *golden, bool *within, struct error *err)
{
    char *text = NULL, *path = test_path("checked.json");
    size_t n;
    file_write(path, golden);
    FILE *out = open_memstream(&text, &n);
    const bool ok = report_golden(s, &(struct report_options){ 0 }, path, out, within, err);
    fclose(out);
    free(path);
    if (ok)
        return text;
    free(text);
    return NULL;
}

static void golden_lengths_hold_for_their_own_runs(void **state)
{
    struct error err;
    bool within;
    char *path = sample_report(s, (struct report_options){ .format = REPORT_GOLDEN, .directory = folder });
    path[strcspn(path, "\n")] = '\0';
    struct json *golden = json_read(path, &err);
    assert_ok(golden != NULL, err);
    assert_int_equal(json_count(json_get(golden, "acceptance_lengths")), 4); // two of the six are none
    char *written = json_write(golden), *text = checked(written, &within, &err);
    assert_non_null(text);
    assert_true(within && strstr(text, "OUTSIDE") == NULL);
    free(text);
    json_set(json_at(json_get(golden, "acceptance_lengths"), 0), "acceptance_length", json_new_number(9));
    free(written);
    written = json_write(golden);
    text = checked(written, &within, &err);
    assert_non_null(text);
    assert_true(!within && strstr(text, "OUTSIDE") != NULL);
    free(text);
    free(written);
    json_free(golden);
    free(path);
}

static void without_drafts_nothing_is_golden(void **state)
{
    struct error err = { "" };
    FILE *out = fopen("/dev/null", "w");
    sample_facts_query(s, "UPDATE run SET drafter_kind = 'none'");
    assert_false(report_write(s, &(struct report_options){ .format = REPORT_GOLDEN, .directory = folder }, out, &err));
    expect_contains(err.text, "no run has drafts");
    fclose(out);
}

static void golden_files_are_checked(void **state)
{
    static const struct {
        const char *file, *said;
    } wrong[] = {
        { "{}", "acceptance_lengths: expected an array with entries" },
        { "{\"acceptance_lengths\": []}", "expected an array with entries" },
        { "{\"acceptance_lengths\": [3]}", "acceptance_lengths[0]: expected an object" },
        { "{\"acceptance_lengths\": [{}]}",
          "acceptance_lengths[0]: acceptance_length: expected a number of at least 1, found none" },
        { "{\"acceptance_lengths\": [{\"acceptance_length\": 0.5}]}",
          "acceptance_length: expected a number of at least 1" },
        { "{\"acceptance_lengths\": [{\"acceptance_length\": 2, \"draft\": \"x\"}]}", "[0]: draft: no such key" },
        { "{\"acceptance_lengths\": [{\"acceptance_length\": 2, \"drafter\": 1}]}", "[0]: drafter: expected a text" },
        { "{\"acceptance_lengths\": [{\"acceptance_length\": 2, \"rtol\": -1}]}",
          "[0]: rtol: expected a number of at least 0" },
        { "{\"acceptance_lengths\": [{\"acceptance_length\": 2, \"acceptance_lengths_per_pos\": [2]}]}",
          "per_pos[0]: expected a number from 0 to 1" },
        { "[", "checked.json:1" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct error err = { "" };
        bool within;
        assert_null(checked(wrong[i].file, &within, &err));
        expect_contains(err.text, wrong[i].said);
    }
    struct error err;
    bool within;
    char *text =
        checked("{\"acceptance_lengths\": [{\"acceptance_length\": 2, \"drafter\": \"nobody\"}]}", &within, &err);
    assert_non_null(text);
    assert_false(within);
    expect_contains(text, "NO RUN");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_files_have_the_keys_of_bench_serve),
        cmocka_unit_test(vllm_counters_are_read_as_vllm_reads_them),
        cmocka_unit_test(sglang_files_have_the_keys_of_bench_serving),
        cmocka_unit_test(a_speculation_profile_follows_from_its_histogram),
        cmocka_unit_test(a_rule_about_whole_drafts_has_no_vectors),
        cmocka_unit_test(golden_lengths_hold_for_their_own_runs),
        cmocka_unit_test(golden_files_are_checked),
        cmocka_unit_test(without_drafts_nothing_is_golden), // last: it changes the runs
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
