// bench_parts.h - internal interfaces of commands/bench.
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "core/error.h"

struct bench;
struct store;

// bench_operations.c: passes with operations timed one by one, separate from the rounds that count.
bool bench_operations(struct bench *b, struct error *err);
bool bench_overhead(struct bench *b, struct error *err);

// Output: bench_table.c as text, bench_export.c as CSV and JSON.
void bench_table(const struct bench *b, FILE *to);
void bench_csv(const struct bench *b, FILE *to);
void bench_json(const struct bench *b, FILE *to);
// bench_store.c: writes the results to the database.
bool bench_store(const struct bench *b, struct store *s, struct error *err);
extern const char *const bench_kind_names[]; // of enum bench_kind: "pass", "draft_step", "prompt"
