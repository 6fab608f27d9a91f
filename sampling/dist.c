// dist.c - sums, and divisions by sums.
#include "sampling/dist.h"

double dist_sum(const double *w, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += w[i];
    return sum;
}

// Divides rather than multiplies by 1 / by: a row with one entry left becomes exactly one-hot, and certain.
static void divide(double *w, int n, double by)
{
    for (int i = 0; i < n; i++)
        w[i] /= by;
}

bool dist_normalize(double *w, int n)
{
    double sum = dist_sum(w, n);
    if (!(sum > 0))
        return false;
    divide(w, n, sum);
    return true;
}

void dist_from_row(double *to, const float *row, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = row[i];
    dist_normalize(to, n);
}

// What is left is summed, never taken to be 1 - p[x], which is all rounding when p[x] is nearly everything.
void dist_strike(double *p, int n, int x)
{
    double struck = p[x];
    p[x] = 0;
    if (!dist_normalize(p, n))
        p[x] = struck;
}

void dist_residual(double *p, const double *q, int n)
{
    double left = 0;
    for (int i = 0; i < n; i++)
        left += p[i] > q[i] ? p[i] - q[i] : 0;
    if (!(left > 0))
        return;
    for (int i = 0; i < n; i++)
        p[i] = p[i] > q[i] ? (p[i] - q[i]) / left : 0;
}
