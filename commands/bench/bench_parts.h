// bench_parts.h - what the files of the bench share with one another and with nobody else.
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "core/error.h"

struct bench;
struct store;

// bench_operations.c: rounds in which the backend keeps account, apart from those whose totals count.
bool bench_operations(struct bench *b, struct error *err);
bool bench_overhead(struct bench *b, struct error *err);

// What came out: bench_table.c for people, bench_export.c for programs.
void bench_table(const struct bench *b, FILE *to);
void bench_csv(const struct bench *b, FILE *to);
void bench_json(const struct bench *b, FILE *to);
// bench_store.c: into the database.
bool bench_store(const struct bench *b, struct store *s, struct error *err);
extern const char *const measured_names[]; // "pass", "draft_step", "prompt": of enum measured
