#include "exact/transport.h"

#include <math.h>
#include <stdlib.h>

struct rows_of {
    const double *p, *q;
};

// Ascending p / q, without a division, so that q = 0 comes last.
static int compare(const void *a, const void *b, void *rows)
{
    const struct rows_of *r = rows;
    const int x = *(const int *)a, y = *(const int *)b;
    const double left = r->p[x] * r->q[y], right = r->p[y] * r->q[x];
    return left < right ? -1 : left > right ? 1 : (x > y) - (x < y);
}

double transport_sampled(const double *p, const double *q, int vocab, int k, int *order)
{
    struct rows_of rows = { p, q };
    int n = 0;
    for (int i = 0; i < vocab; i++)
        if (q[i] > 0)
            order[n++] = i;
    qsort_r(order, (size_t)n, sizeof(*order), compare, &rows);
    double bound = 1, of_p = 0, of_q = 0;
    for (int i = 0; i < n; i++) {
        of_p += p[order[i]];
        of_q += q[order[i]];
        bound = fmin(bound, of_p + 1 - pow(fmin(of_q, 1), k));
    }
    return bound;
}

double transport_deterministic(const double *p, const int *token, int k)
{
    double sum = 0;
    for (int i = 0; i < k; i++) {
        int before = 0;
        while (before < i && token[before] != token[i])
            before++;
        sum += before == i ? p[token[i]] : 0;
    }
    return sum;
}
