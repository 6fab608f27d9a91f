#include "results/predictions.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/prose.h"
#include "results/query.h"
#include "results/tables/tables.h"
#include "results/tally.h"

const char *const cost_source_names[] = { "bench", "steps" };

struct predicted {
    int64_t run, bench; // bench 0: the cost is of the steps
    double speedup, leviathan, by_position, replay, time, none, verify, draft;
    double best_length, best_length_speedup, perfect_length, perfect_drafter, perfect_rule;
};

struct predictions {
    int n;
    struct predicted *p; // (n)
};

// Views of this connection alone, of the same names and text, above a table `bench` of one row: unqualified names are looked up in the temporary
// schema first, but a view of the file sees only the file's.
static bool choose_bench(struct store *s, int64_t bench, struct error *err)
{
    static const char *const above[] = { "bench_of_run",   "bench_piece",          "cost_piece",
                                         "predicted_time", "prediction_by_length", "prediction" };
    struct query *q = query_open(s, "SELECT 1 FROM bench WHERE id = ?");
    query_put_int(q, bench);
    const bool found = query_next(q);
    if (!query_close(q, err))
        return false;
    if (!found)
        return fail_usage(err, "%s: there is no bench %lld in it", store_path(s), (long long)bench);
    char *sql = xformat("CREATE TEMP VIEW bench AS SELECT * FROM main.bench WHERE id = %lld", (long long)bench);
    bool ok = query_perform(query_open(s, sql), err);
    free(sql);
    for (size_t i = 0; i < sizeof(above) / sizeof(*above) && ok; i++) {
        q = query_open(
            s, "SELECT replace(sql, 'CREATE VIEW ', 'CREATE TEMP VIEW ') FROM main.sqlite_schema WHERE name = ?");
        query_put_text(q, above[i]);
        sql = xstrdup(query_next(q) ? query_text(q, 0) : "");
        ok = query_close(q, err) && query_perform(query_open(s, sql), err);
        free(sql);
    }
    return ok;
}

// The two sources of a run are neighbours, `bench` first; for COST_OF_EITHER the first is taken.
static bool predictions_read(struct store *s, enum cost_source source, struct predictions *to, struct error *err)
{
    struct query *q = query_open(
        s,
        "SELECT run, coalesce(bench, 0), speedup, leviathan, by_position, replay, time_factor,"
        " none_time_factor, verify_factor, draft_share, best_length, best_length_speedup, perfect_length, perfect_drafter,"
        " perfect_rule FROM prediction WHERE ?1 IS NULL OR source = ?1 ORDER BY run, source");
    query_put_text(q, source == COST_OF_EITHER ? NULL : cost_source_names[source]);
    while (query_next(q)) {
        if (to->n > 0 && to->p[to->n - 1].run == query_int(q, 0))
            continue;
        to->p = xrealloc(to->p, ((size_t)to->n + 1) * sizeof(*to->p));
        struct predicted *p = &to->p[to->n++];
        *p = (struct predicted){ .run = query_int(q, 0), .bench = query_int(q, 1) };
        double *const number[] = {
            &p->speedup,        &p->leviathan,       &p->by_position, &p->replay,      &p->time,
            &p->none,           &p->verify,          &p->draft,       &p->best_length, &p->best_length_speedup,
            &p->perfect_length, &p->perfect_drafter, &p->perfect_rule
        };
        for (int i = 0; i < (int)(sizeof(number) / sizeof(*number)); i++)
            *number[i] = query_real(q, i + 2);
    }
    return query_close(q, err);
}

static const struct predicted *of_run(const struct predictions *all, int64_t run)
{
    for (int i = 0; i < all->n; i++)
        if (all->p[i].run == run)
            return &all->p[i];
    return NULL;
}

static void put_prediction(struct text *out, const struct predicted *p)
{
    const double value[] = { p->speedup, p->leviathan, p->by_position, p->replay, p->speedup / p->replay,
                             p->none,    p->time,      p->verify,      p->draft };
    for (int k = 0; k < (int)(sizeof(value) / sizeof(*value)); k++)
        report_put_figure(out, k == 0 || k == 4 ? 10 : 8, value[k]);
}

static void put_bounds(struct text *out, const struct predicted *p)
{
    report_put_figure(out, 10, p->speedup);
    report_put_figure(out, 12, p->best_length_speedup);
    if (isnan(p->best_length))
        text_printf(out, "%8s", "-");
    else
        text_printf(out, "%8.0f", p->best_length);
    report_put_figure(out, 14, p->perfect_length);
    report_put_figure(out, 10, p->perfect_drafter);
    report_put_figure(out, 10, p->perfect_rule);
}

static const struct {
    const char *head;
    void (*put)(struct text *out, const struct predicted *p);
} tables[] = {
    { "                 speedup predicted         measured / predicted         draft\n"
      "run   measured     (a)     (b)     (c)       (c)    none     all    pass   share\n",
      put_prediction },
    { "                 best fixed             perfect\n"
      "run   measured     speedup  length        length   drafter      rule\n",
      put_bounds },
};

// Returns the number of runs that it has.
static int put_comparison(struct text *out, const struct comparison *c, const struct predictions *all, int width)
{
    int n = 0;
    char *what =
        xformat("%s: %s, %s, batch %lld%s", c->experiment, c->target, c->sampling, (long long)c->batch,
                c->batch > 1 ? "; speedups of all steps, not those in steady state as in `speclab report`" : "");
    prose_paragraph(out, 0, width, "", what);
    free(what);
    for (int i = 0; i < c->n; i++)
        if (of_run(all, c->run[i].run) != NULL) {
            char *label = xformat("%3lld%s", (long long)c->run[i].run, c->run[i].lossless ? "" : "*"),
                 *cell = xformat("%s; %s", c->run[i].drafter, c->run[i].rule);
            prose_paragraph(out, 5, width, label, cell);
            free(label);
            free(cell);
            n++;
        }
    for (int k = 0; k < (int)(sizeof(tables) / sizeof(*tables)); k++) {
        text_printf(out, "\n%s", tables[k].head);
        for (int i = 0; i < c->n; i++) {
            const struct predicted *p = of_run(all, c->run[i].run);
            if (p == NULL)
                continue;
            report_put_number(out, c, i);
            tables[k].put(out, p);
            text_puts(out, "\n");
        }
    }
    return n;
}

// Which bench, of which run numbers it predicts; or that there is none.
static void put_source(struct text *out, const struct comparison *c, const struct predictions *all, int width)
{
    struct text t = { 0 };
    for (int i = 0, before = -1; i < c->n; i++) {
        const struct predicted *p = of_run(all, c->run[i].run);
        if (p == NULL || (before >= 0 && all->p[before].bench == p->bench))
            continue;
        before = (int)(p - all->p);
        if (p->bench > 0)
            text_printf(&t, "%sCost of passes from run %lld on: bench %lld.", t.n > 0 ? " " : "", (long long)p->run,
                        (long long)p->bench);
        else
            text_printf(
                &t,
                "%sCost of passes from run %lld on: mean times of the passes of these runs, which has seen what it predicts. `speclab bench MODEL"
                " --db FILE` measures one that has not.",
                t.n > 0 ? " " : "", (long long)p->run);
    }
    text_puts(out, "\n");
    prose_paragraph(out, 0, width, "", t.n > 0 ? t.s : "");
    free(t.s);
}

static const char notes[] =
    "\n(a) Leviathan's formula with the mean acceptance: every pass costs the same. (b) acceptance by position over a pass of the mean"
    " number of rows. (c) replay: every recorded step at its own cost. Factors measured / predicted: of (c), of the times of none and of the run,"
    " (c) = none / all; and of the run's passes, rule and overhead of a pass included. draft share: of the predicted time, the drafter's own measured time."
    " Bounds, on the recorded steps: the best fixed length and its speedup, no row that is rejected, every draft accepted, and tokens that no"
    " exact rule exceeds (with record: {expected: true}).\n";

bool predictions_write(struct store *s, const struct predictions_options *o, FILE *out, struct error *err)
{
    const int width = o->width > 0 ? o->width : 80;
    struct comparisons all = { 0 };
    struct predictions predicted = { 0 };
    struct text text = { 0 };
    bool ok = (o->bench == 0 || choose_bench(s, o->bench, err)) && comparisons_read(s, o->experiment, &all, err) &&
              predictions_read(s, o->source, &predicted, err);
    int n = 0;
    for (int i = 0; i < all.n && ok; i++) {
        struct text one = { 0 };
        const int of = put_comparison(&one, &all.comparison[i], &predicted, width);
        if (of > 0) {
            text_printf(&text, "%s%s", n > 0 ? "\n\n" : "", one.s);
            put_source(&text, &all.comparison[i], &predicted, width);
        }
        n += of;
        free(one.s);
    }
    if (ok && n == 0 && o->bench > 0)
        ok = fail(
            err,
            "%s: nothing to predict: no run of a drafter that is paired with none has the weights, precision, device and machine of bench %lld",
            store_path(s), (long long)o->bench);
    else if (ok && n == 0)
        ok = fail(err, "%s: nothing to predict: no run of a drafter is paired with none%s", store_path(s),
                  o->source == COST_OF_BENCH ? " and has a bench (`speclab bench MODEL --db FILE`)" : "");
    if (ok)
        prose_paragraph(&text, 0, width, "", notes);
    comparisons_free(&all);
    free(predicted.p);
    if (ok && (fwrite(text.s, 1, text.n, out) != text.n || fflush(out) != 0))
        ok = fail(err, "the predictions could not be written: %s", strerror(errno));
    free(text.s);
    return ok;
}
