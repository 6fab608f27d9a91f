// columns.h - the rows of a query of sums by prompt and unit as columns of numbers, and intervals over parts of them
// (results/statistics/intervals.h).
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
    double *x[MAX_COLUMNS]; // (n) columns of the query, except the last two
    int64_t *prompt, *unit; // (n) the last two columns
};

bool columns_read(struct columns *c, struct query *q, struct error *err); // closes q; columns_free also after failure
void columns_free(struct columns *c);

// Returns the number of rows, from `from` on, with that row's values in the first `keys` columns: one run, or one depth
// of a run.
size_t columns_alike(const struct columns *c, size_t from, int keys);
// Returns the number of prompts among n rows. The rows of a prompt are adjacent.
int64_t columns_prompts(const struct columns *x, size_t from, size_t n);
// Returns the interval of n rows, with columns a to d; c and d 0: none.
struct interval columns_interval(enum statistic of, const struct columns *x, size_t from, size_t n, int a, int b, int c,
                                 int d);
// Returns the interval of a speed, or of a ratio of speeds. n rows have tokens, times and steps of a run, in
// consecutive columns from `a` on; those of the run that it is compared with follow from `c` on; 0: none.
struct interval columns_speed(const struct columns *x, size_t from, size_t n, int a, int c);
