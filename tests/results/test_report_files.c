// test_report_files.c - reports that cannot be written, reports of one experiment, names of answer files, intervals of two
// prompts.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/exact_rows.h"
#include "results/report.h"
#include "statistics/intervals.h"
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

static char *answers_directory(void)
{
    return test_path("answers");
}

// The names of the answer files that a report has written.
static char *answer_files(void)
{
    struct error err = { "" };
    char *directory = answers_directory(),
         *text = written((struct report_options){ .format = REPORT_SPEC_BENCH, .directory = directory }, &err);
    assert_ok(text != NULL, err);
    free(directory);
    return text;
}

// Letters, digits, dots, underscores; every other run of characters becomes one dash, none at either end; max 120 characters.
static char *plain_name(const char *of)
{
    char *name = xcalloc(strlen(of) + 1, 1);
    size_t n = 0;
    for (const char *at = of; *at != '\0' && n < 120; at++) {
        const bool keeps = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') ||
                           *at == '.' || *at == '_';
        if (keeps)
            name[n++] = *at;
        else if (n > 0 && name[n - 1] != '-')
            name[n++] = '-';
    }
    while (n > 0 && name[n - 1] == '-')
        name[--n] = '\0';
    return name;
}

static void answer_files_have_plain_names(void **state)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    char *longest = xformat("%s%s%s%s-%s%s", letters, letters, letters, letters, letters, letters);
    const char *const names[] = { "plain", "--a -- b!?c_d.e--", "(in brackets)", longest, "\xc3\xa4" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *sql = xformat("UPDATE run SET experiment = '%s'", names[i]);
        sample_facts_query(s, sql);
        char *files = answer_files(), *line = files;
        int n = 0;
        for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1, n++) {
            *end = '\0';
            char *full = NULL;
            for (int run = 1; run <= SAMPLE_RUNS && full == NULL; run++) { // the file's run
                char *run_part = xformat("run%d-", run);
                if (strstr(line, run_part) != NULL)
                    full = xformat("%.60s-%s", names[i], run_part);
                free(run_part);
            }
            assert_non_null(full);
            char *begins = plain_name(full);
            const char *name = strrchr(line, '/') + 1;
            const size_t length = strlen(name) - strlen(".jsonl"), dash = strlen(begins);
            assert_true(length <= 120 && strncmp(name, begins, dash) == 0 && name[0] != '-');
            assert_string_equal(name + length, ".jsonl");
            assert_true(name[length - 1] != '-' && strstr(name, "--") == NULL);
            free(begins);
            free(full);
        }
        assert_true(n == SAMPLE_RUNS);
        free(files);
        free(sql);
    }
    free(longest);
    sample_facts_query(s, "UPDATE run SET experiment = 'synthetic'");
}

static void an_answer_file_that_cannot_be_written_is_removed(void **state)
{
    struct error err = { "" };
    char *files = answer_files(), *directory = answers_directory();
    files[strcspn(files, "\n")] = '\0';
    struct stat st;
    assert_true(stat(directory, &st) == 0 && (st.st_mode & 0700) == 0700);
    assert_int_equal(unlink(files), 0);
    assert_int_equal(mkdir(files, 0777), 0);
    assert_null(written((struct report_options){ .format = REPORT_SPEC_BENCH, .directory = directory }, &err));
    char *message = xformat("%s: could not be created: Is a directory", files);
    assert_string_equal(err.text, message);
    free(message);
    assert_int_equal(rmdir(files), 0);
    assert_int_equal(symlink("/dev/full", files), 0);
    assert_null(written((struct report_options){ .format = REPORT_SPEC_BENCH, .directory = directory }, &err));
    assert_non_null(strstr(err.text, "could not be written: No space left on device"));
    assert_non_null(strstr(err.text, files));
    assert_true(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode)); // what is no file of ours is not removed
    assert_int_equal(unlink(files), 0);
    file_size_limit(100);
    assert_null(written((struct report_options){ .format = REPORT_SPEC_BENCH, .directory = directory }, &err));
    file_size_limit(-1);
    assert_non_null(strstr(err.text, "could not be written: File too large"));
    assert_int_equal(lstat(files, &st), -1);
    free(files);
    free(directory);
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

// In a damaged database prompt and repeat may be any number, including -1.
static void prompt_and_repeat_may_be_any_number(void **state)
{
    sample_facts_query(s, "PRAGMA ignore_check_constraints = 1");
    const char *const numbers[] = { "repeat", "prompt" };
    for (int i = 0; i < 2; i++) {
        char *damage = xformat("UPDATE sequence SET %s = -1 WHERE %s = 0", numbers[i], numbers[i]);
        char *repair = xformat("UPDATE sequence SET %s = 0 WHERE %s = -1", numbers[i], numbers[i]);
        char *plain = answer_files();
        sample_facts_query(s, damage);
        char *files = answer_files();
        assert_string_equal(files, plain);
        sample_facts_query(s, repair);
        free(plain);
        free(files);
        free(damage);
        free(repair);
    }
    sample_facts_query(s, "PRAGMA ignore_check_constraints = 0");
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
    const struct interval i =
        interval_of(STATISTIC_RATIO_OF_RATIOS, a, b, c, d, 2); // 1 / 0.25; u = 1/4 - 1/2 - 1/2 + 1/2 and 3/4 - 1/2
    assert_true(i.value == 4 && fabs(i.high - 4 * exp(half)) < 1e-6 && fabs(i.low - 4 * exp(-half)) < 1e-6);
    assert_true(isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, none, b, c, d, 2).value) &&
                isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, a, none, c, d, 2).value));
    assert_true(isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, a, b, none, d, 2).value) &&
                isnan(interval_of(STATISTIC_RATIO_OF_RATIOS, a, b, c, none, 2).value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_write_is_an_error),
        cmocka_unit_test(answer_files_have_plain_names),
        cmocka_unit_test(an_answer_file_that_cannot_be_written_is_removed),
        cmocka_unit_test(one_experiment_of_several_is_exported_alone),
        cmocka_unit_test(prompt_and_repeat_may_be_any_number),
        cmocka_unit_test(a_failing_query_is_an_error_of_the_export),
        cmocka_unit_test(what_cannot_be_stored_is_an_error),
        cmocka_unit_test(two_prompts_have_an_interval_and_zero_sums_have_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
