// bench_rows.h - writes what `speclab bench` measured to the database (results/schema_bench.sql).
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct cost;
struct error;
struct store;

struct bench_peak_row {
    const char *kind, *isa;
    double per_second;
};

struct bench_round_row {
    bool counts;
    const char *placement;
    double foreign_share; // this and the others: NAN if unknown
    double before_read, before_read_one, before_trip_ns, after_read, after_read_one, after_trip_ns;
};

struct bench_time_row {
    int round;
    const char *what; // "pass", "draft_step", "prompt"
    int context, slots, n;
    int peer; // 0: speclab; otherwise the number of a peer, from 1
    int64_t ns;
    int64_t experts; // that the pass read, over all layers; 0: not counted, or none
};

struct bench_operation_row {
    int context, slots, n;
    const char *operation;
    double ns;
    int64_t calls;
    double bytes, flops;
};

struct bench_cost_row {
    const char *placement;
    const struct cost *cost;
};

struct bench_row {
    const char *target, *target_hash, *model_type, *activations, *cache;
    const char *draft, *draft_hash, *draft_activations; // NULL: no draft model
    const char *device, *machine, *revision, *started;
    bool marked_inflated; // the target is an inflated model (commands/checkpoint/inflate.h)
    int threads;
    int64_t weight_bytes;
    double overhead_ns, overhead_low_ns, overhead_high_ns; // NAN: not measured
    const char *const *peer;                               // names
    const struct bench_peak_row *peak;
    const struct bench_round_row *round;
    const struct bench_time_row *time;
    const struct bench_operation_row *operation;
    const struct bench_cost_row *cost;
    int peers, peaks, rounds, times, operations, costs;
};

bool store_bench(struct store *s, const struct bench_row *r, int64_t *id, struct error *err); // one transaction
