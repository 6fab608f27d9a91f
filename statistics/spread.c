#include "statistics/spread.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The p-quantile of sorted numbers, by linear interpolation.
static double quantile(const double *x, int n, double p)
{
    double at = p * (n - 1);
    int below = (int)at, above = below + 1 < n ? below + 1 : below;
    return x[below] + (at - below) * (x[above] - x[below]);
}

struct spread spread_of(const double *x, int n)
{
    struct spread s = { 0, NAN, NAN, NAN, NAN, NAN };
    double *sorted = xcalloc((size_t)n + 1, sizeof(*sorted));
    for (int i = 0; i < n; i++)
        if (!isnan(x[i]))
            sorted[s.n++] = x[i];
    qsort(sorted, (size_t)s.n, sizeof(*sorted), ascending);
    if (s.n > 0)
        s = (struct spread){ s.n,
                             quantile(sorted, s.n, 0.5),
                             quantile(sorted, s.n, 0.25),
                             quantile(sorted, s.n, 0.75),
                             sorted[0],
                             sorted[s.n - 1] };
    free(sorted);
    return s;
}
