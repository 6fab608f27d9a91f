// bench_store.c - writes the results of a bench to the database (results/schema_bench.sql), in one transaction.
#include <math.h>

#include "commands/bench/bench.h"
#include "core/files/mapped.h"
#include "experiments/environment.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/model.h"
#include "results/query.h"

const char *const bench_kind_names[] = { "pass", "draft_step", "prompt" };

static bool put_head(const struct bench *b, struct store *s, int64_t *id, struct error *err)
{
    const struct target *t = &b->target, *d = b->draft.model != NULL ? &b->draft : NULL;
    const struct spread *outside = b->overhead[0].outside.n > 0 ? &b->overhead[0].outside : NULL;
    char hash[HASH_TEXT], draft_hash[HASH_TEXT];
    hash_write(model_hash(t->model), hash);
    if (d != NULL)
        hash_write(model_hash(d->model), draft_hash);
    return row_insert(s, "bench", id, err, COLUMN("target", t->path), COLUMN("target_hash", hash),
                      COLUMN("model_type", model_type(t->model)),
                      COLUMN("activations", activations_names[model_activations(t->model)]),
                      COLUMN("cache", type_facts[t->cache].name), COLUMN("draft", d != NULL ? d->path : NULL),
                      COLUMN("draft_hash", d != NULL ? draft_hash : NULL),
                      COLUMN("draft_activations", d != NULL ? activations_names[model_activations(d->model)] : NULL),
                      COLUMN("device", devices_name(t->devices, t->backend)), COLUMN("machine", b->machine),
                      COLUMN("revision", program_version()), COLUMN("started", b->started),
                      COLUMN("overhead_ns", outside != NULL ? outside->median : NAN),
                      COLUMN("overhead_low_ns", outside != NULL ? outside->low : NAN),
                      COLUMN("overhead_high_ns", outside != NULL ? outside->high : NAN),
                      COLUMN("threads", b->plan.threads), COLUMN("weight_bytes", (int64_t)model_bytes(t->model)),
                      COLUMN("marked_inflated", model_config(t->model)->inflated != NULL));
}

static bool put_round(const struct bench *b, struct store *s, int64_t id, int64_t r, struct error *err)
{
    const struct round *x = &b->round[r];
    const double known = b->plan.probe ? 1 : NAN;
    bool ok = row_insert(
        s, "bench_round", NULL, err, COLUMN("bench", id), COLUMN("round", r), COLUMN("counts", x->counts),
        COLUMN("placement", placement_names[x->placement]), COLUMN("foreign_share", x->foreign),
        COLUMN("before_read", known * x->before.all), COLUMN("before_read_one", known * x->before.one),
        COLUMN("before_trip_ns", known * x->before.round_trip), COLUMN("after_read", known * x->after.all),
        COLUMN("after_read_one", known * x->after.one), COLUMN("after_trip_ns", known * x->after.round_trip));
    for (int i = 0; i < b->n_measurements && ok; i++) {
        const struct measurement *m = &b->measurement[i];
        ok = row_insert(s, "bench_time", NULL, err, COLUMN("bench", id), COLUMN("round", r),
                        COLUMN("what", bench_kind_names[m->kind]), COLUMN("context", m->context),
                        COLUMN("slots", m->slots), COLUMN("n", m->n), COLUMN("peer", 0),
                        COLUMN("ns", (int64_t)m->ns[r]), { "experts", sql_or_null(m->experts) });
    }
    return ok;
}

static bool put_cost(const struct bench *b, struct store *s, int64_t id, int placement, struct error *err)
{
    const struct cost *c = &b->cost[placement];
    return c->form == COST_NONE ||
           row_insert(s, "cost", NULL, err, COLUMN("bench", id), COLUMN("placement", placement_names[placement]),
                      COLUMN("form", cost_form_names[c->form]), COLUMN("a", c->a), COLUMN("b", c->b), COLUMN("s", c->s),
                      COLUMN("n0", c->n0), COLUMN("d", c->d), COLUMN("e", c->e),
                      COLUMN("hinge_error", c->hinge_max_error), COLUMN("hinge_rms", c->hinge_rms),
                      COLUMN("table_error", c->table_max_error), COLUMN("table_rms", c->table_rms),
                      COLUMN("step_a", c->step_a), COLUMN("step_d", c->step_d), COLUMN("step_error", c->step_max_error),
                      COLUMN("u", c->u));
}

static bool put_all(const struct bench *b, struct store *s, struct error *err)
{
    int64_t id;
    bool ok = put_head(b, s, &id, err);
    for (int i = 0; i < b->n_peaks && ok; i++)
        ok = row_insert(s, "bench_peak", NULL, err, COLUMN("bench", id), COLUMN("kind", b->peak[i].kind),
                        COLUMN("isa", b->peak[i].isa), COLUMN("per_second", b->peak[i].per_second));
    for (int r = 0; r < b->n_rounds && ok; r++)
        ok = put_round(b, s, id, r, err);
    for (int p = 0; p < PLACEMENTS && ok; p++)
        ok = put_cost(b, s, id, p, err);
    return ok;
}

bool bench_store(const struct bench *b, struct store *s, struct error *err)
{
    return mapped_unchanged(err) && transaction_begin(s, err) && transaction_end(s, put_all(b, s, err), err);
}
