// test_report_files.c - reports that cannot be written, reports of one experiment, intervals of two prompts.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/report.h"
#include "results/statistics/intervals.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/results/sample_facts.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct sample_facts *facts;
static struct store *s;

static int set_up(void **state)
{
    facts = sample_facts_create(3, 4, 1, 1);
    s = sample_store(facts);
    return 0;
}

static int tear_down(void **state)
{
    store_close(s);
    sample_facts_free(facts);
    test_directory_remove();
    return 0;
}

// The report; NULL on failure, with err set.
static char *written(struct report_options o, struct error *err)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    bool ok = report_write(s, &o, out, err);
    fclose(out);
    if (!ok) {
        free(text);
        text = NULL;
    }
    return text;
}

static void a_failed_write_is_an_error(void **state)
{
    for (enum report_format f = REPORT_TABLE; f <= REPORT_JSONL; f++) {
        struct error err = { "" };
        FILE *full = fopen("/dev/full", "w"); // accepts buffered writes, fails on flush
        assert_non_null(full);
        assert_false(report_write(s, &(struct report_options){ .format = f }, full, &err));
        assert_non_null(strstr(err.text, "the report could not be written: No space left on device"));
        fclose(full);
    }
}

static void one_experiment_of_several_is_exported_alone(void **state)
{
    struct error err = { "" };
    sample_facts_query(s, "UPDATE run SET experiment = 'another' WHERE id = 2");
    for (enum report_format f = REPORT_CSV; f <= REPORT_JSONL; f++) {
        char *text = written((struct report_options){ .format = f, .experiment = "another" }, &err);
        assert_non_null(text);
        int lines = 0;
        for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
            lines++;
        assert_int_equal(lines, f == REPORT_CSV ? 2 : 1);
        assert_null(strstr(text, "synthetic"));
        free(text);
    }
    sample_facts_query(s, "UPDATE run SET experiment = 'synthetic'");
}

static void a_failing_query_is_an_error_of_the_export(void **state)
{
    struct error err = { "" };
    sample_facts_query(s, "DROP VIEW IF EXISTS run_summary");
    for (enum report_format f = REPORT_CSV; f <= REPORT_JSONL; f++) {
        err.text[0] = '\0';
        assert_null(written((struct report_options){ .format = f }, &err));
        assert_non_null(strstr(err.text, "run_summary"));
    }
}

static void what_cannot_be_stored_is_an_error(void **state)
{
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
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_write_is_an_error),
        cmocka_unit_test(one_experiment_of_several_is_exported_alone),
        cmocka_unit_test(a_failing_query_is_an_error_of_the_export),
        cmocka_unit_test(what_cannot_be_stored_is_an_error),
        cmocka_unit_test(two_prompts_have_an_interval_and_zero_sums_have_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
