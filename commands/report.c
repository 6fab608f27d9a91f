// report.c - `speclab report`: the results in a database as rows for a machine.
//
// With --intervals FILE, the intervals of sums that others have read from a database: a line of the input is an object,
// {"of": "ratio", "a": [..], "b": [..]}, and a line of the output is its interval. Elements i of all lists are of one
// row.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "core/files/json_lines.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/report.h"
#include "results/store.h"
#include "results/statistics/intervals.h"

static int report(const struct usage *u, const char *db, const struct report_options *o)
{
    struct error err;
    struct store *s = store_open_existing(db, &err);
    if (s == NULL)
        return command_fail(u, &err);
    const bool ok = report_write(s, o, stdout, &err), is_closed = !ok && ferror(stdout) != 0 && errno == EPIPE;
    store_close(s);
    return ok || is_closed ? command_done(u) : command_fail(u, &err); // who closed the pipe wants no message
}

// ---- intervals

static const struct {
    const char *name;
    enum statistic of;
    int sums;
} statistics[] = { { "rate", STATISTIC_RATE, 2 },
                   { "ratio", STATISTIC_RATIO, 2 },
                   { "ratio_of_ratios", STATISTIC_RATIO_OF_RATIOS, 4 },
                   { "difference", STATISTIC_DIFFERENCE, 4 },
                   { "change", STATISTIC_CHANGE, 8 } };
enum { STATISTICS = sizeof(statistics) / sizeof(statistics[0]) };

// Columns: sums of a statistic, the steps of each pair of sums, and integers, the prompt and the unit of each row.
enum { SUMS = 8, NUMBERS = 12, PROMPT = NUMBERS, UNIT, COLUMNS };
static const char *const columns[] = { "a",      "b",   "c",     "d",           "e",         "f",
                                       "g",      "h",   "steps", "other_steps", "old_steps", "old_other_steps",
                                       "prompt", "unit" };

struct sums {
    size_t n;
    double *number[NUMBERS];             // (n)
    int64_t *integer[COLUMNS - NUMBERS]; // (n) the last NULL: the rows are prompts
};

static bool read_column(const struct json *line, int k, struct sums *s, struct error *err)
{
    const char *key = columns[k];
    const struct json *list = json_get(line, key);
    if (!json_is_array(list))
        return fail(err, "\"%s\": expected a list of numbers, found %s", key, json_described(list));
    s->n = k == 0 ? json_count(list) : s->n;
    if (json_count(list) != s->n)
        return fail(err, "\"%s\": expected %zu numbers, as \"a\" has, found %zu", key, s->n, json_count(list));
    void *to = xcalloc(s->n + 1, sizeof(double));
    if (k < NUMBERS)
        s->number[k] = to;
    else
        s->integer[k - NUMBERS] = to;
    for (size_t i = 0; i < s->n; i++) {
        const struct json *x = json_at(list, i);
        if (k < NUMBERS ? !json_is_number(x) : !json_is_int(x))
            return fail(err, "\"%s\": expected %s, found %s", key, k < NUMBERS ? "numbers" : "integers",
                        json_described(x));
        if (k < NUMBERS)
            s->number[k][i] = json_number(x);
        else
            s->integer[k - NUMBERS][i] = json_int(x);
    }
    return true;
}

static bool answer(void *out, const struct json *line, struct error *err)
{
    const struct json *of = json_get(line, "of");
    int k = 0;
    while (k < STATISTICS && strcmp(statistics[k].name, json_text(of)) != 0)
        k++;
    if (k == STATISTICS)
        return fail(err, "\"of\": expected rate, ratio, ratio_of_ratios, difference or change, found %s%s%s",
                    json_is_text(of) ? "\"" : "", json_is_text(of) ? json_text(of) : json_described(of),
                    json_is_text(of) ? "\"" : "");
    struct sums s = { 0 };
    bool ok = true;
    for (int c = 0; c < COLUMNS && ok; c++)
        if (c < SUMS ? c < statistics[k].sums : json_get(line, columns[c < PROMPT ? c : UNIT]) != NULL)
            ok = read_column(line, c, &s, err);
    if (ok) {
        const struct interval x =
            s.integer[1] != NULL
                ? interval_of_units(statistics[k].of, (const double *const *)s.number,
                                    (const double *const *)s.number + SUMS, s.integer[0], s.integer[1], s.n)
                : interval_of(statistics[k].of, (const double *const *)s.number, s.n);
        struct json *j = json_object_of(JSON("value", x.value), JSON("low", x.low), JSON("high", x.high),
                                        JSON("prompts_for_2_percent", x.prompts));
        json_lines_put(out, j);
    }
    for (int c = 0; c < COLUMNS; c++)
        free(c < NUMBERS ? (void *)s.number[c] : s.integer[c - NUMBERS]);
    return ok;
}

static int intervals(const struct usage *u, const char *path)
{
    struct error err;
    struct text out = { 0 };
    const bool ok = json_lines_each(path, answer, &out, &err);
    if (ok && out.n > 0)
        fwrite(out.s, 1, out.n, stdout);
    free(out.s);
    return ok ? command_done(u) : command_fail(u, &err);
}

// ---- the command

int command_report(int argc, char **argv)
{
    const char *db = "results.db", *sums = NULL;
    bool csv = false, jsonl = false, as_json = false;
    struct report_options o = { 0 };
    const struct flag flags[] = {
        { "db", FLAG_TEXT, &db, "FILE", "database; default: results.db", 0, 0 },
        { "experiment", FLAG_TEXT, &o.experiment, "NAME", "experiment to report; default: all", 0, 0 },
        { "against", FLAG_TEXT, &o.against, "RUN",
          "compare every other run of the same prompts with this one,\npairwise: its number in the table `run`, or a part of the\n"
          "name of its drafter",
          0, 0 },
        { "csv", FLAG_ON, &csv, NULL, "CSV: one row a run, with all numbers", 0, 0 },
        { "jsonl", FLAG_ON, &jsonl, NULL, "JSON Lines: one object a run", 0, 0 },
        { "json", FLAG_ON, &as_json, NULL, "one JSON object: comparisons with their cells, by category, too", 0, 0 },
        { "intervals", FLAG_TEXT, &sums, "FILE",
          "read sums, a JSON object a line, - from stdin, and print\ntheir intervals (docs/results.md)", 0, 0 },
        { 0 },
    };
    const struct usage u = {
        .name = "report",
        .operands = "",
        .about =
            "Writes the results in a database for a machine, in one of the forms --csv, --jsonl and --json, or reads\n"
            "sums. Without them `report` is a word of the Python package, which prints tables: ./run report --help.\n",
        .flags = flags,
        .examples = "  speclab report --db demo.db --experiment demo --csv > demo.csv\n"
                    "  speclab report --db demo.db --against 2 --jsonl\n",
    };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    if (csv + jsonl + as_json + (sums != NULL) != 1)
        return usage_fail(&u, "expected one of --csv, --jsonl, --json and --intervals");
    if (o.against != NULL && !csv && !jsonl)
        return usage_fail(&u, "--against goes with --csv and --jsonl, and with no other form");
    o.format = csv ? REPORT_CSV : jsonl ? REPORT_JSONL : REPORT_JSON;
    return sums != NULL ? intervals(&u, sums) : report(&u, db, &o);
}
