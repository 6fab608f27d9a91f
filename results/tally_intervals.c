// tally_intervals.c - the statistics of a report with their intervals: columns of sums by prompt are read from the views, and given to
// statistics/intervals.h.
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/tally.h"

enum { MAX_COLUMNS = 18 };

struct columns {
    size_t n, capacity;
    double *x[MAX_COLUMNS]; // (n) those of the query
};

static bool columns_read(struct columns *c, struct query *q, struct error *err)
{
    *c = (struct columns){ 0 };
    for (; query_next(q); c->n++) {
        const bool full = c->n == c->capacity;
        c->capacity = full ? next_capacity(c->capacity, c->n + 1) : c->capacity;
        for (int i = 0; i < query_columns(q); i++) {
            c->x[i] = full ? xrealloc(c->x[i], c->capacity * sizeof(*c->x[i])) : c->x[i];
            c->x[i][c->n] = query_real(q, i);
        }
    }
    return query_close(q, err);
}

static void columns_free(struct columns *c)
{
    for (int i = 0; i < MAX_COLUMNS; i++)
        free(c->x[i]);
}

// Rows from `from` on that have its values in the first `keys` columns: one run, or one depth of a run.
static size_t alike(const struct columns *c, size_t from, int keys)
{
    size_t n = 0;
    for (bool same = true; same && from + n < c->n; n += same)
        for (int k = 0; k < keys; k++)
            same = same && c->x[k][from + n] == c->x[k][from];
    return n;
}

// NULL: not in the comparison. A damaged database may hold any number, so it is not converted back to an integer.
static struct tally *run_at(struct comparison *c, const struct columns *x, size_t row)
{
    for (int i = 0; i < c->n; i++)
        if ((double)c->run[i].run == x->x[0][row])
            return &c->run[i];
    return NULL;
}

static double total(const struct columns *c, int column, size_t from, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += c->x[column][from + i];
    return sum;
}

// Of n rows, with columns a to d; c and d 0: none.
static struct interval interval_at(enum statistic of, const struct columns *x, size_t from, size_t n, int a, int b,
                                   int c, int d)
{
    return interval_of(of, x->x[a] + from, x->x[b] + from, c > 0 ? x->x[c] + from : NULL, d > 0 ? x->x[d] + from : NULL,
                       n);
}

static struct interval times(struct interval i, double factor)
{
    return (struct interval){ i.value * factor, i.low * factor, i.high * factor, i.prompts };
}

// Columns of a view's rows, by prompt, of one run or of a comparison's.
#define SPEEDS \
    "new_tokens, decode_ns, none_new_tokens, none_decode_ns, steady_tokens, steady_ns, none_steady_tokens," \
    " none_steady_ns"

bool speedup_read(struct store *s, int64_t run, struct interval *to, struct error *err)
{
    struct columns c;
    struct query *q = query_again(s, "SELECT " SPEEDS " FROM speed_by_prompt WHERE run = ?1 ORDER BY prompt");
    query_put_int(q, run);
    const bool ok = columns_read(&c, q, err);
    *to = c.n > 0 ? interval_at(STATISTIC_RATIO_OF_RATIOS, &c, 0, c.n, 0, 1, 2, 3) : no_interval;
    columns_free(&c);
    return ok;
}

// ---- by category

#define PLACE_OF_CATEGORY "(SELECT key FROM json_each(?3) WHERE value = v.category)" // NULL: none

// The names of the categories, for PLACE_OF_CATEGORY.
static void put_categories(struct query *q, const struct comparison *c)
{
    struct json *names = json_new_array();
    for (int i = 0; i < c->n_categories; i++)
        json_push(names, json_new_text(c->category[i]));
    char *text = json_write(names);
    query_put_text(q, text);
    free(text);
    json_free(names);
}

// Those of n rows that have the value in a column, in their order.
static struct columns rows_where(const struct columns *x, size_t from, size_t n, int column, double value)
{
    struct columns to = { 0 };
    for (int i = 0; i < MAX_COLUMNS && x->x[i] != NULL; i++)
        to.x[i] = xmalloc(n * sizeof(*to.x[i]));
    for (size_t row = from; row < from + n; row++)
        if (x->x[column][row] == value) {
            for (int i = 0; i < MAX_COLUMNS && x->x[i] != NULL; i++)
                to.x[i][to.n] = x->x[i][row];
            to.n++;
        }
    return to;
}

static bool of_sums(struct store *s, struct comparison *c, struct error *err)
{
    enum {
        CATEGORY = 1,
        ACCEPTED,
        DRAFTED,
        EXPECTED,
        EXPECTED_DRAFTED,
        TOKENS,
        STEPS,
        TTFT,
        FIRSTS,
        NEW,
        NS,
        STEADY,
        STEADY_NS
    };
    struct columns x;
    struct query *q = query_again(
        s,
        "SELECT v.run, " PLACE_OF_CATEGORY
        ", accepted_tokens, drafted_tokens, expected_tokens, expected_drafted, step_tokens, steps, ttft_ns, first_tokens,"
        " new_tokens, decode_ns, speed_tokens, speed_ns FROM run AS r JOIN sums_by_prompt AS v ON v.run = r.id"
        " WHERE r.experiment = ?1 AND r.peers = ?2 ORDER BY v.run, v.prompt");
    comparison_put(q, c);
    put_categories(q, c);
    const bool ok = columns_read(&x, q, err);
    for (size_t i = 0, n; ok && i < x.n; i += n) {
        n = alike(&x, i, 1);
        struct tally *t = run_at(c, &x, i);
        if (t == NULL)
            continue;
        for (int k = 0; k < c->n_categories; k++) {
            struct columns of = rows_where(&x, i, n, CATEGORY, k);
            if (of.n > 0)
                t->by_category[k].tokens_per_step = interval_at(STATISTIC_RATIO, &of, 0, of.n, TOKENS, STEPS, 0, 0);
            columns_free(&of);
        }
        if (!t->baseline) {
            t->acceptance_rate = interval_at(STATISTIC_RATE, &x, i, n, ACCEPTED, DRAFTED, 0, 0);
            t->expected_rate = interval_at(STATISTIC_RATE, &x, i, n, EXPECTED, EXPECTED_DRAFTED, 0, 0);
        }
        t->tokens_per_step = interval_at(STATISTIC_RATIO, &x, i, n, TOKENS, STEPS, 0, 0);
        t->ttft = interval_at(STATISTIC_RATIO, &x, i, n, TTFT, FIRSTS, 0, 0);
        t->tokens_per_s = times(interval_at(STATISTIC_RATIO, &x, i, n, NEW, NS, 0, 0), 1e9);
        if (c->batch > 1)
            t->steady_tokens_per_s = times(interval_at(STATISTIC_RATIO, &x, i, n, STEADY, STEADY_NS, 0, 0), 1e9);
    }
    columns_free(&x);
    return ok;
}

static bool of_depths(struct store *s, struct comparison *c, struct error *err)
{
    enum { DEPTH = 1, ACCEPTED, DRAFTS, TRIED, DEEP };
    struct columns x;
    struct query *q = query_again(
        s,
        "SELECT v.run, v.depth, accepted, drafts, tried, drafts_this_deep FROM run AS r JOIN acceptance_by_prompt AS v ON v.run = r.id"
        " WHERE r.experiment = ?1 AND r.peers = ?2 AND v.depth <= ?3 ORDER BY v.run, v.depth, v.prompt");
    comparison_put(q, c);
    query_put_int(q, POSITIONS);
    const bool ok = columns_read(&x, q, err);
    for (size_t i = 0, n; ok && i < x.n; i += n) {
        n = alike(&x, i, 2);
        struct tally *t = run_at(c, &x, i);
        const int at = (int)x.x[DEPTH][i] - 1;
        if (t == NULL || total(&x, DEEP, i, n) < 1)
            continue;
        t->rate[at] = interval_at(STATISTIC_RATE, &x, i, n, ACCEPTED, DRAFTS, 0, 0);
        t->conditional[at] = interval_at(STATISTIC_RATE, &x, i, n, ACCEPTED, TRIED, 0, 0);
    }
    columns_free(&x);
    return ok;
}

static bool of_pairs(struct store *s, struct comparison *c, struct error *err)
{
    enum { CATEGORY = 1, NEW, NS, NONE_NEW, NONE_NS, STEADY, ALL_NS = STEADY + 4, NONE_ALL_NS };
    const int from = c->batch > 1 ? STEADY : NEW;
    struct columns x;
    struct query *q = query_again(s, "SELECT v.run, " PLACE_OF_CATEGORY ", " SPEEDS
                                     ", decode_ns + prefill_ns, none_decode_ns + none_prefill_ns"
                                     " FROM run AS r JOIN speed_by_prompt AS v ON v.run = r.id"
                                     " WHERE r.experiment = ?1 AND r.peers = ?2 ORDER BY v.run, v.prompt");
    comparison_put(q, c);
    put_categories(q, c);
    const bool ok = columns_read(&x, q, err);
    for (size_t i = 0, n; ok && i < x.n; i += n) {
        n = alike(&x, i, 1);
        struct tally *t = run_at(c, &x, i);
        if (t == NULL)
            continue;
        const enum statistic ratios = STATISTIC_RATIO_OF_RATIOS;
        t->end_to_end_speedup = interval_at(ratios, &x, i, n, NEW, ALL_NS, NONE_NEW, NONE_ALL_NS);
        t->speedup = interval_at(ratios, &x, i, n, NEW, NS, NONE_NEW, NONE_NS);
        if (c->batch > 1)
            t->steady_speedup = interval_at(ratios, &x, i, n, STEADY, STEADY + 1, STEADY + 2, STEADY + 3);
        for (int k = 0; k < c->n_categories; k++) {
            struct columns of = rows_where(&x, i, n, CATEGORY, k);
            if (of.n > 0)
                t->by_category[k].speedup = interval_at(ratios, &of, 0, of.n, from, from + 1, from + 2, from + 3);
            columns_free(&of);
        }
    }
    columns_free(&x);
    return ok;
}

bool intervals_read(struct store *s, struct comparison *c, struct error *err)
{
    for (int i = 0; i < c->n; i++) {
        struct tally *t = &c->run[i];
        t->acceptance_rate = t->expected_rate = t->tokens_per_step = t->ttft = t->tokens_per_s =
            t->steady_tokens_per_s = no_interval;
        t->speedup = t->steady_speedup = t->end_to_end_speedup = no_interval;
        for (int k = 0; k < POSITIONS; k++)
            t->rate[k] = t->conditional[k] = no_interval;
        t->by_category = xmalloc(((size_t)c->n_categories + 1) * sizeof(*t->by_category));
        for (int k = 0; k < c->n_categories; k++)
            t->by_category[k] = (struct by_category){ no_interval, no_interval };
    }
    return of_sums(s, c, err) && of_depths(s, c, err) && of_pairs(s, c, err);
}

// ---- against another run

bool against_read(struct store *s, int64_t other, struct againsts *to, struct error *err)
{
    enum {
        RUN,
        PAIRED,
        TOKENS,
        NS,
        ACCEPTED,
        DRAFTED,
        STEP_TOKENS,
        STEPS,
        TTFT,
        FIRSTS,
        Y
    }; // and the other's from Y on
    struct columns x;
    struct query *q = query_again(
        s,
        "SELECT run, in_pairs, speed_tokens, speed_ns, accepted_tokens, drafted_tokens, step_tokens, steps, ttft_ns, first_tokens,"
        " against_speed_tokens, against_speed_ns, against_accepted_tokens, against_drafted_tokens, against_step_tokens, against_steps,"
        " against_ttft_ns, against_first_tokens FROM against_by_prompt WHERE against = ?1 ORDER BY run, in_pairs DESC, prompt");
    query_put_int(q, other);
    const bool ok = columns_read(&x, q, err);
    *to = (struct againsts){ 0 };
    for (size_t i = 0, n; i < x.n; i += alike(&x, i, 1)) { // of a run the first part: in pairs, if there are any
        n = alike(&x, i, 2);
        struct against a = { .run = x.x[RUN][i], .prompts = (int64_t)n, .in_pairs = x.x[PAIRED][i] > 0 };
        a.speed = interval_at(STATISTIC_RATIO_OF_RATIOS, &x, i, n, TOKENS, NS, Y, Y + 1);
        a.acceptance = interval_at(STATISTIC_DIFFERENCE, &x, i, n, ACCEPTED, DRAFTED, Y + 2, Y + 3);
        a.acceptance.low = a.acceptance.low < -1 ? -1 : a.acceptance.low;
        a.acceptance.high = a.acceptance.high > 1 ? 1 : a.acceptance.high;
        a.tokens_per_step = interval_at(STATISTIC_DIFFERENCE, &x, i, n, STEP_TOKENS, STEPS, Y + 4, Y + 5);
        a.ttft = interval_at(STATISTIC_RATIO_OF_RATIOS, &x, i, n, TTFT, FIRSTS, Y + 6, Y + 7);
        to->of = xrealloc(to->of, ((size_t)to->n + 1) * sizeof(*to->of));
        to->of[to->n++] = a;
    }
    columns_free(&x);
    return ok;
}

const struct against *against_find(const struct againsts *a, int64_t run)
{
    for (int i = 0; i < a->n; i++)
        if (a->of[i].run == (double)run)
            return &a->of[i];
    return NULL;
}
