// bench_json.c - writes results of a bench as one JSON object, and from that object to the database
// (results/schema_bench.sql).
#include <math.h>
#include <stdlib.h>

#include "core/json.h"
#include "commands/bench/bench.h"
#include "core/files/mapped.h"
#include "experiments/machine.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/config.h"
#include "models/model.h"
#include "results/query.h"

static const char *const kind_names[] = { "pass", "draft_step", "prompt" }; // indexed by enum bench_kind

struct figures { // what one measurement in one placement says
    struct spread ns;
    double c, flops, bytes; // time over that of a pass of one row; work a second; NAN: none
};

static struct figures figures_of(const struct bench *b, const struct measurement *m, enum placement p)
{
    const struct measurement *one = m->kind != BENCH_PROMPT ? bench_find(b, BENCH_PASS, 1, 1, m->context) : NULL;
    struct figures f = { bench_ns(b, m, p), NAN, NAN, NAN };
    f.c = one != NULL ? f.ns.median / bench_ns(b, one, p).median : NAN;
    if (m->kind == BENCH_PROMPT)
        f.flops = 1e9 * bench_prompt_flops(b) / f.ns.median;
    if (m->kind == BENCH_PASS) {
        f.flops = 1e9 * bench_flops(b, m->slots, m->n, m->context) / f.ns.median;
        f.bytes = 1e9 * bench_bytes(b, m->slots, m->n, m->context) / f.ns.median;
    }
    return f;
}

static struct json *model_json(const struct speclab_target *t)
{
    if (t == NULL)
        return json_new_null();
    const struct model_config *c = model_config(t->model);
    return json_object_of(JSON("path", t->path), JSON("hash", hash_text(model_hash(t->model)).s),
                          JSON("type", model_type(t->model)),
                          JSON("activations", activations_names[model_activations(t->model)]),
                          JSON("cache", type_facts[t->cache].name), JSON("bytes", (int64_t)model_bytes(t->model)),
                          JSON("experts", c->experts), JSON("experts_used", c->experts_used),
                          JSON("expert_layers", config_mixed_layers(c)), JSON("inflated_from", c->inflated));
}

static struct json *spread_json(struct spread s)
{
    return json_object_of(JSON("rounds", s.n), JSON("median", s.median), JSON("low_quartile", s.low),
                          JSON("high_quartile", s.high), JSON("min", s.least), JSON("max", s.most));
}

static struct json *state_json(const struct bench *b, const struct machine_state *s)
{
    if (!b->plan.probe)
        return json_new_null();
    return json_object_of(JSON("bytes_per_second", s->all), JSON("bytes_per_second_one_thread", s->one),
                          JSON("round_trip_ns", s->round_trip));
}

static struct json *measurement_json(const struct bench *b, const struct measurement *m)
{
    const struct model_config *config = model_config(b->target->model);
    struct json *ns = json_new_array(),
                *j = json_object_of(JSON("what", kind_names[m->kind]), JSON("slots", m->slots), JSON("n", m->n),
                                    JSON("context", m->context), JSON("ns", ns));
    for (int i = 0; i < b->n_rounds; i++)
        json_push(ns, json_new_number(m->ns[i]));
    if (m->kind == BENCH_PASS)
        json_add(j, JSON("flops", bench_flops(b, m->slots, m->n, m->context)),
                 JSON("bytes", bench_bytes(b, m->slots, m->n, m->context)));
    if (m->kind == BENCH_PASS && bench_of_mixture(b))
        json_add(j, JSON("experts", m->experts),
                 JSON("experts_per_layer", (double)m->experts / config_mixed_layers(config)),
                 JSON("experts_per_layer_expected", config_experts_expected(config, m->slots * m->n)));
    return j;
}

static struct json *cost_json(const struct cost *c)
{
    return json_object_of(
        JSON("form", cost_form_names[c->form]),
        JSON("draft_step", isnan(c->step_a) ? json_new_null()
                                            : json_object_of(JSON("a", c->step_a), JSON("d", c->step_d),
                                                             JSON("largest_error", c->step_max_error))),
        JSON("hinge", json_object_of(JSON("a", c->a), JSON("b", c->b), JSON("s", c->s), JSON("n0", c->n0),
                                     JSON("d", c->d), JSON("e", c->e), JSON("u", c->u),
                                     JSON("largest_error", c->hinge_max_error), JSON("rms_error", c->hinge_rms))),
        JSON("table", json_object_of(JSON("largest_error", c->table_max_error), JSON("rms_error", c->table_rms))));
}

static struct json *placement_json(const struct bench *b, enum placement p)
{
    struct json *medians = json_new_array();
    for (int i = 0; i < b->n_measurements; i++) {
        const struct measurement *m = &b->measurement[i];
        const struct figures f = figures_of(b, m, p);
        json_push(medians, json_object_of(JSON("what", kind_names[m->kind]), JSON("slots", m->slots), JSON("n", m->n),
                                          JSON("context", m->context), JSON("ns", spread_json(f.ns)), JSON("c", f.c),
                                          JSON("predicted_ns", m->kind == BENCH_PASS && m->slots == 1
                                                                   ? cost_ns(&b->cost[p], m->n, m->context)
                                                                   : NAN),
                                          JSON("flops_per_second", f.flops),
                                          JSON("share_of_peak", bench_peak(b) > 0 ? f.flops / bench_peak(b) : NAN),
                                          JSON("bytes_per_second", f.bytes),
                                          JSON("share_of_read", f.bytes / bench_memory(b, p).median)));
    }
    return json_object_of(JSON("placement", placement_names[p]), JSON("rounds", b->counted[p]),
                          JSON("read_bytes_per_second", spread_json(bench_memory(b, p))), JSON("medians", medians),
                          JSON("cost", cost_json(&b->cost[p])));
}

static struct json *json_of(const struct bench *b)
{
    struct json *peaks = json_new_array(), *rounds = json_new_array(), *placements = json_new_array(),
                *measured = json_new_array(), *overheads = json_new_array();
    for (int i = 0; i < b->n_peaks; i++)
        json_push(peaks, json_object_of(JSON("kind", b->peak[i].kind), JSON("isa", b->peak[i].isa),
                                        JSON("per_second", b->peak[i].per_second)));
    for (int i = 0; i < b->n_rounds; i++) {
        const struct round *r = &b->round[i];
        json_push(rounds, json_object_of(JSON("counts", r->counts), JSON("placement", placement_names[r->placement]),
                                         JSON("foreign", r->foreign), JSON("before", state_json(b, &r->before)),
                                         JSON("after", state_json(b, &r->after))));
    }
    for (int p = 0; p < PLACEMENTS; p++)
        if (b->counted[p] > 0)
            json_push(placements, placement_json(b, (enum placement)p));
    for (int i = 0; i < b->n_measurements; i++)
        json_push(measured, measurement_json(b, &b->measurement[i]));
    for (int i = 0; i < OVERHEADS && b->overhead[i].outside.n > 0; i++)
        json_push(overheads, json_object_of(JSON("mode", b->overhead[i].mode),
                                            JSON("outside_ns", spread_json(b->overhead[i].outside)),
                                            JSON("step_ns", spread_json(b->overhead[i].all))));
    return json_object_of(JSON("model", model_json(b->target)), JSON("draft", model_json(b->draft)),
                          JSON("device", devices_name(b->target->devices, b->target->backend)),
                          JSON("machine", b->machine), JSON("revision", program_version()), JSON("started", b->started),
                          JSON("threads", b->plan.threads), JSON("text", b->plan.text), JSON("peaks", peaks),
                          JSON("foreign_limit", MAX_FOREIGN_LOAD), JSON("none_counts", b->none_counts),
                          JSON("rounds", rounds), JSON("placements", placements), JSON("measured", measured),
                          JSON("overheads", overheads));
}

void bench_json(const struct bench *b, FILE *to)
{
    json_print(json_of(b), to);
}

// ---- the database

#define ID "(SELECT max(id) FROM bench)" // id of the new row, which is written first
static const char *const rows_sql[] = {
    // ?1: the object
    "INSERT INTO bench (target, target_hash, model_type, activations, cache, weight_bytes, marked_inflated, draft, draft_hash,"
    " draft_activations, device, machine, revision, started, threads, overhead_ns, overhead_low_ns, overhead_high_ns)"
    " SELECT j->>'$.model.path', j->>'$.model.hash', j->>'$.model.type', j->>'$.model.activations', j->>'$.model.cache',"
    " j->>'$.model.bytes', j->>'$.model.inflated_from' IS NOT NULL, j->>'$.draft.path', j->>'$.draft.hash',"
    " j->>'$.draft.activations', j->>'device', j->>'machine', j->>'revision', j->>'started', j->>'threads',"
    " j->>'$.overheads[0].outside_ns.median', j->>'$.overheads[0].outside_ns.low_quartile',"
    " j->>'$.overheads[0].outside_ns.high_quartile' FROM (SELECT ?1 AS j)",
    "INSERT INTO bench_peak SELECT " ID
    ", value->>'kind', value->>'isa', value->>'per_second' FROM json_each(?1, '$.peaks')",
    "INSERT INTO bench_round SELECT " ID ", key, value->>'counts', value->>'placement', value->>'foreign',"
    " value->>'$.before.bytes_per_second', value->>'$.before.bytes_per_second_one_thread', value->>'$.before.round_trip_ns',"
    " value->>'$.after.bytes_per_second', value->>'$.after.bytes_per_second_one_thread', value->>'$.after.round_trip_ns'"
    " FROM json_each(?1, '$.rounds')",
    "INSERT INTO bench_time (bench, round, what, context, slots, n, peer, ns, experts)"
    " SELECT " ID
    ", t.key, m.value->>'what', m.value->>'context', m.value->>'slots', m.value->>'n', 0, CAST(t.value AS INTEGER),"
    " nullif(m.value->>'experts', 0) FROM json_each(?1, '$.measured') AS m, json_each(m.value, '$.ns') AS t",
    "INSERT INTO cost (bench, placement, form, a, b, s, n0, d, e, u, hinge_error, hinge_rms, table_error, table_rms, step_a,"
    " step_d, step_error) SELECT " ID ", placement, c->>'form', c->>'$.hinge.a', c->>'$.hinge.b', c->>'$.hinge.s',"
    " c->>'$.hinge.n0', c->>'$.hinge.d', c->>'$.hinge.e', c->>'$.hinge.u', c->>'$.hinge.largest_error',"
    " c->>'$.hinge.rms_error', c->>'$.table.largest_error', c->>'$.table.rms_error', c->>'$.draft_step.a',"
    " c->>'$.draft_step.d', c->>'$.draft_step.largest_error'"
    " FROM (SELECT value->>'placement' AS placement, value->'cost' AS c FROM json_each(?1, '$.placements'))"
    " WHERE c->>'form' <> 'none'",
};

bool bench_store(const struct bench *b, struct store *s, struct error *err)
{
    struct json *all = json_of(b);
    char *text = json_write(all);
    json_free(all);
    const bool begun = mapped_unchanged(err) && transaction_begin(s, err);
    bool ok = begun;
    for (size_t i = 0; i < sizeof(rows_sql) / sizeof(rows_sql[0]) && ok; i++)
        ok = query_perform(query_with(s, rows_sql[i], SQL(text)), err);
    ok = begun && transaction_end(s, ok, err);
    free(text);
    return ok;
}
