// exact_rows.h - writes what `speclab exact` found to the database (results/schema_exact.sql), and reads unfinished sums
// back.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct store;

struct exact_rule_row {
    const char *rule, *verdict, *revision;
    bool declared_exact;
    int64_t instances, outcomes;
    double distance, formula_error;
};
bool store_exact_rule(struct store *s, const struct exact_rule_row *r, struct error *err);

struct exact_row {
    const char *experiment, *cell, *settings, *target, *drafter, *rule, *sampling, *machine, *revision;
    bool lossless;
    int batch;
    uint64_t seed;
};
struct exact_sums { // of sequences 0 .. sequences - 1
    int64_t sequences, tokens, steps;
    double max_log_e;
    double *sum; // (n)
    size_t n;
};
// Finds or creates the cell's row and reads its sums; sums stay as they are if the row has none or of another size.
bool store_exact(struct store *s, const struct exact_row *r, int64_t *id, struct exact_sums *sums, struct error *err);
bool store_exact_sums(struct store *s, int64_t id, const struct exact_sums *sums, struct error *err);
