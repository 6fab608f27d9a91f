// test_report_tables.c - the tables of all cells, in the terminal and CSV: their numbers are the views', by SQL, and the
// intervals of the Python twin (tests/cases/views.json).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/results/printed_tables.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

// ---- what they must say

// A printed number is within half of its last digit.
static void expect_figure(const char *what, const char *s, double x)
{
    char *end;
    if (isnan(x)) {
        if (strcmp(s, "-") != 0)
            fail_msg("%s: found %s, expected -", what, s);
        return;
    }
    const double found = strtod(s, &end);
    const char *point = memchr(s, '.', (size_t)(end - s));
    const double digits = point != NULL ? (double)(end - point) - 1 : 0;
    const double tolerance = memchr(s, 'e', (size_t)(end - s)) != NULL ? 0.05 * x : 0.5001 * pow(10, -digits);
    if (end == s || fabs(found - x) > tolerance)
        fail_msg("%s: found %s, expected %.9g", what, s, x);
}

// "1.60 [1.22, 1.99]"; interval: [value, low, high], of which the printed ones are compared; its value is also the view's.
static void expect_number_of(const char *what, const char *s, double x, const struct json *interval, double factor,
                             bool has_interval)
{
    const char *low = strchr(s, '['), *high = low != NULL ? strchr(low, ',') : NULL;
    const bool known = has_interval && !isnan(x) && !json_is_null(json_at(interval, 1));
    expect_figure(what, s, factor * x);
    if (!isnan(x) && fabs(json_number(json_at(interval, 0)) - x) > 1e-9 * fmax(1e-3, fabs(x)))
        fail_msg("%s: the view has %.9g, the twin another number", what, x);
    if ((low != NULL) != known)
        fail_msg("%s: found %s, expected %s interval", what, s, known ? "an" : "no");
    if (low != NULL && high != NULL) {
        expect_figure(what, low + 1, factor * json_number(json_at(interval, 1)));
        expect_figure(what, high + 1, factor * json_number(json_at(interval, 2)));
    }
}

static double of_view(struct store *s, const char *view, const char *column, int64_t run)
{
    char *sql = xformat("SELECT %s FROM %s WHERE run = %lld", column, view, (long long)run);
    const double x = sample_facts_query(s, sql);
    free(sql);
    return x;
}

static void expect_row(struct cases *c, const struct printed_row *r, const struct json *run, bool greedy)
{
    const int64_t id = json_int(json_get(run, "run"));
    const struct json *of = json_get(run, "statistics");
    const bool none = of_view(c->s, "run_summary", "drafter_kind = 'none'", id) == 1;
    const bool invariant =
        of_view(c->s, "(SELECT id AS run, drafter_invariant FROM run)", "drafter_invariant", id) == 1;
    const char *speed = "tokens_per_s", *up = "speedup";
    assert_int_equal(r->n, 7);
    expect_figure(speed, r->field[1], of_view(c->s, "run_summary", speed, id));
    if (none)
        assert_string_equal(r->field[2], "1");
    else
        expect_number_of(up, r->field[2], of_view(c->s, "run_summary", up, id), json_get(of, up), 1, true);
    expect_number_of("tokens_per_step", r->field[3], of_view(c->s, "run_summary", "tokens_per_step", id),
                     json_get(of, "tokens_per_step"), 1, false);
    if (none)
        assert_string_equal(r->field[4], "-");
    else
        expect_number_of("acceptance_rate", r->field[4], of_view(c->s, "run_summary", "acceptance_rate", id),
                         json_get(of, "acceptance_rate"), 100, false);
    const long long compared =
                        (long long)of_view(c->s, "texts", greedy ? "count(*)" : "coalesce(sum(same_rule), 0)", id),
                    equal = (long long)of_view(
                        c->s, "texts", greedy ? "coalesce(sum(equal), 0)" : "coalesce(sum(equal AND same_rule), 0)",
                        id);
    char *texts = none                    ? xstrdup("")
                  : !greedy && !invariant ? xstrdup("sampled")
                  : compared == 0         ? xstrdup("-")
                                          : xformat("%lld/%lld", equal, compared);
    assert_string_equal(r->field[5], texts);
    free(texts);
    const double prompts = of_view(c->s, "run_summary", none ? "speed_prompts" : "paired_prompts", id);
    expect_figure("prompts", r->field[6], isnan(prompts) ? 0 : prompts);
}

static const struct json *run_of(const struct json *comparison, int64_t run)
{
    const struct json *runs = json_get(comparison, "runs");
    for (size_t i = 0; i < json_count(runs); i++)
        if (json_int(json_get(json_at(runs, i), "run")) == run)
            return json_at(runs, i);
    fail_msg("no reference for run %d", (int)run);
    return NULL;
}

// The runs of a comparison in the order of the tables, by SQL.
static struct query *in_order(struct store *s, const struct json *comparison)
{
    struct query *q = query_open(
        s,
        "SELECT run FROM run_summary WHERE experiment = ?1 AND peers = ?2 ORDER BY drafter_kind <> 'none',"
        " iif(drafter_kind = 'none', 1, lossless) DESC, iif(drafter_kind = 'none', 0, speedup) DESC NULLS LAST, run");
    query_put(q, SQL(json_text(json_get(comparison, "experiment"))), SQL(json_text(json_get(comparison, "peers"))));
    return q;
}

static void expect_rows(struct cases *c, struct printed_rows t)
{
    const struct json *comparisons = json_get(c->golden, "comparisons");
    struct error err;
    int at = 0;
    for (size_t i = 0; i < json_count(comparisons); i++) {
        const struct json *comparison = json_at(comparisons, i);
        struct query *q = in_order(c->s, comparison);
        for (; query_next(q); at++) {
            assert_true(at < t.n);
            expect_row(c, &t.row[at], run_of(comparison, query_int(q, 0)), json_bool(json_get(comparison, "greedy")));
        }
        assert_true(query_close(q, &err));
    }
    assert_int_equal(at, t.n);
    printed_rows_free(&t);
}

static void the_numbers_of_the_summary_are_the_views(void **state)
{
    struct cases *c = *state;
    char *summary = sample_report(c->s, (struct report_options){ 0 });
    expect_rows(c, printed_rows_of_summary(summary));
    free(summary);
}

// The next field of a line of CSV without line ends in its fields.
static char *csv_field(const char **at)
{
    struct text t = { 0 };
    text_puts(&t, "");
    bool quoted = false;
    for (; **at != '\0' && (quoted || (**at != ',' && **at != '\r')); (*at)++)
        if (**at == '"')
            quoted = !quoted;
        else
            text_add(&t, *at, 1);
    *at += **at == ',';
    return t.s;
}

// Every number of a row of CSV is that of the view, or, of NAME_low and NAME_high, of the twin.
static void the_numbers_of_csv_are_the_views(void **state)
{
    struct cases *c = *state;
    char *text = sample_report(c->s, (struct report_options){ .format = REPORT_CSV }), *name[FIELDS * 4];
    int columns = 0, rows = 0, numbers = 0;
    const char *at = text;
    while (*at != '\r')
        name[columns++] = csv_field(&at);
    for (at += 2; *at != '\0'; at += 2, rows++) {
        int64_t run = 0;
        const struct json *expected = NULL;
        for (int k = 0; k < columns; k++) {
            char *field = csv_field(&at);
            if (k == 0) {
                run = atoll(field);
                for (size_t i = 0; expected == NULL; i++) {
                    const struct json *runs = json_get(json_at(json_get(c->golden, "comparisons"), i), "runs");
                    for (size_t m = 0; m < json_count(runs) && expected == NULL; m++)
                        if (json_int(json_get(json_at(runs, m), "run")) == run)
                            expected = json_at(runs, m);
                }
            }
            struct text base = { 0 };
            text_puts(&base, name[k]);
            char *suffix = strrchr(base.s, '_');
            const int part = suffix == NULL                 ? 0
                             : strcmp(suffix, "_low") == 0  ? 1
                             : strcmp(suffix, "_high") == 0 ? 2
                                                            : 0;
            if (part > 0)
                *suffix = '\0';
            const bool exported = part > 0 || strcmp(base.s, "expected_rate") == 0 || strcmp(base.s, "ttft_ns") == 0;
            const struct json *interval = exported ? json_get(json_get(expected, "statistics"), base.s) : NULL;
            double x = NAN;
            bool known = interval != NULL;
            if (interval != NULL && !json_is_null(json_at(interval, (size_t)part)))
                x = json_number(json_at(interval, (size_t)part));
            if (interval == NULL && strncmp(name[k], "acceptance_", 11) != 0 &&
                strstr(name[k], "_for_2_percent") == NULL) {
                char *sql =
                    xformat("SELECT typeof(%s) <> 'text' FROM run_summary WHERE run = %lld", name[k], (long long)run);
                known = sample_facts_query(c->s, sql) == 1;
                x = known ? of_view(c->s, "run_summary", name[k], run) : NAN;
                free(sql);
            }
            if (known && (isnan(x) ? *field != '\0' : fabs(atof(field) - x) > 1e-9 * fmax(1e-3, fabs(x))))
                fail_msg("run %d, %s: found %s, expected %.10g", (int)run, name[k], field, x);
            numbers += known && !isnan(x);
            free(base.s);
            free(field);
        }
        assert_int_equal(at[0], '\r');
    }
    assert_int_equal(rows, json_count(json_get(json_get(json_get(c->golden, "views"), "run_summary"), "rows")));
    assert_true(numbers > 20 * rows);
    while (columns > 0)
        free(name[--columns]);
    free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, cases_open, cases_close)
    const struct CMUnitTest tests[] = {
        TEST(the_numbers_of_the_summary_are_the_views),
        TEST(the_numbers_of_csv_are_the_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
