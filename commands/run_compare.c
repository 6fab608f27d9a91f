// run_compare.c - compares a run with the stored one of the same cell: texts and steps one by one, acceptance and
// speedup prompt by prompt.
//
// The interval of a stored number shows how it depends on the choice of prompts. The new run has the same prompts, so
// that part cancels between the two, and the noise of clocks remains, as far as it differs from prompt to prompt. So
// the change has its own interval, and a number is outside only if both agree: the whole interval of the new one (the
// stored value with the change's interval) is outside of the stored one.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/run_again.h"
#include "core/error.h"
#include "core/memory.h"
#include "results/columns.h"
#include "results/query.h"
#include "results/store.h"
#include "results/statistics/intervals.h"

struct comparing {
    const struct stored_run *r;
    struct store *then;    // the stored run's database, with the new one attached as `now`
    int64_t id;            // the run of `now`
    struct text *report;   // lines
    struct text verdict;   // "texts equal, steps equal"
    bool same, steps_same; // all that decides; all steps
};

static void put_verdict(struct comparing *c, const char *what, const char *is, bool same)
{
    text_printf(&c->verdict, "%s%s %s", c->verdict.n > 0 ? ", " : "", what, is);
    c->same = c->same && same;
}

// A query over both databases, with the stored run as ?1 and the new one as ?2.
static struct query *query_both(const struct comparing *c, const char *sql)
{
    struct query *q = query_open(c->then, sql);
    query_put(q, SQL(c->r->id), SQL(c->id));
    return q;
}

// ---- where both were decoded

static bool compare_places(struct comparing *c, struct error *err)
{
    static const char sql[] =
        "SELECT t.revision, n.revision, t.processor, n.processor, t.arithmetic, n.arithmetic, t.read_bytes_per_s / 1e9,"
        " n.read_bytes_per_s / 1e9, t.round_trip_ns, n.round_trip_ns, t.mhz, n.mhz FROM (SELECT 1)"
        " LEFT JOIN (SELECT * FROM environment WHERE run = ?1 ORDER BY id DESC LIMIT 1) AS t"
        " LEFT JOIN (SELECT * FROM now.environment WHERE run = ?2 ORDER BY id DESC LIMIT 1) AS n";
    static const char *const name[] = { "revision", "processor", "arithmetic", "GB/s read", "ns round trip", "MHz" };
    struct query *q = query_both(c, sql);
    const char *before = "machine    ";
    for (int i = 0, row = query_next(q); row && i < 6; i++) {
        const int was = 2 * i, is = was + 1;
        if (i < 3 && strcmp(query_text(q, was), query_text(q, is)) != 0)
            text_printf(c->report, "%-10s was %s, is %s\n", name[i], query_text(q, was), query_text(q, is));
        if (i < 3 || query_is_null(q, was) || query_is_null(q, is))
            continue;
        text_printf(c->report, "%s%s was %.*f, is %.*f", before, name[i], i == 3, query_real(q, was), i == 3,
                    query_real(q, is));
        before = "; ";
    }
    text_puts(c->report, *before == ';' ? "\n" : "");
    return query_close(q, err);
}

// ---- texts and steps

// The number of tokens that two lists "[1,2,3]" begin with alike.
static int common_tokens(const char *a, const char *b)
{
    int n = 0;
    for (; *a == *b && *a != '\0'; a++, b++)
        n += *a == ',';
    return n;
}

static void put_equal(struct comparing *c, const char *what, int64_t equal, int64_t all, const struct text *first,
                      bool decides)
{
    text_printf(c->report, "%-10s %lld of %lld are equal%s%s\n", what, (long long)equal, (long long)all,
                first->n > 0 ? first->s : "",
                decides || equal == all ? "" : " (drafts depend on other texts or clocks: it does not decide)");
    put_verdict(c, what, equal == all ? "equal" : "differ", equal == all || !decides);
}

// Every text of `now`, by its place, with the first of several of the stored run.
static bool compare_texts(struct comparing *c, struct error *err)
{
#define STEPS(schema, sequence) \
    "(SELECT count(*) || ' steps, ' || coalesce(sum(drafted), 0) || ' drafted, ' || coalesce(sum(accepted), 0) || ' accepted'" \
    " FROM " schema ".step WHERE sequence = " sequence ")"
    static const char sql[] = "SELECT prompt_id, turn, was, tokens, " STEPS("main", "w") ", " STEPS(
        "now",
        "id") " FROM (SELECT q.*, w.id AS w, w.tokens AS was"
              " FROM now.sequence AS q JOIN main.sequence AS w ON w.id = (SELECT id FROM main.sequence AS s WHERE run = ?1"
              " AND (s.prompt, s.turn, s.repeat) = (q.prompt, q.turn, q.repeat) ORDER BY pair LIMIT 1) WHERE q.run = ?2)"
              " ORDER BY prompt, repeat, turn, pair";
    int64_t n = 0, equal[2] = { 0 };  // texts; those with equal tokens, then those with equal steps
    struct text first[2] = { { 0 } }; // the first differences
    struct query *q = query_both(c, sql);
    for (; query_next(q); n++)
        for (int k = 0; k < 2; k++) {
            const char *was = query_text(q, 2 + 2 * k), *is = query_text(q, 3 + 2 * k);
            const bool same = strcmp(was, is) == 0;
            equal[k] += same;
            if (same || first[k].n > 0)
                continue;
            text_printf(&first[k], "; first difference: prompt %s, turn %lld", query_text(q, 0),
                        (long long)query_int(q, 1));
            if (k == 0)
                text_printf(&first[k], ", token %d", common_tokens(was, is));
            else
                text_printf(&first[k], ": was %s, is %s", was, is);
        }
    bool ok = query_close(q, err);
    if (ok && n == 0)
        ok = fail(err, "%s: run %lld has no text of these prompts", store_path(c->then), (long long)c->r->id);
    if (ok) {
        put_equal(c, "texts", equal[0], n, &first[0], !c->r->texts_vary);
        put_equal(c, "steps", equal[1], n, &first[1], !c->r->drafts_vary);
        c->steps_same = equal[1] == n;
    }
    free(first[0].s);
    free(first[1].s);
    return ok;
}

// ---- sums by prompt, of speeds by prompt and unit

// Rows of the prompts that both runs have, as struct columns: the new run's, which begin with 0 and have its columns
// first, then the stored one's, which begin with 1 and have its columns last. What one has for the other is 0; units
// are different times in the two.
#define BOTH(view, unit, columns, zeros) \
    "WITH n AS MATERIALIZED (SELECT prompt, " unit " AS unit, " columns " FROM now." view " WHERE run = ?2)," \
    " w AS MATERIALIZED (SELECT prompt, " unit " AS unit, " columns " FROM main." view " WHERE run = ?1)" \
    " SELECT 0, " columns ", " zeros ", prompt, unit FROM n WHERE prompt IN (SELECT prompt FROM w) UNION ALL" \
    " SELECT 1, " zeros ", " columns ", prompt, -1 - unit FROM w WHERE prompt IN (SELECT prompt FROM n)" \
    " ORDER BY 1, prompt, unit"

static void put_interval(struct text *to, const char *before, struct interval i)
{
    text_printf(to, "%s%.3f", before, i.value);
    if (!isnan(i.low))
        text_printf(to, " [%.3f, %.3f]", i.low, i.high);
}

struct number {
    const char *name, *kind; // kind: of the change
    size_t prompts;
    struct interval was, is, change;
    double low, high; // interval of the new number, given the stored one and the interval of the change
    bool equal;       // the parts that it is made of are equal
};

static void put_number(struct comparing *c, const struct number *n)
{
    const double rounding = 1e-9 * n->was.value;
    const bool known = !isnan(n->was.low) && !isnan(n->low),
               inside = known && n->low <= n->was.high + rounding && n->high >= n->was.low - rounding;
    const char *is = n->equal ? "equal" : !known ? "not known" : inside ? "inside" : "outside";
    text_printf(c->report, "%-10s on %zu prompts: ", n->name, n->prompts);
    put_interval(c->report, "was ", n->was);
    text_printf(c->report, ", is %.3f", n->is.value);
    if (!n->equal && !isnan(n->change.value))
        put_interval(c->report, n->kind, n->change);
    text_printf(c->report, ": %s\n",
                n->equal || known ? is
                : isnan(n->change.value)
                    ? "no change can be told, as the two have no prompt in common that was not disturbed"
                : n->prompts > 1 ? "one slice of time has no interval"
                                 : "one prompt has no interval");
    put_verdict(c, n->name, is, n->equal || inside || !known);
}

static void put_acceptance(struct comparing *c, const struct columns *x)
{
    const size_t n = columns_alike(x, 0, 1); // prompts of both
    const double *const both[] = { x->x[1], x->x[2], x->x[3] + n, x->x[4] + n };
    const struct interval was = columns_interval(STATISTIC_RATE, x, n, n, 3, 4, 0, 0),
                          is = columns_interval(STATISTIC_RATE, x, 0, n, 1, 2, 0, 0),
                          change = interval_of(STATISTIC_DIFFERENCE, both, n);
    if (!isnan(was.value) && !isnan(is.value)) // else nothing was drafted
        put_number(c, &(struct number){ "acceptance", ", difference ", n, was, is, change, was.value + change.low,
                                        was.value + change.high, c->steps_same });
}

static void put_speedup(struct comparing *c, const struct columns *x)
{
    const size_t n = columns_alike(x, 0, 1);
    const double *const sums[] = { x->x[1], x->x[2], x->x[4], x->x[5], x->x[7], x->x[8], x->x[10], x->x[11] },
                        *const steps[] = { x->x[3], x->x[6], x->x[9], x->x[12] };
    const struct interval was = columns_speed(x, n, x->n - n, 7, 10), is = columns_speed(x, 0, n, 1, 4),
                          change = interval_of_units(STATISTIC_CHANGE, sums, steps, x->prompt, x->unit, x->n);
    if (!isnan(was.value) || !isnan(is.value)) // else it is none
        put_number(c, &(struct number){ "speedup", ", ratio ", (size_t)columns_prompts(x, n, x->n - n), was, is, change,
                                        was.value * change.low, was.value * change.high, false });
}

// The units of the two runs are different times.
static void put_speed(struct comparing *c, const struct columns *x)
{
    const size_t n = columns_alike(x, 0, 1);
    const struct interval ratio = columns_speed(x, 0, x->n, 1, 4);
    if (isnan(ratio.value))
        return;
    text_printf(c->report, "tokens/s   was %.1f, is %.1f", 1e9 * columns_speed(x, n, x->n - n, 4, 0).value,
                1e9 * columns_speed(x, 0, n, 1, 0).value);
    put_interval(c->report, ": ratio ", ratio);
    text_puts(c->report, "\n");
}

static bool compare_sums(struct comparing *c, struct error *err)
{
    static const struct {
        const char *sql;
        void (*put)(struct comparing *c, const struct columns *x);
    } part[] = {
        { BOTH("sums_by_prompt", "0", "accepted_tokens, drafted_tokens", "0, 0"), put_acceptance },
        { BOTH("speed_by_slice", "unit", "new_tokens, decode_ns, steps, none_new_tokens, none_decode_ns, none_steps",
               "0, 0, 0, 0, 0, 0"),
          put_speedup },
        { BOTH("sums_by_slice", "unit", "new_tokens, decode_ns, steps", "0, 0, 0"), put_speed },
    };
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof(part) / sizeof(*part); i++) {
        struct columns x;
        ok = columns_read(&x, query_both(c, part[i].sql), err);
        if (ok && x.n > 0 && !(c->r->none && part[i].put == put_speedup))
            part[i].put(c, &x);
        columns_free(&x);
    }
    return ok;
}

static bool find_run(struct comparing *c, struct error *err)
{
    struct query *q = query_open(c->then, "SELECT id FROM now.run WHERE experiment = ? AND cell = ?");
    query_put(q, SQL(c->r->experiment), SQL(c->r->cell));
    c->id = query_next(q) ? query_int(q, 0) : 0;
    return query_close(q, err);
}

bool stored_run_compare(const struct stored_run *r, struct store *then, struct store *now, struct text *report,
                        bool *same, struct error *err)
{
    struct comparing c = { .r = r, .then = then, .report = report, .same = true };
    struct query *q = query_open(then, "ATTACH ?1 AS now");
    char *path = xformat("%s%s", store_path(now)[0] == '/' ? "" : "./", store_path(now)); // "file:x" is no URI
    query_put(q, SQL(path));
    free(path);
    if (!query_perform(q, err))
        return false;
    const bool ok = find_run(&c, err) && compare_places(&c, err) && compare_texts(&c, err) && compare_sums(&c, err);
    if (ok)
        text_printf(report, "%s: %s\n", c.same ? "reproduced" : "not reproduced", c.verdict.s);
    *same = c.same;
    free(c.verdict.s);
    return query_perform(query_open(then, "DETACH now"), ok ? err : &(struct error){ "" }) && ok;
}
