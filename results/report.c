// report.c - a report for machines: rows of CSV or JSON Lines, a run compared with others, and JSON with the content of
// the tables (python/speclab).
#include "results/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/csv.h"
#include "core/files/json_lines.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report_words.h"
#include "results/tally.h"

// ---- rows

static void put_field(struct text *out, const struct json *j, bool first)
{
    if (json_is_text(j))
        csv_put(out, json_text(j), first);
    else if (json_is_null(j))
        text_puts(out, first ? "" : ",");
    else if (json_is_number(j) && !json_is_int(j))
        text_printf(out, first ? "%.10g" : ",%.10g", json_number(j));
    else
        text_printf(out, first ? "%lld" : ",%lld", (long long)(json_is_int(j) ? json_int(j) : json_bool(j)));
}

static void put_csv(struct text *out, struct json *row, bool first)
{
    void *const begin = json_first(row);
    for (void *at = begin; at != NULL && first; at = json_next(row, at))
        csv_put(out, json_key(at), at == begin);
    text_puts(out, first ? "\r\n" : "");
    for (void *at = begin; at != NULL; at = json_next(row, at))
        put_field(out, json_value(at), at == begin);
    text_puts(out, "\r\n");
    json_free(row);
}

static void set(struct json *row, const char *name, const char *suffix, double x, bool csv)
{
    char *key = xformat("%s%s", name, suffix);
    json_set(row, key, csv && isinf(x) ? json_new_text(x > 0 ? "inf" : "-inf") : json_new_number(x));
    free(key);
}

static void set_interval(struct json *row, const char *name, const struct interval *x, bool csv)
{
    set(row, name, "", x->value, csv);
    set(row, name, "_low", x->low, csv);
    set(row, name, "_high", x->high, csv);
}

// Statistics whose intervals are exported as NAME_low, NAME_high and, for those that are not a rate at a depth,
// NAME_prompts_for_2_percent.
static const struct {
    const char *name;
    size_t at;
    bool with_value; // run_summary lacks the value
} statistics[] = {
    { "speedup", offsetof(struct tally, speedup), false },
    { "end_to_end_speedup", offsetof(struct tally, end_to_end_speedup), false },
    { "tokens_per_s", offsetof(struct tally, tokens_per_s), false },
    { "tokens_per_step", offsetof(struct tally, tokens_per_step), false },
    { "acceptance_rate", offsetof(struct tally, acceptance_rate), false },
    { "expected_rate", offsetof(struct tally, expected_rate), true },
    { "ttft_ns", offsetof(struct tally, ttft), true },
};

// Sets "acceptance_by_position": [..], and its "_low" and "_high"; in CSV, a column for each position.
static void set_positions(struct json *row, const char *name, const struct interval *rate)
{
    struct json *of[3] = { json_new_array(), json_new_array(), json_new_array() };
    for (int i = 0; i < POSITIONS && !isnan(rate[i].value); i++) {
        json_push(of[0], json_new_number(rate[i].value));
        json_push(of[1], json_new_number(rate[i].low));
        json_push(of[2], json_new_number(rate[i].high));
    }
    for (int i = 0; i < 3; i++) {
        char *key = xformat("%s%s", name, i == 0 ? "" : i == 1 ? "_low" : "_high");
        json_set(row, key, of[i]);
        free(key);
    }
}

static struct json *value_of_column(const struct query *q, int at)
{
    const char *name = query_column(q, at);
    if (query_is_null(q, at))
        return json_new_null();
    if (strcmp(name, "lossless") == 0 || strcmp(name, "marked_inflated") == 0 || strcmp(name, "finished") == 0)
        return json_new_bool(query_int(q, at) != 0);
    if (query_is_text(q, at))
        return json_new_text(query_text(q, at));
    return query_is_int(q, at) ? json_new_int(query_int(q, at)) : json_new_number(query_real(q, at));
}

static struct json *row_of(const struct query *q, const struct tally *t, bool csv)
{
    struct json *row = json_new_object();
    for (int i = 0; i < query_columns(q); i++)
        json_set(row, query_column(q, i), value_of_column(q, i));
    for (size_t i = 0; i < sizeof(statistics) / sizeof(*statistics); i++) {
        const struct interval *x = (const struct interval *)((const char *)t + statistics[i].at);
        const char *name = statistics[i].name;
        if (statistics[i].with_value)
            set(row, name, "", x->value, csv);
        set(row, name, "_low", x->low, csv);
        set(row, name, "_high", x->high, csv);
        set(row, name, "_prompts_for_2_percent", x->prompts, csv);
    }
    for (int i = 0; i < POSITIONS && csv; i++) {
        char name[32];
        snprintf(name, sizeof(name), "acceptance_%d", i + 1);
        set_interval(row, name, &t->rate[i], csv);
    }
    if (!csv) {
        set_positions(row, "acceptance_by_position", t->rate);
        set_positions(row, "conditional_acceptance_by_position", t->conditional);
    }
    return row;
}

// Calls take for the row of each run of the comparisons, and hands the row over.
static bool each_row(struct store *s, const struct comparisons *c, bool csv, void (*take)(void *to, struct json *row),
                     void *to, struct error *err)
{
    struct query *q = query_again(s, "SELECT * FROM run_summary ORDER BY run"); // the first column is the run
    while (query_next(q))
        for (int i = 0; i < c->n; i++)
            for (int k = 0; k < c->comparison[i].n; k++)
                if (c->comparison[i].run[k].run == query_int(q, 0))
                    take(to, row_of(q, &c->comparison[i].run[k], csv));
    return query_close(q, err);
}

static void take_csv(void *to, struct json *row)
{
    struct text *out = to;
    put_csv(out, row, out->n == 0);
}

static void take_json(void *to, struct json *row)
{
    json_lines_put(to, row);
}

static bool rows(struct store *s, const struct comparisons *c, bool csv, struct text *out, struct error *err)
{
    return each_row(s, c, csv, csv ? take_csv : take_json, out, err);
}

// ---- JSON: comparisons, their cells in the order of the tables, with names and categories

static void set_words(struct json *o, const char *key, char *words)
{
    json_set(o, key, json_new_text(words));
    free(words);
}

static struct json *categories_of(const struct comparison *c, const struct tally *t)
{
    struct json *list = json_new_array();
    for (int k = 0; k < c->n_categories; k++) {
        struct json *o = json_object_of(JSON("category", c->category[k]), JSON("prompts", c->category_prompts[k]),
                                        JSON("speedup_prompts", t->by_category[k].speedup_prompts));
        set_interval(o, "speedup", &t->by_category[k].speedup, false);
        set_interval(o, "tokens_per_step", &t->by_category[k].tokens_per_step, false);
        json_push(list, o);
    }
    return list;
}

static void add_words(struct json *o, const struct comparison *c, const struct tally *t, const char *name)
{
    struct json *ranks = json_new_array();
    for (int i = 0; i < POSITIONS && !isnan(t->by_rank[i]); i++)
        json_push(ranks, json_new_number(t->by_rank[i]));
    json_add(o, JSON("name", name), JSON("baseline", t->baseline), JSON("drafter_invariant", t->drafter_invariant));
    set_words(o, "equal", report_equal(c, t));
    json_add(o, JSON("disturbed", t->disturbed), JSON("all_disturbed", t->all_disturbed),
             JSON("expected_tokens", t->expected), JSON("accepted_uncut", t->accepted_uncut), JSON("z", t->z),
             JSON("first_difference_prompt", t->first_prompt), JSON("first_difference_turn", t->first_turn),
             JSON("first_difference_token", t->first_position), JSON("acceptance_by_rank", ranks),
             JSON("by_category", categories_of(c, t)));
}

// rows: indexed by the numbers of runs.
static struct json *json_of_comparison(const struct comparisons *all, int which, const struct json *rows)
{
    const struct comparison *c = &all->comparison[which];
    struct json *o = json_new_object(), *cells = json_new_array();
    struct cell_names names;
    int *order = report_order(c);
    cell_names_make(c, &names);
    set_words(o, "title", report_title(all, which));
    json_add(o, JSON("experiment", c->experiment), JSON("model", c->target));
    set_words(o, "target", report_target(c));
    json_set(o, "sampling", json_new_text(c->sampling));
    set_words(o, "prompts", report_prompts(c));
    json_set(o, "limits", json_new_text(c->limits));
    set_words(o, "decoding", report_decoding(c));
    json_set(o, "common", json_new_text(names.common));
    set_words(o, "device", report_values(c, offsetof(struct tally, device)));
    set_words(o, "machine", report_values(c, offsetof(struct tally, machine)));
    set_words(o, "revision", report_values(c, offsetof(struct tally, revision)));
    json_add(o, JSON("batch", c->batch), JSON("n_prompts", c->n_prompts), JSON("greedy", c->greedy));
    for (int i = 0; i < c->n; i++) {
        char run[24];
        snprintf(run, sizeof(run), "%lld", (long long)c->run[order[i]].run);
        const struct json *row = json_get(rows, run);
        struct json *cell = row != NULL ? json_clone(row) : json_new_object();
        add_words(cell, c, &c->run[order[i]], names.name[order[i]]);
        json_push(cells, cell);
    }
    json_set(o, "cells", cells);
    cell_names_free(&names);
    free(order);
    return o;
}

static void take_row(void *to, struct json *row)
{
    char run[24];
    snprintf(run, sizeof(run), "%lld", (long long)json_int(json_get(row, "run")));
    json_set(to, run, row);
}

static bool json_of_report(struct store *s, const struct comparisons *c, struct text *out, struct error *err)
{
    struct json *o = json_new_object(), *list = json_new_array(), *rows = json_new_object();
    const bool ok = each_row(s, c, false, take_row, rows, err);
    for (int i = 0; i < c->n; i++)
        json_push(list, json_of_comparison(c, i, rows));
    json_free(rows);
    set_words(o, "disturbed", report_disturbed(c));
    json_set(o, "comparisons", list);
    json_lines_put(out, o);
    return ok;
}

// ---- comparisons with one run, prompt by prompt: any two cells of the same prompts, those with other targets,
// samplings or batches, too

struct place { // the place of a run in the comparisons
    const struct comparison *c;
    const struct tally *t;
};

// Finds runs whose id is the text, or whose drafter contains it, and lists them in `ids`. *to: the last one.
static int runs_meant(const struct comparisons *all, const char *what, bool by_id, struct place *to, struct text *ids)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->comparison[i].n; k++) {
            const struct tally *t = &all->comparison[i].run[k];
            char *id = xformat("%lld", (long long)t->run);
            if (by_id ? strcmp(id, what) == 0 : strstr(t->drafter, what) != NULL) {
                text_printf(ids, "%s%s", n++ > 0 ? ", " : "", id);
                *to = (struct place){ &all->comparison[i], t };
            }
            free(id);
        }
    return n;
}

static bool find_run(const struct comparisons *all, const char *what, struct place *to, struct error *err)
{
    struct text ids = { 0 };
    text_puts(&ids, "");
    int n = runs_meant(all, what, true, to, &ids);
    if (n == 0)
        n = runs_meant(all, what, false, to, &ids);
    if (n > 1)
        fail_usage(err, "--against %s: the drafters of runs %s have this in their names: expected a run's number", what,
                   ids.s);
    if (n == 0) {
        runs_meant(all, "", false, to, &ids);
        fail_usage(err, "--against %s: no run has this number, and no drafter this in its name (runs: %s)", what,
                   ids.s);
    }
    free(ids.s);
    return n == 1;
}

static bool against(struct store *s, const struct comparisons *all, const struct report_options *o, struct text *out,
                    struct error *err)
{
    const bool csv = o->format == REPORT_CSV;
    struct againsts list = { 0 };
    struct place y;
    if (!find_run(all, o->against, &y, err) || !against_read(s, y.t->run, &list, err)) {
        free(list.of);
        return false;
    }
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->comparison[i].n; k++) {
            const struct against *a = against_find(&list, all->comparison[i].run[k].run);
            if (a == NULL)
                continue;
            struct json *row = json_object_of(JSON("run", all->comparison[i].run[k].run), JSON("against", y.t->run),
                                              JSON("prompts", a->prompts), JSON("in_pairs", a->in_pairs));
            set_interval(row, "speed_ratio", &a->speed, csv);
            set_interval(row, "acceptance_difference", &a->acceptance, csv);
            set_interval(row, "tokens_per_step_difference", &a->tokens_per_step, csv);
            set_interval(row, "ttft_ratio", &a->ttft, csv);
            if (csv)
                put_csv(out, row, out->n == 0);
            else
                json_lines_put(out, row);
        }
    free(list.of);
    return out->n > 0 || fail(err, "--against %s: no other run has decoded prompts of run %lld (%s)", o->against,
                              (long long)y.t->run, y.c->prompts);
}

// ---- the report

static bool written(struct store *s, const struct comparisons *all, const struct report_options *o, struct text *out,
                    struct error *err)
{
    if (o->against != NULL)
        return against(s, all, o, out, err);
    return o->format == REPORT_JSON ? json_of_report(s, all, out, err)
                                    : rows(s, all, o->format == REPORT_CSV, out, err);
}

bool report_write(struct store *s, const struct report_options *o, FILE *out, struct error *err)
{
    struct comparisons all;
    struct text text = { 0 };
    if (!comparisons_read(s, o->experiment, &all, err))
        return false;
    text_puts(&text, "");
    bool ok = written(s, &all, o, &text, err);
    comparisons_free(&all);
    if (ok && (fwrite(text.s, 1, text.n, out) != text.n || fflush(out) != 0))
        ok = fail(err, "the report could not be written: %s", strerror(errno));
    free(text.s);
    return ok;
}
