// tally_intervals.c - the statistics of a report with their intervals: columns of sums by prompt, of speeds by prompt and unit, are read from the
// views, and given to statistics/intervals.h.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/columns.h"
#include "results/query.h"
#include "results/tally.h"

bool columns_read(struct columns *c, struct query *q, int ids, struct error *err)
{
    *c = (struct columns){ 0 };
    for (; query_next(q); c->n++) {
        const int columns = query_columns(q) - ids;
        if (c->n == c->capacity) {
            c->capacity = next_capacity(c->capacity, c->n + 1);
            for (int i = 0; i < columns; i++)
                c->x[i] = xrealloc(c->x[i], c->capacity * sizeof(*c->x[i]));
            c->prompt = ids > 0 ? xrealloc(c->prompt, c->capacity * sizeof(*c->prompt)) : NULL;
            c->unit = ids > 0 ? xrealloc(c->unit, c->capacity * sizeof(*c->unit)) : NULL;
        }
        for (int i = 0; i < columns; i++)
            c->x[i][c->n] = query_real(q, i);
        if (ids > 0) {
            c->prompt[c->n] = query_int(q, columns);
            c->unit[c->n] = query_int(q, columns + 1);
        }
    }
    return query_close(q, err);
}

void columns_free(struct columns *c)
{
    for (int i = 0; i < MAX_COLUMNS; i++)
        free(c->x[i]);
    free(c->prompt);
    free(c->unit);
}

size_t columns_alike(const struct columns *c, size_t from, int keys)
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

struct interval columns_interval(enum statistic of, const struct columns *x, size_t from, size_t n, int a, int b, int c,
                                 int d)
{
    return interval_of(of, x->x[a] + from, x->x[b] + from, c > 0 ? x->x[c] + from : NULL, d > 0 ? x->x[d] + from : NULL,
                       n);
}

struct interval columns_speed(const struct columns *x, size_t from, size_t n, int a, int c)
{
    const double *sums[4] = { x->x[a] + from, x->x[a + 1] + from }, *steps[2] = { x->x[a + 2] + from };
    if (c > 0) {
        sums[2] = x->x[c] + from;
        sums[3] = x->x[c + 1] + from;
        steps[1] = x->x[c + 2] + from;
    }
    return interval_of_units(c > 0 ? STATISTIC_RATIO_OF_RATIOS : STATISTIC_RATIO, sums, steps, x->prompt + from,
                             x->unit + from, n);
}

static struct interval times(struct interval i, double factor)
{
    return (struct interval){ i.value * factor, i.low * factor, i.high * factor, i.prompts };
}

// ---- by category

// The place of a category: place.key; NULL: none. Of the groups of a query SQLite makes an index, of the rows of json_each it does not.
#define PLACES "WITH place AS MATERIALIZED (SELECT key, value FROM json_each(?3) GROUP BY value) "
#define PLACED " LEFT JOIN place ON place.value = v.category"

// The names of the categories, for PLACES.
static void put_categories(struct query *q, const struct comparison *c)
{
    struct json *names = json_new_array();
    for (int i = 0; i < c->n_categories; i++)
        json_push(names, json_new_text(c->category[i]));
    char *text = json_write(names);
    query_put(q, SQL(text));
    free(text);
    json_free(names);
}

// n rows of a run, those of each category together and in their order. first[k] to first[k + 1]: of category k, in column 1.
static struct columns rows_by_category(const struct columns *x, size_t from, size_t n, int categories, size_t *first)
{
    struct columns to = { .n = n };
    memset(first, 0, ((size_t)categories + 2) * sizeof(*first)); // shifted by one until the rows are placed
    for (size_t row = from; row < from + n; row++)
        if (!isnan(x->x[1][row]))
            first[(size_t)x->x[1][row] + 2]++;
    for (int k = 0; k < categories; k++)
        first[k + 2] += first[k + 1];
    for (int i = 0; i < MAX_COLUMNS && x->x[i] != NULL; i++)
        to.x[i] = xmalloc(n * sizeof(*to.x[i]));
    to.prompt = x->prompt != NULL ? xmalloc(n * sizeof(*to.prompt)) : NULL;
    to.unit = x->unit != NULL ? xmalloc(n * sizeof(*to.unit)) : NULL;
    for (size_t row = from; row < from + n; row++) {
        if (isnan(x->x[1][row]))
            continue;
        const size_t at = first[(size_t)x->x[1][row] + 1]++;
        for (int i = 0; i < MAX_COLUMNS && x->x[i] != NULL; i++)
            to.x[i][at] = x->x[i][row];
        if (x->unit != NULL) {
            to.prompt[at] = x->prompt[row];
            to.unit[at] = x->unit[row];
        }
    }
    return to;
}

static bool of_sums(struct store *s, struct comparison *c, struct error *err)
{
    enum { ACCEPTED = 2, DRAFTED, EXPECTED, EXPECTED_DRAFTED, TOKENS, STEPS, TTFT, FIRSTS };
    struct columns x;
    struct query *q = query_again(
        s, PLACES
        "SELECT v.run, place.key, accepted_tokens, drafted_tokens, expected_tokens, expected_drafted, step_tokens, steps, ttft_ns, first_tokens"
        " FROM run AS r JOIN sums_by_prompt AS v ON v.run = r.id" PLACED
        " WHERE r.experiment = ?1 AND r.peers = ?2 ORDER BY v.run, v.prompt");
    comparison_put(q, c);
    put_categories(q, c);
    const bool ok = columns_read(&x, q, BY_PROMPT, err);
    size_t *first = xcalloc((size_t)c->n_categories + 2, sizeof(*first));
    for (size_t i = 0, n; ok && i < x.n; i += n) {
        n = columns_alike(&x, i, 1);
        struct tally *t = run_at(c, &x, i);
        if (t == NULL)
            continue;
        struct columns of = rows_by_category(&x, i, n, c->n_categories, first);
        for (int k = 0; k < c->n_categories; k++)
            if (first[k + 1] > first[k])
                t->by_category[k].tokens_per_step =
                    columns_interval(STATISTIC_RATIO, &of, first[k], first[k + 1] - first[k], TOKENS, STEPS, 0, 0);
        columns_free(&of);
        if (!t->baseline) {
            t->acceptance_rate = columns_interval(STATISTIC_RATE, &x, i, n, ACCEPTED, DRAFTED, 0, 0);
            t->expected_rate = columns_interval(STATISTIC_RATE, &x, i, n, EXPECTED, EXPECTED_DRAFTED, 0, 0);
        }
        t->tokens_per_step = columns_interval(STATISTIC_RATIO, &x, i, n, TOKENS, STEPS, 0, 0);
        t->ttft = columns_interval(STATISTIC_RATIO, &x, i, n, TTFT, FIRSTS, 0, 0);
    }
    free(first);
    columns_free(&x);
    return ok;
}

static bool of_slices(struct store *s, struct comparison *c, struct error *err)
{
    struct columns x;
    struct query *q =
        query_again(s, "SELECT v.run, new_tokens, decode_ns, steps, prompt, unit FROM run AS r JOIN sums_by_slice AS v"
                       " ON v.run = r.id WHERE r.experiment = ?1 AND r.peers = ?2 ORDER BY v.run, prompt, unit");
    comparison_put(q, c);
    const bool ok = columns_read(&x, q, BY_UNIT, err);
    for (size_t i = 0, n; ok && i < x.n; i += n) {
        n = columns_alike(&x, i, 1);
        struct tally *t = run_at(c, &x, i);
        if (t != NULL)
            t->tokens_per_s = times(columns_speed(&x, i, n, 1, 0), 1e9);
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
    query_put(q, SQL(POSITIONS));
    const bool ok = columns_read(&x, q, BY_PROMPT, err);
    for (size_t i = 0, n; ok && i < x.n; i += n) {
        n = columns_alike(&x, i, 2);
        struct tally *t = run_at(c, &x, i);
        const int at = (int)x.x[DEPTH][i] - 1;
        if (t == NULL || total(&x, DEEP, i, n) < 1)
            continue;
        t->rate[at] = columns_interval(STATISTIC_RATE, &x, i, n, ACCEPTED, DRAFTS, 0, 0);
        t->conditional[at] = columns_interval(STATISTIC_RATE, &x, i, n, ACCEPTED, TRIED, 0, 0);
    }
    columns_free(&x);
    return ok;
}

int64_t columns_prompts(const struct columns *x, size_t from, size_t n)
{
    int64_t prompts = 0;
    for (size_t i = 0; i < n; i++)
        prompts += i == 0 || x->prompt[from + i] != x->prompt[from + i - 1];
    return prompts;
}

static bool of_pairs(struct store *s, struct comparison *c, struct error *err)
{
    enum { DECODE = 2, NONE_DECODE = DECODE + 3, ALL = NONE_DECODE + 3, NONE_ALL = ALL + 3 };
    struct columns x;
    struct query *q = query_again(
        s, PLACES
        "SELECT u.run, place.key, u.new_tokens, u.decode_ns, u.steps, u.none_new_tokens, u.none_decode_ns, u.none_steps,"
        " u.new_tokens, u.decode_ns + u.prefill_ns, u.steps, u.none_new_tokens, u.none_decode_ns + u.none_prefill_ns, u.none_steps,"
        " u.prompt, u.unit FROM run AS r JOIN speed_by_slice AS u ON u.run = r.id"
        " JOIN speed_by_prompt AS v ON v.run = u.run AND v.prompt = u.prompt" PLACED
        " WHERE r.experiment = ?1 AND r.peers = ?2 ORDER BY u.run, u.prompt, u.unit");
    comparison_put(q, c);
    put_categories(q, c);
    const bool ok = columns_read(&x, q, BY_UNIT, err);
    size_t *first = xcalloc((size_t)c->n_categories + 2, sizeof(*first));
    for (size_t i = 0, n; ok && i < x.n; i += n) {
        n = columns_alike(&x, i, 1);
        struct tally *t = run_at(c, &x, i);
        if (t == NULL)
            continue;
        t->end_to_end_speedup = columns_speed(&x, i, n, ALL, NONE_ALL);
        t->speedup = columns_speed(&x, i, n, DECODE, NONE_DECODE);
        struct columns of = rows_by_category(&x, i, n, c->n_categories, first);
        for (int k = 0; k < c->n_categories; k++) {
            if (first[k + 1] > first[k])
                t->by_category[k].speedup = columns_speed(&of, first[k], first[k + 1] - first[k], DECODE, NONE_DECODE);
            t->by_category[k].speedup_prompts = columns_prompts(&of, first[k], first[k + 1] - first[k]);
        }
        columns_free(&of);
    }
    free(first);
    columns_free(&x);
    return ok;
}

bool intervals_read(struct store *s, struct comparison *c, struct error *err)
{
    for (int i = 0; i < c->n; i++) {
        struct tally *t = &c->run[i];
        t->acceptance_rate = t->expected_rate = t->tokens_per_step = t->ttft = t->tokens_per_s = no_interval;
        t->speedup = t->end_to_end_speedup = no_interval;
        for (int k = 0; k < POSITIONS; k++)
            t->rate[k] = t->conditional[k] = no_interval;
        t->by_category = xmalloc(((size_t)c->n_categories + 1) * sizeof(*t->by_category));
        for (int k = 0; k < c->n_categories; k++)
            t->by_category[k] = (struct by_category){ no_interval, no_interval, 0 };
    }
    return of_sums(s, c, err) && of_slices(s, c, err) && of_depths(s, c, err) && of_pairs(s, c, err);
}

// ---- against another run

// The ratio of speeds of each run that is in the list.
static bool speeds_against(struct store *s, int64_t other, struct againsts *to, struct error *err)
{
    enum { RUN, PAIRED, MINE, OTHER = MINE + 3 };
    struct columns x;
    struct query *q = query_again(
        s,
        "SELECT run, in_pairs, sum(new_tokens), sum(decode_ns), sum(steps), sum(against_new_tokens), sum(against_decode_ns), sum(against_steps), prompt, unit"
        " FROM against_by_slice WHERE against = ?1 GROUP BY run, in_pairs, prompt, unit ORDER BY run, in_pairs DESC, prompt, unit");
    query_put(q, SQL(other));
    const bool ok = columns_read(&x, q, BY_UNIT, err);
    for (size_t i = 0, n; i < x.n; i += n) {
        n = columns_alike(&x, i, 2);
        for (int k = 0; k < to->n; k++)
            if (to->of[k].run == x.x[RUN][i] && to->of[k].in_pairs == (x.x[PAIRED][i] > 0))
                to->of[k].speed = columns_speed(&x, i, n, MINE, OTHER);
    }
    columns_free(&x);
    return ok;
}

bool against_read(struct store *s, int64_t other, struct againsts *to, struct error *err)
{
    enum { RUN, PAIRED, ACCEPTED, DRAFTED, STEP_TOKENS, STEPS, TTFT, FIRSTS, Y }; // and the other's from Y on
    struct columns x;
    struct query *q = query_again(
        s, "SELECT run, in_pairs, accepted_tokens, drafted_tokens, step_tokens, steps, ttft_ns, first_tokens,"
           " against_accepted_tokens, against_drafted_tokens, against_step_tokens, against_steps, against_ttft_ns,"
           " against_first_tokens FROM against_by_prompt WHERE against = ?1 ORDER BY run, in_pairs DESC, prompt");
    query_put(q, SQL(other));
    const bool ok = columns_read(&x, q, BY_PROMPT, err);
    *to = (struct againsts){ 0 };
    for (size_t i = 0, n; i < x.n;
         i += columns_alike(&x, i, 1)) { // of a run the first part: in pairs, if there are any
        n = columns_alike(&x, i, 2);
        struct against a = {
            .run = x.x[RUN][i], .prompts = (int64_t)n, .in_pairs = x.x[PAIRED][i] > 0, .speed = no_interval
        };
        a.acceptance = columns_interval(STATISTIC_DIFFERENCE, &x, i, n, ACCEPTED, DRAFTED, Y, Y + 1);
        a.acceptance.low = a.acceptance.low < -1 ? -1 : a.acceptance.low;
        a.acceptance.high = a.acceptance.high > 1 ? 1 : a.acceptance.high;
        a.tokens_per_step = columns_interval(STATISTIC_DIFFERENCE, &x, i, n, STEP_TOKENS, STEPS, Y + 2, Y + 3);
        a.ttft = columns_interval(STATISTIC_RATIO_OF_RATIOS, &x, i, n, TTFT, FIRSTS, Y + 4, Y + 5);
        to->of = xrealloc(to->of, ((size_t)to->n + 1) * sizeof(*to->of));
        to->of[to->n++] = a;
    }
    columns_free(&x);
    return ok && speeds_against(s, other, to, err);
}

const struct against *against_find(const struct againsts *a, int64_t run)
{
    for (int i = 0; i < a->n; i++)
        if (a->of[i].run == (double)run)
            return &a->of[i];
    return NULL;
}
