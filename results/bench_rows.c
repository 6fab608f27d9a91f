#include "results/bench_rows.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/cost.h"
#include "results/query.h"
#include "results/store.h"

static void put_texts(struct query *q, const char *const *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        query_put_text(q, text[i]);
}

static void put_reals(struct query *q, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        query_put_real(q, x[i]);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// ---- writing

static bool put_head(struct store *s, const struct bench_row *r, int64_t *id, struct error *err)
{
    const char *const text[] = { r->target, r->target_hash, r->model_type, r->activations,
                                 r->cache,  r->draft,       r->draft_hash, r->draft_activations,
                                 r->device, r->machine,     r->revision,   r->started };
    const double real[] = { r->overhead_ns, r->overhead_low_ns, r->overhead_high_ns };
    struct query *q = query_open(
        s,
        "INSERT INTO bench (target, target_hash, model_type, activations, cache, draft, draft_hash, draft_activations,"
        " device, machine, revision, started, overhead_ns, overhead_low_ns, overhead_high_ns, threads, weight_bytes,"
        " marked_inflated) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING id");
    put_texts(q, text, COUNT(text));
    put_reals(q, real, COUNT(real));
    query_put_int(q, r->threads);
    query_put_int(q, r->weight_bytes);
    query_put_int(q, r->marked_inflated);
    while (query_next(q))
        *id = query_int(q, 0);
    return query_close(q, err);
}

static bool put_peer(struct store *s, int64_t bench, int number, const char *name, struct error *err)
{
    struct query *q = query_open(s, "INSERT INTO bench_peer (bench, peer, name) VALUES (?,?,?)");
    query_put_int(q, bench);
    query_put_int(q, number);
    query_put_text(q, name);
    return query_perform(q, err);
}

static bool put_peak(struct store *s, int64_t bench, const struct bench_peak_row *r, struct error *err)
{
    struct query *q = query_open(s, "INSERT INTO bench_peak (bench, kind, isa, per_second) VALUES (?,?,?,?)");
    query_put_int(q, bench);
    query_put_text(q, r->kind);
    query_put_text(q, r->isa);
    query_put_real(q, r->per_second);
    return query_perform(q, err);
}

static bool put_round(struct store *s, int64_t bench, int number, const struct bench_round_row *r, struct error *err)
{
    const double real[] = { r->foreign_share, r->before_read,    r->before_read_one, r->before_trip_ns,
                            r->after_read,    r->after_read_one, r->after_trip_ns };
    struct query *q = query_open(
        s, "INSERT INTO bench_round (bench, round, counts, placement, foreign_share, before_read, before_read_one,"
           " before_trip_ns, after_read, after_read_one, after_trip_ns) VALUES (?,?,?,?,?,?,?,?,?,?,?)");
    query_put_int(q, bench);
    query_put_int(q, number);
    query_put_int(q, r->counts);
    query_put_text(q, r->placement);
    put_reals(q, real, COUNT(real));
    return query_perform(q, err);
}

static const char time_sql[] =
    "INSERT INTO bench_time (bench, round, what, context, slots, n, peer, ns, experts) VALUES (?,?,?,?,?,?,?,?,nullif(?,0))";

static bool put_time(struct store *s, int64_t bench, const struct bench_time_row *r, struct error *err)
{
    struct query *q = query_again(s, time_sql);
    query_put_int(q, bench);
    query_put_int(q, r->round);
    query_put_text(q, r->what);
    query_put_int(q, r->context);
    query_put_int(q, r->slots);
    query_put_int(q, r->n);
    query_put_int(q, r->peer);
    query_put_int(q, r->ns);
    query_put_int(q, r->experts);
    return query_perform(q, err);
}

static const char operation_sql[] =
    "INSERT INTO bench_operation (bench, context, slots, n, operation, ns, calls, bytes, flops)"
    " VALUES (?,?,?,?,?,?,?,?,?)";

static bool put_operation(struct store *s, int64_t bench, const struct bench_operation_row *r, struct error *err)
{
    struct query *q = query_again(s, operation_sql);
    query_put_int(q, bench);
    query_put_int(q, r->context);
    query_put_int(q, r->slots);
    query_put_int(q, r->n);
    query_put_text(q, r->operation);
    query_put_real(q, r->ns);
    query_put_int(q, r->calls);
    query_put_real(q, r->bytes);
    query_put_real(q, r->flops);
    return query_perform(q, err);
}

static bool put_cost(struct store *s, int64_t bench, const struct bench_cost_row *r, struct error *err)
{
    const struct cost *c = r->cost;
    const double real[] = { c->a,
                            c->b,
                            c->s,
                            c->n0,
                            c->d,
                            c->e,
                            c->hinge_max_error,
                            c->hinge_rms,
                            c->table_max_error,
                            c->table_rms,
                            c->step_a,
                            c->step_d,
                            c->step_max_error,
                            c->u };
    struct query *q = query_open(
        s, "INSERT INTO cost (bench, placement, form, a, b, s, n0, d, e, hinge_error, hinge_rms, table_error,"
           " table_rms, step_a, step_d, step_error, u) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    query_put_int(q, bench);
    query_put_text(q, r->placement);
    query_put_text(q, cost_form_names[c->form]);
    put_reals(q, real, COUNT(real));
    return query_perform(q, err);
}

static bool put_all(struct store *s, const struct bench_row *r, int64_t *id, struct error *err)
{
    bool ok = put_head(s, r, id, err);
    for (int i = 0; i < r->peers && ok; i++)
        ok = put_peer(s, *id, i + 1, r->peer[i], err);
    for (int i = 0; i < r->peaks && ok; i++)
        ok = put_peak(s, *id, &r->peak[i], err);
    for (int i = 0; i < r->rounds && ok; i++)
        ok = put_round(s, *id, i, &r->round[i], err);
    for (int i = 0; i < r->times && ok; i++)
        ok = put_time(s, *id, &r->time[i], err);
    for (int i = 0; i < r->operations && ok; i++)
        ok = put_operation(s, *id, &r->operation[i], err);
    for (int i = 0; i < r->costs && ok; i++)
        ok = put_cost(s, *id, &r->cost[i], err);
    return ok;
}

bool store_bench(struct store *s, const struct bench_row *r, int64_t *id, struct error *err)
{
    struct error ignored;
    if (!query_perform(query_open(s, "BEGIN IMMEDIATE"), err))
        return false;
    if (put_all(s, r, id, err) && query_perform(query_open(s, "COMMIT"), err))
        return true;
    query_perform(query_open(s, "ROLLBACK"), &ignored); // fails if SQLite has rolled back by itself
    return false;
}
