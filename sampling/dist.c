// dist.c - sums, and divisions by sums.
#include "sampling/dist.h"

#include "sampling/loops.h"

double dist_sum(const double *w, int n)
{
    return loops()->sum(w, n);
}

bool dist_normalize(double *w, int n)
{
    double sum = dist_sum(w, n);
    if (!(sum > 0))
        return false;
    loops()->divide(w, n, sum);
    return true;
}

enum { AT_ONCE = 1024 };

// to: (n), or room for AT_ONCE which is used again and again
static double copy(double *to, bool whole, const float *row, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i += AT_ONCE)
        sum += loops()->copy(whole ? to + i : to, row + i, n - i < AT_ONCE ? n - i : AT_ONCE);
    return sum;
}

double dist_row_sum(const float *row, int n)
{
    double room[AT_ONCE];
    return copy(room, false, row, n);
}

double dist_share(float entry, double sum)
{
    return (double)entry == sum ? 1 : (double)entry * (1 / sum);
}

void dist_from_row(double *to, const float *row, int n)
{
    double sum = copy(to, true, row, n);
    if (sum > 0 && sum != 1)
        loops()->divide(to, n, sum);
}

// What is left is summed, never taken to be 1 - p[x], which is all rounding when p[x] is nearly everything.
double dist_strike(double *p, int n, int x)
{
    double struck = p[x];
    p[x] = 0;
    double left = dist_sum(p, n);
    if (left > 0)
        loops()->divide(p, n, left);
    else
        p[x] = struck;
    return left;
}

double dist_residual(double *p, const double *q, int n)
{
    double left = loops()->excess(p, q, n);
    if (!(left > 0))
        return 0;
    loops()->take_excess(p, q, n);
    loops()->divide(p, n, left);
    return left;
}

double dist_scaled_residual(double *p, double a, const double *q, int n)
{
    for (int i = 0; i < n && a != 1; i++)
        p[i] *= a;
    return dist_residual(p, q, n);
}
