// report_export.c - machine-readable reports: CSV (RFC 4180), JSON lines, and JSON with what the terminal's tables say.
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/csv.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report_parts.h"
#include "results/tables/tables.h"
#include "results/tally.h"

static const char rows_sql[] = "SELECT * FROM run_summary ORDER BY run"; // the first column is the run

// Statistics whose intervals are exported as NAME_low, NAME_high and, of what is not a rate at a depth, NAME_prompts_for_2_percent.
static const struct {
    const char *name;
    size_t at;
    bool with_value; // run_summary does not have it
} statistics[] = {
    { "speedup", offsetof(struct tally, speedup), false },
    { "end_to_end_speedup", offsetof(struct tally, end_to_end_speedup), false },
    { "tokens_per_s", offsetof(struct tally, tokens_per_s), false },
    { "tokens_per_step", offsetof(struct tally, tokens_per_step), false },
    { "acceptance_rate", offsetof(struct tally, acceptance_rate), false },
    { "expected_rate", offsetof(struct tally, expected_rate), true },
    { "ttft_ns", offsetof(struct tally, ttft), true },
};
enum { STATISTICS = sizeof(statistics) / sizeof(statistics[0]) };

static const struct interval *statistic_of(const struct tally *t, int i)
{
    return (const struct interval *)((const char *)t + statistics[i].at);
}

// The tally of a row's run; NULL: not in this report.
static const struct tally *tally_of(const struct comparisons *c, const struct query *row)
{
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->comparison[i].n; k++)
            if (c->comparison[i].run[k].run == query_int(row, 0))
                return &c->comparison[i].run[k];
    return NULL;
}

// ---- CSV ----

static void put_real(struct text *out, double x)
{
    if (isnan(x))
        text_puts(out, ",");
    else
        text_printf(out, ",%.10g", x);
}

static void put_csv_head(struct text *out, const struct query *q)
{
    for (int i = 0; i < query_columns(q); i++)
        csv_put(out, query_column(q, i), i == 0);
    for (int i = 0; i < STATISTICS; i++) {
        const char *name = statistics[i].name;
        if (statistics[i].with_value)
            text_printf(out, ",%s", name);
        text_printf(out, ",%s_low,%s_high,%s_prompts_for_2_percent", name, name, name);
    }
    for (int i = 1; i <= POSITIONS; i++)
        text_printf(out, ",acceptance_%d,acceptance_%d_low,acceptance_%d_high", i, i, i);
    text_puts(out, "\r\n");
}

static void put_csv_row(struct text *out, const struct query *q, const struct tally *t)
{
    for (int i = 0; i < query_columns(q); i++)
        if (query_is_text(q, i) || query_is_int(q, i))
            csv_put(out, query_text(q, i), i == 0);
        else
            put_real(out, query_real(q, i));
    for (int i = 0; i < STATISTICS; i++) {
        const struct interval *x = statistic_of(t, i);
        if (statistics[i].with_value)
            put_real(out, x->value);
        put_real(out, x->low);
        put_real(out, x->high);
        put_real(out, x->prompts);
    }
    for (int i = 0; i < POSITIONS; i++) {
        put_real(out, t->rate[i].value);
        put_real(out, t->rate[i].low);
        put_real(out, t->rate[i].high);
    }
    text_puts(out, "\r\n");
}

bool report_csv(struct store *s, const struct comparisons *c, struct text *out, struct error *err)
{
    struct query *q = query_again(s, rows_sql);
    for (bool first = true; query_next(q); first = false) {
        const struct tally *t = tally_of(c, q);
        if (first)
            put_csv_head(out, q);
        if (t != NULL)
            put_csv_row(out, q, t);
    }
    return query_close(q, err);
}

// ---- JSON lines ----

static void put_json(struct text *out, struct json *line)
{
    char *s = json_write(line);
    text_printf(out, "%s\n", s);
    free(s);
    json_free(line);
}

static struct json *json_of_column(const struct query *q, int at)
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

static void put_named(struct json *o, const char *name, const char *suffix, struct json *value)
{
    char *key = xformat("%s%s", name, suffix);
    json_set(o, key, value);
    free(key);
}

// "acceptance_by_position": [..], and its "_low" and "_high".
static void put_rates(struct json *o, const char *name, const struct interval *rate)
{
    struct json *value = json_new_array(), *low = json_new_array(), *high = json_new_array();
    for (int i = 0; i < POSITIONS && !isnan(rate[i].value); i++) {
        json_push(value, json_new_number(rate[i].value));
        json_push(low, json_new_number(rate[i].low));
        json_push(high, json_new_number(rate[i].high));
    }
    put_named(o, name, "", value);
    put_named(o, name, "_low", low);
    put_named(o, name, "_high", high);
}

static void put_statistic(struct json *o, const char *name, const struct interval *x, bool with_value)
{
    if (with_value)
        put_named(o, name, "", json_new_number(x->value));
    put_named(o, name, "_low", json_new_number(x->low));
    put_named(o, name, "_high", json_new_number(x->high));
    put_named(o, name, "_prompts_for_2_percent", json_new_number(x->prompts));
}

static struct json *json_of_row(const struct query *q, const struct tally *t)
{
    struct json *o = json_new_object();
    for (int i = 0; i < query_columns(q); i++)
        json_set(o, query_column(q, i), json_of_column(q, i));
    for (int i = 0; i < STATISTICS; i++)
        put_statistic(o, statistics[i].name, statistic_of(t, i), statistics[i].with_value);
    put_rates(o, "acceptance_by_position", t->rate);
    put_rates(o, "conditional_acceptance_by_position", t->conditional);
    return o;
}

bool report_jsonl(struct store *s, const struct comparisons *c, struct text *out, struct error *err)
{
    struct query *q = query_again(s, rows_sql);
    while (query_next(q)) {
        const struct tally *t = tally_of(c, q);
        if (t != NULL)
            put_json(out, json_of_row(q, t));
    }
    return query_close(q, err);
}

// ---- JSON: comparisons, their cells in the order of the tables, with names and categories ----

static void set_words(struct json *o, const char *key, char *words)
{
    json_set(o, key, json_new_text(words));
    free(words);
}

static void set_interval(struct json *o, const char *name, const struct interval *x)
{
    put_named(o, name, "", json_new_number(x->value));
    put_named(o, name, "_low", json_new_number(x->low));
    put_named(o, name, "_high", json_new_number(x->high));
}

static struct json *categories_of(const struct comparison *c, const struct tally *t)
{
    struct json *list = json_new_array();
    for (int k = 0; k < c->n_categories; k++) {
        struct json *o = json_object_of(JSON("category", c->category[k]), JSON("prompts", c->category_prompts[k]),
                                        JSON("speedup_prompts", t->by_category[k].speedup_prompts));
        set_interval(o, "speedup", &t->by_category[k].speedup);
        set_interval(o, "tokens_per_step", &t->by_category[k].tokens_per_step);
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

// row: (c->n) its runs' rows of run_summary.
static struct json *json_of_comparison(const struct comparisons *all, int which, struct json **row)
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
    set_words(o, "device", report_values(c, offsetof(struct tally, device), false));
    set_words(o, "machine", report_values(c, offsetof(struct tally, machine), false));
    set_words(o, "revision", report_values(c, offsetof(struct tally, revision), false));
    json_add(o, JSON("batch", c->batch), JSON("n_prompts", c->n_prompts), JSON("greedy", c->greedy));
    for (int i = 0; i < c->n; i++) {
        struct json *cell = row[order[i]] != NULL ? json_clone(row[order[i]]) : json_new_object();
        add_words(cell, c, &c->run[order[i]], names.name[order[i]]);
        json_push(cells, cell);
    }
    json_set(o, "cells", cells);
    cell_names_free(&names);
    free(order);
    return o;
}

bool report_json(struct store *s, const struct comparisons *c, struct text *out, struct error *err)
{
    struct json *o = json_new_object(), *list = json_new_array();
    set_words(o, "disturbed", report_disturbed(c));
    struct json ***row = xcalloc((size_t)c->n + 1, sizeof(*row));
    for (int i = 0; i < c->n; i++)
        row[i] = xcalloc((size_t)c->comparison[i].n + 1, sizeof(*row[i]));
    struct query *q = query_again(s, rows_sql);
    while (query_next(q)) {
        const struct tally *t = tally_of(c, q);
        for (int i = 0; t != NULL && i < c->n; i++)
            for (int k = 0; k < c->comparison[i].n; k++)
                if (&c->comparison[i].run[k] == t && row[i][k] == NULL)
                    row[i][k] = json_of_row(q, t);
    }
    const bool ok = query_close(q, err);
    for (int i = 0; i < c->n; i++) {
        json_push(list, json_of_comparison(c, i, row[i]));
        for (int k = 0; k < c->comparison[i].n; k++)
            json_free(row[i][k]);
        free(row[i]);
    }
    free(row);
    json_set(o, "comparisons", list);
    put_json(out, o);
    return ok;
}
