// report_export.c - machine-readable reports: CSV (RFC 4180), JSON lines, and answer files in Spec-Bench's format.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "results/query.h"
#include "results/report_parts.h"
#include "results/tally.h"

static const char rows_sql[] = "SELECT * FROM run_summary ORDER BY run"; // the first column is the run

// Statistics whose intervals are exported as NAME_low, NAME_high and, of what is not a rate at a depth, NAME_prompts_for_2_percent.
static const struct {
    const char *name;
    size_t at;
    bool with_value; // run_summary does not have it
} statistics[] = {
    { "speedup", offsetof(struct tally, speedup), false },
    { "steady_speedup", offsetof(struct tally, steady_speedup), false },
    { "end_to_end_speedup", offsetof(struct tally, end_to_end_speedup), false },
    { "tokens_per_s", offsetof(struct tally, tokens_per_s), false },
    { "steady_tokens_per_s", offsetof(struct tally, steady_tokens_per_s), false },
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

static void put_field(struct text *out, const char *s, bool first)
{
    text_puts(out, first ? "" : ",");
    if (strpbrk(s, ",\"\r\n") == NULL) {
        text_puts(out, s);
        return;
    }
    text_puts(out, "\"");
    for (; *s != '\0'; s++)
        text_add(out, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
    text_puts(out, "\"");
}

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
        put_field(out, query_column(q, i), i == 0);
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
            put_field(out, query_text(q, i), i == 0);
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

bool report_jsonl(struct store *s, const struct comparisons *c, struct text *out, struct error *err)
{
    struct query *q = query_again(s, rows_sql);
    while (query_next(q)) {
        const struct tally *t = tally_of(c, q);
        if (t == NULL)
            continue;
        struct json *o = json_new_object();
        for (int i = 0; i < query_columns(q); i++)
            json_set(o, query_column(q, i), json_of_column(q, i));
        for (int i = 0; i < STATISTICS; i++)
            put_statistic(o, statistics[i].name, statistic_of(t, i), statistics[i].with_value);
        put_rates(o, "acceptance_by_position", t->rate);
        put_rates(o, "conditional_acceptance_by_position", t->conditional);
        put_json(out, o);
    }
    return query_close(q, err);
}

// ---- Spec-Bench ----

// A choice is one repeat of a conversation: its lists have one entry per turn, accept_lengths one per step.
struct choice {
    struct json *whole, *turns, *steps, *tokens, *seconds, *lengths;
};

static struct choice new_choice(int64_t repeat)
{
    struct choice c = { json_new_object(), json_new_array(), json_new_array(),
                        json_new_array(),  json_new_array(), json_new_array() };
    json_set(c.whole, "index", json_new_int(repeat));
    json_set(c.whole, "turns", c.turns);
    json_set(c.whole, "decoding_steps", c.steps);
    json_set(c.whole, "new_tokens", c.tokens);
    json_set(c.whole, "wall_time", c.seconds);
    json_set(c.whole, "accept_lengths", c.lengths);
    return c;
}

static struct json *id_of(const char *s)
{
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    bool integer = errno == 0 && end != s && *end == '\0' && (isdigit((unsigned char)s[0]) || s[0] == '-');
    return integer ? json_new_int(n) : json_new_text(s);
}

static bool put_lengths(struct store *s, int64_t sequence, struct json *to, struct error *err)
{
    struct query *q = query_again(s, "SELECT tokens FROM step WHERE sequence = ? ORDER BY step");
    query_put_int(q, sequence);
    while (query_next(q))
        json_push(to, json_new_int(query_int(q, 0)));
    return query_close(q, err);
}

// One line per prompt of a run. Rows are ordered by prompt, repeat and turn.
static bool put_answers(struct store *s, int64_t run, const char *model, struct text *out, struct error *err)
{
    struct json *line = NULL, *choices = NULL;
    struct choice choice = { 0 };
    int64_t prompt = 0, repeat = 0;
    bool ok = true;
    struct query *q =
        query_again(s, "SELECT a.prompt, a.repeat, a.prompt_id, a.category, coalesce(a.text, q.tokens), a.steps,"
                       " a.new_tokens, a.wall_ns, a.sequence, CAST(strftime('%s', r.started) AS INTEGER)"
                       " FROM answer AS a JOIN run AS r ON r.id = a.run JOIN sequence AS q ON q.id = a.sequence"
                       " WHERE a.run = ? ORDER BY a.prompt, a.repeat, a.turn");
    query_put_int(q, run);
    while (ok && query_next(q)) {
        bool next =
            line == NULL || query_int(q, 0) != prompt; // no sentinel value: a damaged database may hold any number
        if (next) {
            if (line != NULL)
                put_json(out, line);
            prompt = query_int(q, 0);
            line = json_new_object();
            choices = json_new_array();
            char *answer = xformat("%s-%s", model, query_text(q, 2));
            json_set(line, "question_id", id_of(query_text(q, 2)));
            json_set(line, "category", query_is_null(q, 3) ? json_new_null() : json_new_text(query_text(q, 3)));
            json_set(line, "answer_id", json_new_text(answer));
            json_set(line, "model_id", json_new_text(model));
            json_set(line, "choices", choices);
            json_set(line, "tstamp", json_new_int(query_int(q, 9)));
            free(answer);
        }
        if (next || query_int(q, 1) != repeat) {
            repeat = query_int(q, 1);
            choice = new_choice(repeat);
            json_push(choices, choice.whole);
        }
        json_push(choice.turns, json_new_text(query_text(q, 4)));
        json_push(choice.steps, json_new_int(query_int(q, 5)));
        json_push(choice.tokens, json_new_int(query_int(q, 6)));
        json_push(choice.seconds, json_new_number((double)query_int(q, 7) / 1e9));
        ok = put_lengths(s, query_int(q, 8), choice.lengths, err);
    }
    if (line != NULL)
        put_json(out, line);
    return query_close(q, err) && ok;
}

// A name for files and scripts: letters, digits, '.', '_' and '-'.
static char *model_id(const struct comparison *c, const struct tally *t)
{
    char *s = xformat("%s-run%lld-%s-%s", c->experiment, (long long)t->run, t->drafter, t->rule);
    size_t n = 0;
    for (const char *at = s; *at != '\0' && n < 120; at++) {
        bool plain = isalnum((unsigned char)*at) || strchr("._-", *at) != NULL;
        if ((plain && *at != '-') || (n > 0 && s[n - 1] != '-'))
            s[n++] = plain ? *at : '-';
    }
    while (n > 0 && s[n - 1] == '-')
        n--;
    s[n] = '\0';
    return s;
}

static bool write_file(const char *path, const struct text *t, struct error *err)
{
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return fail(err, "%s: could not be created: %s", path, strerror(errno));
    bool ok = fwrite(t->s, 1, t->n, f) == t->n;
    ok = fclose(f) == 0 && ok;
    if (!ok) {
        fail(err, "%s: could not be written: %s", path, strerror(errno));
        unlink(path); // a truncated file would look complete
    }
    return ok;
}

static bool put_run(struct store *s, const struct comparison *c, const struct tally *t, const char *directory,
                    struct text *out, struct error *err)
{
    char *model = model_id(c, t), *path = xformat("%s/%s.jsonl", directory, model);
    struct text lines = { 0 };
    text_puts(&lines, "");
    bool ok = put_answers(s, t->run, model, &lines, err) && write_file(path, &lines, err);
    text_printf(out, "%s%s", ok ? path : "", ok ? "\n" : "");
    free(lines.s);
    free(path);
    free(model);
    return ok;
}

bool report_spec_bench(struct store *s, const struct comparisons *c, const char *directory, struct text *out,
                       struct error *err)
{
    if (directory == NULL)
        return fail(err, "answer files need a directory");
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return fail(err, "%s: could not be created: %s", directory, strerror(errno));
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->comparison[i].n; k++)
            if (!put_run(s, &c->comparison[i], &c->comparison[i].run[k], directory, out, err))
                return false;
    return true;
}
