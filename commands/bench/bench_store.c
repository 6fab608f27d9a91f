// bench_store.c - writes the results of a bench to the database.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "commands/bench/bench_peer.h"
#include "experiments/environment.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/model.h"
#include "results/bench_rows.h"
#include "results/store.h"

const char *const bench_kind_names[] = { "pass", "draft_step", "prompt" };

static struct bench_round_row round_row(const struct bench *b, const struct round *r)
{
    struct bench_round_row row = { .counts = r->counts,
                                   .placement = placement_names[r->placement],
                                   .foreign_share = r->foreign,
                                   .before_read = r->before.all,
                                   .before_read_one = r->before.one,
                                   .before_trip_ns = r->before.round_trip,
                                   .after_read = r->after.all,
                                   .after_read_one = r->after.one,
                                   .after_trip_ns = r->after.round_trip };
    if (!b->plan.probe)
        row.before_read = row.before_read_one = row.before_trip_ns = row.after_read = row.after_read_one =
            row.after_trip_ns = NAN;
    return row;
}

// Rows of one measurement in one round, speclab's first; returns their number.
static int put_times(struct bench_time_row *to, const struct bench *b, const struct measurement *m, int round)
{
    struct bench_time_row row = { .round = round,
                                  .what = bench_kind_names[m->kind],
                                  .context = m->context,
                                  .slots = m->slots,
                                  .n = m->n,
                                  .ns = (int64_t)m->ns[round],
                                  .experts = m->experts };
    int n = 0;
    to[n++] = row;
    row.experts = 0;
    for (int e = 0; e < b->n_peers && m->peer_ns[e] != NULL; e++) {
        row.peer = e + 1;
        row.ns = (int64_t)m->peer_ns[e][round];
        to[n++] = row;
    }
    return n;
}

bool bench_store(const struct bench *b, struct store *s, struct error *err)
{
    const struct target *t = &b->target, *d = b->draft.model != NULL ? &b->draft : NULL;
    char hash[HASH_TEXT], draft_hash[HASH_TEXT] = "";
    hash_write(model_hash(t->model), hash);
    if (d != NULL)
        hash_write(model_hash(d->model), draft_hash);

    struct bench_peak_row peak[MAX_PEAKS];
    struct bench_cost_row cost[PLACEMENTS];
    struct bench_round_row *round = xcalloc((size_t)b->n_rounds + 1, sizeof(*round));
    struct bench_time_row *times =
        xcalloc((size_t)(b->n_rounds * b->n_measurements * (1 + b->n_peers)) + 1, sizeof(*times));
    const char *peer[MAX_PEERS];
    struct bench_operation_row *operation = xcalloc((size_t)b->n_operations + 1, sizeof(*operation));
    struct bench_row row = {
        .target = t->path,
        .target_hash = hash,
        .model_type = model_type(t->model),
        .activations = activations_names[model_activations(t->model)],
        .cache = type_facts[t->cache].name,
        .draft = d != NULL ? d->path : NULL,
        .draft_hash = d != NULL ? draft_hash : NULL,
        .draft_activations = d != NULL ? activations_names[model_activations(d->model)] : NULL,
        .device = devices_name(t->devices, t->backend),
        .machine = b->machine,
        .revision = program_version(),
        .started = b->started,
        .marked_inflated = model_config(t->model)->inflated != NULL,
        .threads = b->plan.threads,
        .weight_bytes = (int64_t)model_bytes(t->model),
        .overhead_ns = b->overhead[0].outside.n > 0 ? b->overhead[0].outside.median : NAN,
        .overhead_low_ns = b->overhead[0].outside.n > 0 ? b->overhead[0].outside.low : NAN,
        .overhead_high_ns = b->overhead[0].outside.n > 0 ? b->overhead[0].outside.high : NAN,
        .peer = peer,
        .peak = peak,
        .round = round,
        .time = times,
        .operation = operation,
        .cost = cost,
    };
    for (; row.peers < b->n_peers; row.peers++)
        peer[row.peers] = peer_name(b->peer[row.peers]);
    for (; row.peaks < b->n_peaks; row.peaks++)
        peak[row.peaks] =
            (struct bench_peak_row){ b->peak[row.peaks].kind, b->peak[row.peaks].isa, b->peak[row.peaks].per_second };
    for (; row.rounds < b->n_rounds; row.rounds++)
        round[row.rounds] = round_row(b, &b->round[row.rounds]);
    for (int r = 0; r < b->n_rounds; r++)
        for (int i = 0; i < b->n_measurements; i++)
            row.times += put_times(times + row.times, b, &b->measurement[i], r);
    for (; row.operations < b->n_operations; row.operations++) {
        const struct operation *o = &b->operation[row.operations];
        operation[row.operations] =
            (struct bench_operation_row){ o->context, o->slots, o->n, o->name, o->ns, o->calls, o->bytes, o->flops };
    }
    for (int p = 0; p < PLACEMENTS; p++)
        if (b->cost[p].form != COST_NONE)
            cost[row.costs++] = (struct bench_cost_row){ placement_names[p], &b->cost[p] };
    int64_t id;
    bool ok = store_bench(s, &row, &id, err);
    free(round);
    free(times);
    free(operation);
    return ok;
}
