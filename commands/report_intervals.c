// report_intervals.c - `speclab report --intervals FILE`: the intervals of sums that others have read from a database. A line of the input is an
// object, {"of": "ratio", "a": [..], "b": [..]}, and a line of the output is its interval. Elements i of all lists are of one row.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "commands/json_lines.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "statistics/intervals.h"

enum { SUMS = 4, STEPS = 2 };

static const struct {
    const char *name;
    enum statistic of;
    int sums;
} statistics[] = { { "rate", STATISTIC_RATE, 2 },
                   { "ratio", STATISTIC_RATIO, 2 },
                   { "ratio_of_ratios", STATISTIC_RATIO_OF_RATIOS, 4 },
                   { "difference", STATISTIC_DIFFERENCE, 4 } };
enum { STATISTICS = sizeof(statistics) / sizeof(statistics[0]) };

struct sums {
    size_t n;
    double *sum[SUMS], *steps[STEPS]; // (n)
    int64_t *prompt, *unit;           // (n) unit NULL: the rows are prompts
};

// The list at a key, of the length that the first has; NULL with err set: it is something else.
static const struct json *list_of(const struct json_lines *l, const char *key, struct sums *s, struct error *err)
{
    const struct json *list = json_get(l->object, key);
    if (!json_is_array(list)) {
        json_lines_fail(l, err, "\"%s\": expected a list of numbers, found %s", key, json_described(list));
        return NULL;
    }
    s->n = s->n == SIZE_MAX ? json_count(list) : s->n;
    if (json_count(list) == s->n)
        return list;
    json_lines_fail(l, err, "\"%s\": expected %zu numbers, as \"a\" has, found %zu", key, s->n, json_count(list));
    return NULL;
}

// Into one of the two arrays.
static bool read_numbers(const struct json_lines *l, const char *key, struct sums *s, double **to, int64_t **integers,
                         struct error *err)
{
    const struct json *list = list_of(l, key, s, err);
    if (list == NULL)
        return false;
    if (to != NULL)
        *to = xcalloc(s->n + 1, sizeof(**to));
    else
        *integers = xcalloc(s->n + 1, sizeof(**integers));
    for (size_t i = 0; i < s->n; i++) {
        const struct json *x = json_at(list, i);
        if (to != NULL ? !json_is_number(x) : !json_is_int(x))
            return json_lines_fail(l, err, "\"%s\": expected %s, found %s", key, to != NULL ? "numbers" : "integers",
                                   json_described(x));
        if (to != NULL)
            (*to)[i] = json_number(x);
        else
            (*integers)[i] = json_int(x);
    }
    return true;
}

static bool read_sums(const struct json_lines *l, int sums, struct sums *s, struct error *err)
{
    static const char *const name[] = { "a", "b", "c", "d" }, *const steps[] = { "steps", "other_steps" };
    bool ok = true;
    for (int k = 0; k < sums && ok; k++)
        ok = read_numbers(l, name[k], s, &s->sum[k], NULL, err);
    for (int k = 0; k < STEPS && ok; k++)
        ok = json_get(l->object, steps[k]) == NULL || read_numbers(l, steps[k], s, &s->steps[k], NULL, err);
    return ok && (json_get(l->object, "unit") == NULL || (read_numbers(l, "prompt", s, NULL, &s->prompt, err) &&
                                                          read_numbers(l, "unit", s, NULL, &s->unit, err)));
}

static void put(struct text *out, const struct interval *x)
{
    struct json *o = json_object_of(JSON("value", x->value), JSON("low", x->low), JSON("high", x->high),
                                    JSON("prompts_for_2_percent", x->prompts));
    char *line = json_write(o);
    text_printf(out, "%s\n", line);
    free(line);
    json_free(o);
}

static bool answer(const struct json_lines *l, struct text *out, struct error *err)
{
    const struct json *of = json_get(l->object, "of");
    int k = 0;
    while (k < STATISTICS && strcmp(statistics[k].name, json_text(of)) != 0)
        k++;
    if (k == STATISTICS)
        return json_lines_fail(l, err, "\"of\": expected rate, ratio, ratio_of_ratios or difference, found %s%s%s",
                               json_is_text(of) ? "\"" : "", json_is_text(of) ? json_text(of) : json_described(of),
                               json_is_text(of) ? "\"" : "");
    struct sums s = { .n = SIZE_MAX };
    const bool ok = read_sums(l, statistics[k].sums, &s, err);
    if (ok) {
        const struct interval x = s.unit != NULL
                                      ? interval_of_units(statistics[k].of, (const double *const *)s.sum,
                                                          (const double *const *)s.steps, s.prompt, s.unit, s.n)
                                      : interval_of(statistics[k].of, s.sum[0], s.sum[1], s.sum[2], s.sum[3], s.n);
        put(out, &x);
    }
    for (int i = 0; i < SUMS; i++)
        free(s.sum[i]);
    for (int i = 0; i < STEPS; i++)
        free(s.steps[i]);
    free(s.prompt);
    free(s.unit);
    return ok;
}

bool report_intervals(const char *path, struct text *out, struct error *err)
{
    struct json_lines l;
    text_puts(out, "");
    if (!json_lines_open(&l, path, err))
        return false;
    bool ok = true;
    while (ok && json_lines_next(&l, err))
        ok = answer(&l, out, err);
    ok = ok && !l.failed;
    json_lines_close(&l);
    return ok;
}
