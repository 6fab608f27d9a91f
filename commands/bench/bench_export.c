// bench_export.c - results of a bench as one JSON object, and as CSV.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/json.h"
#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "commands/bench/bench_peer.h"
#include "commands/command_line.h"
#include "experiments/environment.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/config.h"
#include "models/model.h"

static void set_text(struct json *j, const char *key, const char *value)
{
    json_set(j, key, json_new_text(value));
}

static void set_int(struct json *j, const char *key, int64_t value)
{
    json_set(j, key, json_new_int(value));
}

static void set_number(struct json *j, const char *key, double value)
{
    json_set(j, key, json_new_number(value));
}

// The JSON of each of n things.
static struct json *list_json(const struct bench *b, int n, struct json *(*item)(const struct bench *b, int i))
{
    struct json *list = json_new_array();
    for (int i = 0; i < n; i++)
        json_push(list, item(b, i));
    return list;
}

static struct json *model_json(const struct target *t)
{
    struct json *j = json_new_object();
    char hash[HASH_TEXT];
    hash_write(model_hash(t->model), hash);
    set_text(j, "path", t->path);
    set_text(j, "hash", hash);
    set_text(j, "type", model_type(t->model));
    set_text(j, "activations", activations_names[model_activations(t->model)]);
    set_text(j, "cache", type_facts[t->cache].name);
    set_int(j, "bytes", (int64_t)model_bytes(t->model));
    set_int(j, "experts", model_config(t->model)->experts);
    set_int(j, "experts_used", model_config(t->model)->experts_used);
    set_int(j, "expert_layers", config_mixed_layers(model_config(t->model)));
    const char *inflated = model_config(t->model)->inflated;
    json_set(j, "inflated_from", inflated != NULL ? json_new_text(inflated) : json_new_null());
    return j;
}

static struct json *spread_json(struct spread s)
{
    struct json *j = json_new_object();
    set_int(j, "rounds", s.n);
    set_number(j, "median", s.median);
    set_number(j, "low_quartile", s.low);
    set_number(j, "high_quartile", s.high);
    set_number(j, "min", s.least);
    set_number(j, "max", s.most);
    return j;
}

static struct json *overheads_json(const struct bench *b)
{
    struct json *list = json_new_array();
    for (int i = 0; i < OVERHEADS && b->overhead[i].outside.n > 0; i++) {
        struct json *o = json_new_object();
        set_text(o, "mode", b->overhead[i].mode);
        json_set(o, "outside_ns", spread_json(b->overhead[i].outside));
        json_set(o, "step_ns", spread_json(b->overhead[i].all));
        json_push(list, o);
    }
    return list;
}

static struct json *machine_state_json(const struct machine_state *s)
{
    struct json *j = json_new_object();
    set_number(j, "bytes_per_second", s->all);
    set_number(j, "bytes_per_second_one_thread", s->one);
    set_number(j, "round_trip_ns", s->round_trip);
    return j;
}

static struct json *round_json(const struct bench *b, int i)
{
    const struct round *r = &b->round[i];
    struct json *j = json_new_object();
    json_set(j, "counts", json_new_bool(r->counts));
    set_text(j, "placement", placement_names[r->placement]);
    set_number(j, "foreign", r->foreign);
    json_set(j, "before", b->plan.probe ? machine_state_json(&r->before) : json_new_null());
    json_set(j, "after", b->plan.probe ? machine_state_json(&r->after) : json_new_null());
    return j;
}

static struct json *numbers_json(const double *x, int n)
{
    struct json *list = json_new_array();
    for (int i = 0; i < n; i++)
        json_push(list, json_new_number(x[i]));
    return list;
}

// What was measured.
static struct json *subject_json(const struct measurement *m)
{
    struct json *j = json_new_object();
    set_text(j, "what", bench_kind_names[m->kind]);
    set_int(j, "slots", m->slots);
    set_int(j, "n", m->n);
    set_int(j, "context", m->context);
    return j;
}

static struct json *measurement_json(const struct bench *b, int i)
{
    const struct measurement *m = &b->measurement[i];
    struct json *j = subject_json(m);
    if (m->kind == BENCH_PASS) {
        set_number(j, "flops", bench_flops(b, m->slots, m->n, m->context));
        set_number(j, "bytes", bench_bytes(b, m->slots, m->n, m->context));
    }
    if (m->kind == BENCH_PASS && bench_of_mixture(b)) {
        set_int(j, "experts", m->experts);
        set_number(j, "experts_per_layer", bench_experts(b, m));
        set_number(j, "experts_per_layer_expected", bench_experts_expected(b, m));
    }
    json_set(j, "ns", numbers_json(m->ns, b->n_rounds));
    struct json *peers = json_new_array();
    for (int e = 0; e < b->n_peers && m->peer_ns[e] != NULL; e++)
        json_push(peers, numbers_json(m->peer_ns[e], b->n_rounds));
    json_set(j, "peers_ns", peers);
    return j;
}

static struct json *cost_json(const struct cost *c)
{
    struct json *j = json_new_object(), *hinge = json_new_object(), *table = json_new_object();
    set_text(j, "form", cost_form_names[c->form]);
    set_number(hinge, "a", c->a);
    set_number(hinge, "b", c->b);
    set_number(hinge, "s", c->s);
    set_number(hinge, "n0", c->n0);
    set_number(hinge, "d", c->d);
    set_number(hinge, "e", c->e);
    set_number(hinge, "u", c->u);
    set_number(hinge, "largest_error", c->hinge_max_error);
    set_number(hinge, "rms_error", c->hinge_rms);
    set_number(table, "largest_error", c->table_max_error);
    set_number(table, "rms_error", c->table_rms);
    if (!isnan(c->step_a)) {
        struct json *step = json_new_object();
        set_number(step, "a", c->step_a);
        set_number(step, "d", c->step_d);
        set_number(step, "largest_error", c->step_max_error);
        json_set(j, "draft_step", step);
    }
    json_set(j, "hinge", hinge);
    json_set(j, "table", table);
    return j;
}

static struct json *peers_json(const struct bench *b, const struct measurement *m, enum placement p)
{
    struct json *list = json_new_array();
    for (int e = 0; e < b->n_peers && m->peer_ns[e] != NULL; e++) {
        struct json *j = json_new_object();
        json_set(j, "ns", spread_json(bench_peer_ns(b, m, e, p)));
        json_set(j, "ratio", spread_json(bench_ratio(b, m, e, p)));
        json_push(list, j);
    }
    return list;
}

static struct json *medians_json(const struct bench *b, enum placement p)
{
    struct json *list = json_new_array();
    for (int i = 0; i < b->n_measurements; i++) {
        const struct measurement *m = &b->measurement[i], *one = bench_find(b, BENCH_PASS, 1, 1, m->context);
        struct spread ns = bench_ns(b, m, p);
        struct json *j = subject_json(m);
        json_set(j, "ns", spread_json(ns));
        set_number(j, "c", m->kind == BENCH_PROMPT || one == NULL ? NAN : ns.median / bench_ns(b, one, p).median);
        set_number(j, "predicted_ns",
                   m->kind == BENCH_PASS && m->slots == 1 ? cost_ns(&b->cost[p], m->n, m->context) : NAN);
        if (m->kind == BENCH_PASS) {
            const double flops = 1e9 * bench_flops(b, m->slots, m->n, m->context) / ns.median;
            const double bytes = 1e9 * bench_bytes(b, m->slots, m->n, m->context) / ns.median;
            set_number(j, "flops_per_second", flops);
            set_number(j, "share_of_peak", bench_peak(b) > 0 ? flops / bench_peak(b) : NAN);
            set_number(j, "bytes_per_second", bytes);
            set_number(j, "share_of_read", bytes / bench_memory(b, p).median);
        }
        json_set(j, "peers", peers_json(b, m, p));
        json_push(list, j);
    }
    return list;
}

static struct json *placements_json(const struct bench *b)
{
    struct json *list = json_new_array();
    for (int p = 0; p < PLACEMENTS; p++) {
        bool always_listed = p == PLACED_S || p == PLACED_D;
        if (b->counted[p] == 0 && !(always_listed && b->plan.probe))
            continue;
        struct json *j = json_new_object();
        set_text(j, "placement", placement_names[p]);
        set_int(j, "rounds", b->counted[p]);
        if (b->counted[p] > 0) {
            json_set(j, "read_bytes_per_second", spread_json(bench_memory(b, (enum placement)p)));
            json_set(j, "medians", medians_json(b, (enum placement)p));
            json_set(j, "cost", cost_json(&b->cost[p]));
        }
        json_push(list, j);
    }
    return list;
}

static struct json *operation_json(const struct bench *b, int i)
{
    const struct operation *o = &b->operation[i];
    struct json *j = json_new_object();
    set_int(j, "slots", o->slots);
    set_int(j, "n", o->n);
    set_int(j, "context", o->context);
    set_text(j, "operation", o->name);
    set_number(j, "ns", o->ns);
    set_int(j, "calls", o->calls);
    set_number(j, "bytes", o->bytes);
    set_number(j, "flops", o->flops);
    return j;
}

static struct json *peak_json(const struct bench *b, int i)
{
    struct json *j = json_new_object();
    set_text(j, "kind", b->peak[i].kind);
    set_text(j, "isa", b->peak[i].isa);
    set_number(j, "per_second", b->peak[i].per_second);
    return j;
}

void bench_json(const struct bench *b, FILE *to)
{
    struct json *j = json_new_object();
    json_set(j, "model", model_json(&b->target));
    json_set(j, "draft", b->draft.model != NULL ? model_json(&b->draft) : json_new_null());
    set_text(j, "device", devices_name(b->target.devices, b->target.backend));
    set_text(j, "machine", b->machine);
    set_text(j, "revision", program_version());
    set_text(j, "started", b->started);
    set_int(j, "threads", b->plan.threads);
    json_set(j, "text", b->plan.text != NULL ? json_new_text(b->plan.text) : json_new_null());
    struct json *peers = json_new_array();
    for (int i = 0; i < b->n_peers; i++)
        json_push(peers, json_new_text(peer_name(b->peer[i])));
    json_set(j, "peers", peers);
    json_set(j, "peaks", list_json(b, b->n_peaks, peak_json));
    json_set(j, "none_counts", json_new_bool(b->none_counts));
    json_set(j, "rounds", list_json(b, b->n_rounds, round_json));
    json_set(j, "placements", placements_json(b));
    json_set(j, "measured", list_json(b, b->n_measurements, measurement_json));
    json_set(j, "operations", list_json(b, b->n_operations, operation_json));
    const struct spread greedy = b->overhead[0].outside;
    json_set(j, "overhead_ns", greedy.n > 0 ? spread_json(greedy) : json_new_null());
    json_set(j, "overheads", overheads_json(b));
    char *line = json_write(j);
    fprintf(to, "%s\n", line);
    free(line);
    json_free(j);
}

// ---- CSV (RFC 4180); no field needs quotes

static void put_spread(FILE *to, struct spread s)
{
    if (s.n == 0)
        fprintf(to, ",,,,,");
    else
        fprintf(to, ",%.9g,%.9g,%.9g,%.9g,%.9g", s.median, s.low, s.high, s.least, s.most);
}

// The row of an engine (0: speclab); ratio: its time over speclab's.
static void put_times(FILE *to, const struct bench *b, const struct measurement *m, int engine, enum placement p)
{
    const struct measurement *one = bench_find(b, BENCH_PASS, 1, 1, m->context);
    bool has_c = m->kind != BENCH_PROMPT && one != NULL;
    struct spread ns = engine == 0 ? bench_ns(b, m, p) : bench_peer_ns(b, m, engine - 1, p);
    double unit = !has_c ? NAN : engine == 0 ? bench_ns(b, one, p).median : bench_peer_ns(b, one, engine - 1, p).median;
    double memory = bench_memory(b, p).median;
    fprintf(to, "%s,%s,%d,%d,%d,%d", bench_kind_names[m->kind], placement_names[p], m->context, m->n, engine, ns.n);
    put_spread(to, ns);
    fprintf(to, has_c ? ",%.6g" : ",", ns.median / unit);
    if (m->kind == BENCH_PASS)
        fprintf(to, ",%.9g,%.9g", bench_flops(b, m->slots, m->n, m->context),
                bench_bytes(b, m->slots, m->n, m->context));
    else
        fprintf(to, ",,");
    fprintf(to, isnan(memory) ? "," : ",%.9g", memory);
    put_spread(to, engine == 0 ? (struct spread){ 0 } : bench_ratio(b, m, engine - 1, p));
    fprintf(to, ",%d,%d", model_config(b->target.model)->inflated != NULL, m->slots);
    if (m->kind == BENCH_PASS && engine == 0 && bench_of_mixture(b))
        fprintf(to, ",%lld,%.6g,%.6g\r\n", (long long)m->experts, bench_experts(b, m), bench_experts_expected(b, m));
    else
        fprintf(to, ",,,\r\n");
}

void bench_csv(const struct bench *b, FILE *to)
{
    fprintf(to, "what,placement,context,n,peer,rounds,ns,low_quartile_ns,high_quartile_ns,min_ns,max_ns,c,flops,"
                "bytes,read_bytes_per_second,ratio,low_quartile_ratio,high_quartile_ratio,min_ratio,max_ratio,"
                "marked_inflated,slots,experts,experts_per_layer,experts_per_layer_expected\r\n");
    for (int p = 0; p < PLACEMENTS; p++)
        for (int i = 0; i < b->n_measurements && b->counted[p] > 0; i++)
            for (int e = 0; e <= b->n_peers; e++)
                if (e == 0 || b->measurement[i].peer_ns[e - 1] != NULL)
                    put_times(to, b, &b->measurement[i], e, (enum placement)p);
}
