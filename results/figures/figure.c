// figure.c - the numbers of a figure: its SQL with the chosen runs, its rows, and their intervals.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "results/figures/figures.h"
#include "results/query.h"
#include "statistics/intervals.h"

// Columns of rows: group, measure, series, x, the value, and others, among them run. Of sums: group, measure, series, x, run, and a, b, c, d.
enum { VALUE = 4, KEYS = 5, SUMS = 4 };

// ---- the SQL ----

static const char chosen[] = "WITH chosen(\"group\", series, run) AS (";

// The line that names every run becomes a list of those that are chosen.
static char *filled(const struct figure_kind *k, const struct choice *c)
{
    const char *line = strstr(k->sql, chosen);
    if (line == NULL)
        return xstrdup(k->sql);
    const char *rest = strchr(line, '\n');
    struct text t = { 0 };
    text_add(&t, k->sql, (size_t)(line - k->sql));
    text_printf(&t, "%sVALUES\n", chosen);
    for (int i = 0; i < c->n; i++) {
        text_puts(&t, "    (");
        quoted_put(&t, c->of[i].group);
        text_puts(&t, ", ");
        quoted_put(&t, c->of[i].series);
        text_printf(&t, ", %lld)%s\n", (long long)c->of[i].run, i + 1 < c->n ? "," : "");
    }
    text_printf(&t, ")%s", rest[-1] == ',' ? "," : "");
    text_puts(&t, rest);
    return t.s;
}

// The statement that lists the table `sums`, rows of one key together; NULL: the figure has none.
static char *sums_of(const char *sql)
{
    const char *last = NULL;
    if (strstr(sql, "\nsums AS (") == NULL)
        return NULL;
    for (const char *at = sql; (at = strstr(at, "\n)\nSELECT ")) != NULL; at++)
        last = at;
    const char *predicted = strstr(sql, "\n),\npredicted AS ("); // it is not needed, and takes long
    last = predicted != NULL ? predicted : last;
    return xformat(
        "%.*s\n)\nSELECT \"group\", measure, series, x, run, a, b, c, d FROM sums ORDER BY 1, 2, 3, 4, 5, prompt",
        (int)(last - sql), sql);
}

// ---- rows ----

static int column_of(const struct figure *f, const char *name)
{
    for (int i = VALUE + 1; i < f->columns; i++)
        if (strcmp(f->column[i], name) == 0)
            return i;
    return -1;
}

static bool read_rows(struct figure *f, struct store *s, struct error *err)
{
    size_t capacity = 0;
    struct query *q = query_open(s, f->sql);
    while (query_next(q)) {
        if (f->n == 0) {
            f->columns = query_columns(q);
            f->column = xcalloc((size_t)f->columns, sizeof(*f->column));
            for (int i = 0; i < f->columns; i++)
                f->column[i] = xstrdup(query_column(q, i));
        }
        if ((size_t)f->n == capacity) {
            capacity = next_capacity(capacity, (size_t)f->n + 1);
            f->row = xrealloc(f->row, capacity * sizeof(*f->row));
        }
        struct figure_row *row = &f->row[f->n++];
        *row = (struct figure_row){ .value = query_real(q, VALUE), .low = NAN, .high = NAN };
        row->cell = xcalloc((size_t)f->columns, sizeof(*row->cell));
        row->number = xcalloc((size_t)f->columns, sizeof(*row->number));
        for (int i = 0; i < f->columns; i++) {
            row->cell[i] = query_is_null(q, i) ? NULL : xstrdup(query_text(q, i));
            row->number[i] = !query_is_text(q, i);
        }
        const int low = column_of(f, "low"), high = column_of(f, "high");
        if (low >= 0 && high >= 0) {
            row->low = query_real(q, low);
            row->high = query_real(q, high);
        }
    }
    return query_close(q, err);
}

// ---- intervals ----

struct cluster { // prompts of one row
    char *key[KEYS];
    size_t n, capacity;
    double *sum[SUMS];
    bool two; // c and d as well
};

static bool same_cluster(const struct cluster *c, const struct query *q)
{
    bool same = c->key[0] != NULL;
    for (int i = 0; i < KEYS && same; i++)
        same = strcmp(c->key[i], query_text(q, i)) == 0;
    return same;
}

static void empty(struct cluster *c)
{
    for (int i = 0; i < KEYS; i++) {
        free(c->key[i]);
        c->key[i] = NULL;
    }
    c->n = 0;
}

// *from: where the search begins, behind the row of the cluster before: rows and clusters are in nearly the same order.
static void set_interval(struct figure *f, const struct cluster *c, int *from)
{
    const int run = column_of(f, "run");
    if (c->n == 0 || run < 0)
        return;
    const enum statistic of = c->two ? STATISTIC_RATIO_OF_RATIOS : f->kind->rates ? STATISTIC_RATE : STATISTIC_RATIO;
    const struct interval x =
        interval_of(of, c->sum[0], c->sum[1], c->two ? c->sum[2] : NULL, c->two ? c->sum[3] : NULL, c->n);
    for (int k = 0; k < f->n; k++) {
        struct figure_row *row = &f->row[(*from + k) % f->n];
        bool same = true;
        for (int i = KEYS - 1; i >= 0 && same; i--) {
            const char *cell = row->cell[i < VALUE ? i : run];
            same = cell != NULL && strcmp(cell, c->key[i]) == 0;
        }
        if (!same)
            continue;
        row->low = x.low;
        row->high = x.high;
        *from = (*from + k + 1) % f->n;
        return;
    }
}

static bool read_intervals(struct figure *f, struct store *s, struct error *err)
{
    char *sql = sums_of(f->sql);
    f->intervals = sql != NULL;
    if (sql == NULL)
        return true;
    struct cluster c = { 0 };
    int from = 0;
    struct query *q = query_open(s, sql);
    while (query_next(q)) {
        if (!same_cluster(&c, q)) {
            set_interval(f, &c, &from);
            empty(&c);
            for (int i = 0; i < KEYS; i++)
                c.key[i] = xstrdup(query_text(q, i));
            c.two = !query_is_null(q, KEYS + 2);
        }
        if (c.n == c.capacity) {
            c.capacity = next_capacity(c.capacity, c.n + 1);
            for (int i = 0; i < SUMS; i++)
                c.sum[i] = xrealloc(c.sum[i], c.capacity * sizeof(*c.sum[i]));
        }
        for (int i = 0; i < SUMS; i++)
            c.sum[i][c.n] = query_real(q, KEYS + i);
        c.n++;
    }
    set_interval(f, &c, &from);
    empty(&c);
    for (int i = 0; i < SUMS; i++)
        free(c.sum[i]);
    free(sql);
    return query_close(q, err);
}

bool figure_read(const struct figure_kind *k, struct store *s, const struct comparisons *all, struct figure *to,
                 struct error *err)
{
    *to = (struct figure){ .kind = k, .choice = choice_make(k, s, all) };
    to->sql = filled(k, &to->choice);
    if (k->choice != CHOOSE_NO_RUNS && to->choice.n == 0)
        return true;
    return read_rows(to, s, err) && read_intervals(to, s, err);
}

void figure_free(struct figure *f)
{
    for (int i = 0; i < f->n; i++) {
        for (int c = 0; c < f->columns; c++)
            free(f->row[i].cell[c]);
        free(f->row[i].cell);
        free(f->row[i].number);
    }
    for (int i = 0; i < f->columns; i++)
        free(f->column[i]);
    free(f->column);
    free(f->row);
    free(f->sql);
    choice_free(&f->choice);
}

// ---- panels ----

// Where a series stands among the chosen ones; those that are not runs keep the order of the rows.
static int chosen_place(const struct choice *c, const struct panel *p, const char *series)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->of[i].group, p->group) == 0 && strcmp(c->of[i].series, series) == 0)
            return i;
    return c->n;
}

static void add_series(const struct figure *f, struct panel *p, const char *series)
{
    if (place_of_name(p->series, p->n_series, series) < p->n_series)
        return;
    p->series = xrealloc(p->series, ((size_t)p->n_series + 1) * sizeof(*p->series));
    int at = p->n_series++;
    for (; at > 0 && chosen_place(&f->choice, p, p->series[at - 1]) > chosen_place(&f->choice, p, series); at--)
        p->series[at] = p->series[at - 1];
    p->series[at] = series;
}

static int group_place(const struct choice *c, const char *group)
{
    int i = 0;
    while (i < c->n && strcmp(c->of[i].group, group) != 0)
        i++;
    return i;
}

// Groups in the order of the choice, in each the measures in the order of the rows.
struct panel *figure_panels(const struct figure *f, int *n)
{
    struct panel *p = NULL;
    *n = 0;
    for (int i = 0; i < f->n; i++) {
        char *const *cell = f->row[i].cell;
        if (cell[0] == NULL || cell[1] == NULL || cell[2] == NULL || cell[3] == NULL || !isfinite(f->row[i].value))
            continue;
        int at = 0;
        while (at < *n && (strcmp(p[at].group, cell[0]) != 0 || strcmp(p[at].measure, cell[1]) != 0))
            at++;
        if (at == *n) {
            p = xrealloc(p, ((size_t)*n + 1) * sizeof(*p));
            for (; at > 0 && group_place(&f->choice, p[at - 1].group) > group_place(&f->choice, cell[0]); at--)
                p[at] = p[at - 1];
            p[at] = (struct panel){ .group = cell[0], .measure = cell[1] };
            ++*n;
        }
        add_series(f, &p[at], cell[2]);
    }
    return p;
}

void panels_free(struct panel *p, int n)
{
    for (int i = 0; i < n; i++)
        free(p[i].series);
    free(p);
}
