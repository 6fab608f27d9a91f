#include "results/columns.h"

#include <stdlib.h>

#include "core/memory.h"
#include "results/query.h"

bool columns_read(struct columns *c, struct query *q, struct error *err)
{
    *c = (struct columns){ 0 };
    for (; query_next(q); c->n++) {
        const int columns = query_columns(q) - 2;
        if (c->n == c->capacity) {
            c->capacity = next_capacity(c->capacity, c->n + 1);
            for (int i = 0; i < columns; i++)
                c->x[i] = xrealloc(c->x[i], c->capacity * sizeof(*c->x[i]));
            c->prompt = xrealloc(c->prompt, c->capacity * sizeof(*c->prompt));
            c->unit = xrealloc(c->unit, c->capacity * sizeof(*c->unit));
        }
        for (int i = 0; i < columns; i++)
            c->x[i][c->n] = query_real(q, i);
        c->prompt[c->n] = query_int(q, columns);
        c->unit[c->n] = query_int(q, columns + 1);
    }
    return query_close(q, err);
}

void columns_free(struct columns *c)
{
    for (int i = 0; i < MAX_COLUMNS; i++)
        free(c->x[i]);
    free(c->prompt);
    free(c->unit);
}

size_t columns_alike(const struct columns *c, size_t from, int keys)
{
    size_t n = 0;
    for (bool same = true; same && from + n < c->n; n += same)
        for (int k = 0; k < keys; k++)
            same = same && c->x[k][from + n] == c->x[k][from];
    return n;
}

int64_t columns_prompts(const struct columns *x, size_t from, size_t n)
{
    int64_t prompts = 0;
    for (size_t i = 0; i < n; i++)
        prompts += i == 0 || x->prompt[from + i] != x->prompt[from + i - 1];
    return prompts;
}

struct interval columns_interval(enum statistic of, const struct columns *x, size_t from, size_t n, int a, int b, int c,
                                 int d)
{
    const double *const columns[] = { x->x[a] + from, x->x[b] + from, c > 0 ? x->x[c] + from : NULL,
                                      d > 0 ? x->x[d] + from : NULL };
    return interval_of(of, columns, n);
}

struct interval columns_speed(const struct columns *x, size_t from, size_t n, int a, int c)
{
    const double *sums[4] = { x->x[a] + from, x->x[a + 1] + from }, *steps[2] = { x->x[a + 2] + from };
    if (c > 0) {
        sums[2] = x->x[c] + from;
        sums[3] = x->x[c + 1] + from;
        steps[1] = x->x[c + 2] + from;
    }
    return interval_of_units(c > 0 ? STATISTIC_RATIO_OF_RATIOS : STATISTIC_RATIO, sums, steps, x->prompt + from,
                             x->unit + from, n);
}
