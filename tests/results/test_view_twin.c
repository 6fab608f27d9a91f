// test_view_twin.c - every published number compared with a Python reference that uses plain loops over rows.
//
// tests/cases/make_views.py reads the rows of views_facts.sql and writes, in views.json, the expected result of every view of
// results/views*.sql, in every column, and of every query of results/. It follows docs/results.md and reads none of their SQL. A view or
// column without a reference is a failure: every definition is written twice.
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/store.h"
#include "results/tally.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

// ---- comparing a table

static bool agrees(const struct query *q, int column, const struct json *expected)
{
    if (json_is_null(expected))
        return query_is_null(q, column);
    if (query_is_null(q, column))
        return false;
    if (json_is_text(expected))
        return query_is_text(q, column) && strcmp(query_text(q, column), json_text(expected)) == 0;
    if (json_is_int(expected) && query_is_int(q, column))
        return query_int(q, column) == json_int(expected);
    const double a = query_real(q, column), b = json_number(expected);
    return !query_is_text(q, column) && fabs(a - b) <= 1e-9 * fmax(1e-3, fabs(b));
}

static void expect_row(const char *what, const struct query *q, const struct json *expected, int row)
{
    for (int i = 0; i < query_columns(q); i++)
        if (!agrees(q, i, json_at(expected, (size_t)i))) {
            char *wanted = json_write(json_at(expected, (size_t)i));
            fail_msg("%s, row %d, %s: found %s, expected %s", what, row, query_column(q, i),
                     query_is_null(q, i) ? "NULL" : query_text(q, i), wanted);
        }
}

static void expect_columns(const char *what, const struct query *q, const struct json *columns, bool named)
{
    assert_int_equal(query_columns(q), json_count(columns));
    for (int i = 0; i < query_columns(q) && named; i++)
        if (strcmp(query_column(q, i), json_text(json_at(columns, (size_t)i))) != 0)
            fail_msg("%s: found column %s, expected %s", what, query_column(q, i),
                     json_text(json_at(columns, (size_t)i)));
}

// named: compare the column names.
static void expect_table(const char *what, struct query *q, const struct json *expected, bool named)
{
    const struct json *rows = json_get(expected, "rows");
    const int n = (int)json_count(rows);
    struct error err;
    int row = 0;
    expect_columns(what, q, json_get(expected, "columns"), named);
    for (; query_next(q); row++) {
        if (row >= n)
            fail_msg("%s: more than the %d expected rows", what, n);
        expect_row(what, q, json_at(rows, (size_t)row), row);
    }
    if (!query_close(q, &err))
        fail_msg("%s: %s", what, err.text);
    if (row != n)
        fail_msg("%s: found %d rows, expected %d", what, row, n);
}

// ---- the views

TEST(every_column_of_every_view_equals_plain_loops)
{
    struct cases *c = *state;
    const struct json *views = json_get(c->golden, "views");
    for (void *at = json_first(views); at != NULL; at = json_next(views, at)) {
        const char *order = json_text(json_get(json_value(at), "order"));
        char *sql = xformat("SELECT * FROM %s ORDER BY %s", json_key(at), order);
        expect_table(json_key(at), query_open(c->s, sql), json_value(at), true);
        free(sql);
    }
}

TEST(every_view_has_a_reference)
{
    struct cases *c = *state;
    const struct json *views = json_get(c->golden, "views");
    struct error err;
    size_t n = 0;
    struct query *q = query_open(c->s, "SELECT name FROM sqlite_master WHERE type = 'view'");
    for (; query_next(q); n++)
        if (json_get(views, query_text(q, 0)) == NULL)
            fail_msg("the view %s has no reference in tests/cases/view_numbers.py", query_text(q, 0));
    assert_true(query_close(q, &err));
    assert_int_equal(n, json_count(views));
}

// ---- the query files

extern const char bench_cost_sql[], by_category_sql[], losing_prompts_sql[], verify_cost_sql[], answers_sql[];

TEST(query_files_equal_plain_loops)
{
    struct cases *c = *state;
    static const struct {
        const char *name, *sql;
    } query_file[] = {
        { "bench_cost", bench_cost_sql },
        { "by_category", by_category_sql },
        { "losing_prompts", losing_prompts_sql },
        { "verify_cost", verify_cost_sql },
    };
    const struct json *queries = json_get(c->golden, "queries");
    for (size_t i = 0; i < sizeof(query_file) / sizeof(query_file[0]); i++)
        expect_table(query_file[i].name, query_open(c->s, query_file[i].sql), json_get(queries, query_file[i].name),
                     true);
    assert_int_equal(json_count(queries), sizeof(query_file) / sizeof(query_file[0]) + 1); // and answers
}

// answers.sql reads the prompt file with a function of the sqlite3 shell; the test binds the file's text instead.
TEST(answers_are_joined_to_the_lines_of_the_prompt_file)
{
    struct cases *c = *state;
    static const char call[] = "readfile('experiments/data/prompts.jsonl')";
    const char *at = strstr(answers_sql, call);
    assert_non_null(at);
    char *sql = xformat("%.*s?1%s", (int)(at - answers_sql), answers_sql, at + strlen(call));
    struct query *q = query_open(c->s, sql);
    query_put(q, SQL(json_text(json_get(c->golden, "prompts"))));
    expect_table("answers", q, json_get(json_get(c->golden, "queries"), "answers"), false);
    free(sql);
}

// ---- the numbers of a report

// expected: a number, or null for NAN.
static void expect_number(const char *what, double a, const struct json *expected)
{
    assert_non_null(expected);
    const double b = json_is_null(expected) ? NAN : json_number(expected);
    if (!(isnan(a) && isnan(b)) && !(fabs(a - b) <= 1e-9 * fmax(1e-3, fabs(b))))
        fail_msg("%s: found %.17g, expected %.17g", what, a, b);
}

static void expect_interval(const char *what, struct interval i, const struct json *expected)
{
    expect_number(what, i.value, json_at(expected, 0));
    expect_number(what, i.low, json_at(expected, 1));
    expect_number(what, i.high, json_at(expected, 2));
}

static const struct {
    const char *name;
    size_t at;
    bool exported_with_value;
} statistics[] = {
    { "acceptance_rate", offsetof(struct tally, acceptance_rate), false },
    { "expected_rate", offsetof(struct tally, expected_rate), true },
    { "tokens_per_step", offsetof(struct tally, tokens_per_step), false },
    { "ttft_ns", offsetof(struct tally, ttft), true },
    { "tokens_per_s", offsetof(struct tally, tokens_per_s), false },
    { "speedup", offsetof(struct tally, speedup), false },
    { "end_to_end_speedup", offsetof(struct tally, end_to_end_speedup), false },
};
enum { STATISTICS = sizeof(statistics) / sizeof(statistics[0]) };

static void expect_run(struct store *s, const struct comparison *c, const struct tally *t, const struct json *expected)
{
    const struct json *first = json_get(expected, "first");
    assert_int_equal(t->run, json_int(json_get(expected, "run")));
    assert_int_equal(json_count(json_get(expected, "statistics")), STATISTICS);
    for (int i = 0; i < STATISTICS; i++)
        expect_interval(statistics[i].name, *(const struct interval *)((const char *)t + statistics[i].at),
                        json_get(json_get(expected, "statistics"), statistics[i].name));
    for (int i = 0; i < c->n_categories; i++) {
        const struct json *of = json_at(json_get(expected, "by_category"), (size_t)i);
        expect_interval(c->category[i], t->by_category[i].speedup, json_at(of, 0));
        expect_interval(c->category[i], t->by_category[i].tokens_per_step, json_at(of, 1));
    }
    assert_int_equal(t->compared, json_int(json_get(expected, "compared")));
    assert_int_equal(t->equal, json_int(json_get(expected, "equal")));
    assert_int_equal(t->first_prompt == NULL, json_is_null(first));
    if (t->first_prompt != NULL) {
        assert_string_equal(t->first_prompt, json_text(json_at(first, 0)));
        assert_int_equal(t->first_turn, json_int(json_at(first, 1)));
        assert_int_equal(t->first_position, json_int(json_at(first, 2)));
    }
    for (size_t i = 0; i < POSITIONS; i++) {
        expect_interval("rate", t->rate[i], json_at(json_get(expected, "rate"), i));
        expect_interval("conditional", t->conditional[i], json_at(json_get(expected, "conditional"), i));
        expect_number("by_rank", t->by_rank[i], json_at(json_get(expected, "by_rank"), i));
    }
    expect_number("expected", t->expected, json_get(expected, "expected"));
    expect_number("accepted_uncut", t->accepted_uncut, json_get(expected, "accepted"));
    expect_number("z", t->z, json_get(expected, "z"));
}

static void expect_comparison(struct store *s, const struct comparison *c, const struct json *expected)
{
    const struct json *categories = json_get(expected, "categories"), *runs = json_get(expected, "runs");
    assert_string_equal(c->experiment, json_text(json_get(expected, "experiment")));
    assert_string_equal(c->peers, json_text(json_get(expected, "peers")));
    assert_string_equal(c->limits, json_text(json_get(expected, "limits")));
    assert_int_equal(c->greedy, json_bool(json_get(expected, "greedy")));
    assert_int_equal(c->n_prompts, json_int(json_get(expected, "n_prompts")));
    assert_int_equal(c->turns, json_int(json_get(expected, "turns")));
    assert_int_equal(c->repeats, json_int(json_get(expected, "repeats")));
    assert_int_equal(c->n_categories, json_count(categories));
    for (int i = 0; i < c->n_categories; i++) {
        assert_string_equal(c->category[i], json_text(json_at(json_at(categories, (size_t)i), 0)));
        assert_int_equal(c->category_prompts[i], json_int(json_at(json_at(categories, (size_t)i), 1)));
    }
    assert_int_equal(c->n, json_count(runs));
    for (int i = 0; i < c->n; i++)
        expect_run(s, c, &c->run[i], json_at(runs, (size_t)i));
}

TEST(the_numbers_of_a_report_equal_plain_loops)
{
    struct cases *c = *state;
    const struct json *expected = json_get(c->golden, "comparisons");
    struct comparisons all;
    struct error err;
    assert_true(comparisons_read(c->s, NULL, &all, &err));
    assert_int_equal(all.n, json_count(expected));
    for (int i = 0; i < all.n; i++)
        expect_comparison(c->s, &all.comparison[i], json_at(expected, (size_t)i));
    comparisons_free(&all);
}

TEST(any_two_runs_compared_equal_plain_loops)
{
    struct cases *c = *state;
    const struct json *list = json_get(c->golden, "against");
    struct error err;
    size_t shared = 0;
    for (int other = 1; other <= 12; other++) {
        struct againsts all;
        assert_true(against_read(c->s, other, &all, &err));
        shared += (size_t)all.n;
        for (size_t i = 0; i < json_count(list); i++) {
            const struct json *one = json_at(list, i);
            if (json_int(json_get(one, "against")) != other)
                continue;
            const struct against *a = against_find(&all, json_int(json_get(one, "run")));
            assert_non_null(a);
            assert_int_equal(a->prompts, json_int(json_get(one, "prompts")));
            assert_int_equal(a->in_pairs, json_int(json_get(one, "in_pairs")));
            expect_interval("speed", a->speed, json_get(one, "speed"));
            expect_interval("acceptance", a->acceptance, json_get(one, "acceptance"));
            expect_interval("tokens per step", a->tokens_per_step, json_get(one, "tokens_per_step"));
            expect_interval("ttft", a->ttft, json_get(one, "ttft"));
        }
        free(all.of);
    }
    assert_int_equal(shared, json_count(list));
}

// ---- exports

static bool same_number(const struct json *a, const struct json *b)
{
    return fabs(json_number(a) - json_number(b)) <= 1e-9 * fmax(1e-3, fabs(json_number(b)));
}

static bool same(const struct json *a, const struct json *b)
{
    bool all = json_count(a) == json_count(b);
    if (json_is_object(b)) {
        for (void *at = json_first(b); at != NULL; at = json_next(b, at))
            all = all && json_get(a, json_key(at)) != NULL && same(json_get(a, json_key(at)), json_value(at));
        return all && json_is_object(a);
    }
    if (json_is_array(b)) {
        for (size_t i = 0; i < json_count(b); i++)
            all = all && same(json_at(a, i), json_at(b, i));
        return all && json_is_array(a);
    }
    if (json_is_text(b))
        return json_is_text(a) && strcmp(json_text(a), json_text(b)) == 0;
    if (json_is_number(b))
        return json_is_number(a) && same_number(a, b);
    return json_is_null(a) && json_is_null(b);
}

static void expect_json(const char *what, const struct json *a, const struct json *expected)
{
    if (same(a, expected))
        return;
    char *found = json_write(a), *wanted = json_write(expected);
    fail_msg("%s: found\n%s\nexpected\n%s", what, found, wanted);
}

static char *exported(struct cases *c, enum report_format format)
{
    return sample_report(c->s, (struct report_options){ .format = format });
}

static const struct json *run_of(const struct json *comparisons, int64_t run)
{
    for (size_t i = 0; i < json_count(comparisons); i++) {
        const struct json *runs = json_get(json_at(comparisons, i), "runs");
        for (size_t k = 0; k < json_count(runs); k++)
            if (json_int(json_get(json_at(runs, k), "run")) == run)
                return json_at(runs, k);
    }
    fail_msg("no reference for run %d", (int)run);
    return NULL;
}

// a: part `part` of the leading intervals of expected, up to the first without a value.
static void expect_rates(const struct json *line, const char *name, const char *suffix, const struct json *expected,
                         size_t part)
{
    char *key = xformat("%s%s", name, suffix);
    const struct json *a = json_get(line, key);
    size_t n = 0;
    while (n < json_count(expected) && !json_is_null(json_at(json_at(expected, n), 0)))
        n++;
    assert_int_equal(json_count(a), n);
    for (size_t i = 0; i < n; i++)
        expect_json(key, json_at(a, i), json_at(json_at(expected, i), part));
    free(key);
}

static void expect_statistic(const struct json *line, int i, const struct json *expected)
{
    static const char *const suffix[] = { "", "_low", "_high" };
    for (size_t part = statistics[i].exported_with_value ? 0 : 1; part < 3; part++) {
        char *key = xformat("%s%s", statistics[i].name, suffix[part]);
        expect_json(key, json_get(line, key), json_at(expected, part));
        free(key);
    }
}

// The database has 1 and 0 for true and false.
static void expect_column(const char *name, const struct json *a, const struct json *expected)
{
    if (json_is_bool(a))
        assert_int_equal(json_bool(a), json_int(expected));
    else
        expect_json(name, a, expected);
}

static void expect_line(const struct cases *c, const struct json *line, const struct json *summary,
                        const struct json *columns)
{
    const struct json *run = run_of(json_get(c->golden, "comparisons"), json_int(json_get(line, "run")));
    for (size_t i = 0; i < json_count(columns); i++) {
        const char *name = json_text(json_at(columns, i));
        if (json_get(line, name) == NULL)
            fail_msg("column %s is not exported", name);
        expect_column(name, json_get(line, name), json_at(summary, i));
    }
    for (int i = 0; i < STATISTICS; i++)
        expect_statistic(line, i, json_get(json_get(run, "statistics"), statistics[i].name));
    static const char *const suffix[] = { "", "_low", "_high" };
    for (size_t part = 0; part < 3; part++) {
        expect_rates(line, "acceptance_by_position", suffix[part], json_get(run, "rate"), part);
        expect_rates(line, "conditional_acceptance_by_position", suffix[part], json_get(run, "conditional"), part);
    }
}

TEST(json_lines_equal_plain_loops)
{
    struct cases *c = *state;
    const struct json *view = json_get(json_get(c->golden, "views"), "run_summary"), *rows = json_get(view, "rows");
    struct error err;
    size_t lines = 0;
    char *text = exported(c, REPORT_JSONL);
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, lines++) {
        struct json *line = json_parse_line(at, (size_t)(end - at), "export", (int)lines + 1, &err);
        const struct json *summary = NULL;
        assert_non_null(line);
        for (size_t i = 0; i < json_count(rows); i++)
            if (json_int(json_at(json_at(rows, i), 0)) == json_int(json_get(line, "run")))
                summary = json_at(rows, i);
        assert_non_null(summary);
        expect_line(c, line, summary, json_get(view, "columns"));
        json_free(line);
    }
    assert_int_equal(lines, json_count(rows));
    free(text);
}

RUN_TESTS(cases_open, cases_close)
