// bench_store.c - writes the results of a bench to the database (results/schema_bench.sql), in one transaction.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "commands/bench/bench.h"
#include "core/files/mapped.h"
#include "experiments/environment.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/model.h"
#include "results/query.h"
#include "results/store.h"

const char *const bench_kind_names[] = { "pass", "draft_step", "prompt" };

// Performs a statement with values of these kinds: t text, i int64_t, r double (NAN: NULL).
static bool put(struct store *s, struct error *err, const char *sql, const char *kinds, ...)
{
    struct query *q = query_again(s, sql);
    va_list args;
    va_start(args, kinds);
    for (; *kinds != '\0'; kinds++)
        if (*kinds == 't')
            query_put_text(q, va_arg(args, const char *));
        else if (*kinds == 'i')
            query_put_int(q, va_arg(args, int64_t));
        else
            query_put_real(q, va_arg(args, double));
    va_end(args);
    return query_perform(q, err);
}

static bool put_head(const struct bench *b, struct store *s, int64_t *id, struct error *err)
{
    const struct target *t = &b->target, *d = b->draft.model != NULL ? &b->draft : NULL;
    const struct spread *outside = b->overhead[0].outside.n > 0 ? &b->overhead[0].outside : NULL;
    char hash[HASH_TEXT], draft_hash[HASH_TEXT];
    hash_write(model_hash(t->model), hash);
    if (d != NULL)
        hash_write(model_hash(d->model), draft_hash);
    static const char sql[] =
        "INSERT INTO bench (target, target_hash, model_type, activations, cache, draft, draft_hash, draft_activations,"
        " device, machine, revision, started, overhead_ns, overhead_low_ns, overhead_high_ns, threads, weight_bytes,"
        " marked_inflated) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    if (!put(s, err, sql, "ttttttttttttrrriii", t->path, hash, model_type(t->model),
             activations_names[model_activations(t->model)], type_facts[t->cache].name, d != NULL ? d->path : NULL,
             d != NULL ? draft_hash : NULL, d != NULL ? activations_names[model_activations(d->model)] : NULL,
             devices_name(t->devices, t->backend), b->machine, program_version(), b->started,
             outside != NULL ? outside->median : NAN, outside != NULL ? outside->low : NAN,
             outside != NULL ? outside->high : NAN, (int64_t)b->plan.threads, (int64_t)model_bytes(t->model),
             (int64_t)(model_config(t->model)->inflated != NULL)))
        return false;
    struct query *q = query_open(s, "SELECT last_insert_rowid()");
    *id = query_next(q) ? query_int(q, 0) : 0;
    return query_close(q, err);
}

static bool put_round(const struct bench *b, struct store *s, int64_t id, int64_t r, struct error *err)
{
    static const char sql[] =
        "INSERT INTO bench_round (bench, round, counts, placement, foreign_share, before_read, before_read_one,"
        " before_trip_ns, after_read, after_read_one, after_trip_ns) VALUES (?,?,?,?,?,?,?,?,?,?,?)";
    static const char time_sql[] = "INSERT INTO bench_time (bench, round, what, context, slots, n, peer, ns, experts)"
                                   " VALUES (?,?,?,?,?,?,0,?,nullif(?,0))";
    const struct round *x = &b->round[r];
    const double known = b->plan.probe ? 1 : NAN;
    bool ok = put(s, err, sql, "iiitrrrrrrr", id, r, (int64_t)x->counts, placement_names[x->placement], x->foreign,
                  known * x->before.all, known * x->before.one, known * x->before.round_trip, known * x->after.all,
                  known * x->after.one, known * x->after.round_trip);
    for (int i = 0; i < b->n_measurements && ok; i++) {
        const struct measurement *m = &b->measurement[i];
        ok = put(s, err, time_sql, "iitiiiii", id, r, bench_kind_names[m->kind], (int64_t)m->context, (int64_t)m->slots,
                 (int64_t)m->n, (int64_t)m->ns[r], m->experts);
    }
    return ok;
}

static bool put_cost(const struct bench *b, struct store *s, int64_t id, int placement, struct error *err)
{
    static const char sql[] =
        "INSERT INTO cost (bench, placement, form, a, b, s, n0, d, e, hinge_error, hinge_rms, table_error,"
        " table_rms, step_a, step_d, step_error, u) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    const struct cost *c = &b->cost[placement];
    return c->form == COST_NONE ||
           put(s, err, sql, "ittrrrrrrrrrrrrrr", id, placement_names[placement], cost_form_names[c->form], c->a, c->b,
               c->s, c->n0, c->d, c->e, c->hinge_max_error, c->hinge_rms, c->table_max_error, c->table_rms, c->step_a,
               c->step_d, c->step_max_error, c->u);
}

static bool put_all(const struct bench *b, struct store *s, struct error *err)
{
    static const char sql[] = "INSERT INTO bench_peak (bench, kind, isa, per_second) VALUES (?,?,?,?)";
    int64_t id;
    bool ok = put_head(b, s, &id, err);
    for (int i = 0; i < b->n_peaks && ok; i++)
        ok = put(s, err, sql, "ittr", id, b->peak[i].kind, b->peak[i].isa, b->peak[i].per_second);
    for (int r = 0; r < b->n_rounds && ok; r++)
        ok = put_round(b, s, id, r, err);
    for (int p = 0; p < PLACEMENTS && ok; p++)
        ok = put_cost(b, s, id, p, err);
    return ok;
}

bool bench_store(const struct bench *b, struct store *s, struct error *err)
{
    struct error ignored;
    if (!mapped_unchanged(err) || !query_perform(query_open(s, "BEGIN IMMEDIATE"), err))
        return false;
    if (put_all(b, s, err) && query_perform(query_open(s, "COMMIT"), err))
        return true;
    query_perform(query_open(s, "ROLLBACK"), &ignored); // fails if SQLite has rolled back by itself
    return false;
}
