// columns.h - the rows of a query of sums by prompt and unit as columns of numbers, and intervals of parts of them (results/statistics/intervals.h).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "results/statistics/intervals.h"

struct error;
struct query;

enum { MAX_COLUMNS = 16 };

struct columns {
    size_t n, capacity;
    double *x[MAX_COLUMNS]; // (n) those of the query but the last two
    int64_t *prompt, *unit; // (n) these
};

bool columns_read(struct columns *c, struct query *q, struct error *err); // closes q; columns_free also after failure
void columns_free(struct columns *c);

// Rows from `from` on that have its values in the first `keys` columns: one run, or one depth of a run.
size_t columns_alike(const struct columns *c, size_t from, int keys);
// Prompts among n rows, those of one prompt together.
int64_t columns_prompts(const struct columns *x, size_t from, size_t n);
// The interval of n rows, with columns a to d; c and d 0: none.
struct interval columns_interval(enum statistic of, const struct columns *x, size_t from, size_t n, int a, int b, int c,
                                 int d);
// n rows have tokens, times and steps of a run, in columns that follow each other from `a` on; from `c` on those of the run that it is compared
// with, 0: none.
struct interval columns_speed(const struct columns *x, size_t from, size_t n, int a, int c);
