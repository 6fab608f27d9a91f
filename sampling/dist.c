// dist.c - sums, and divisions by sums. All of it on the grid of sampling/loops.h, on which sums are exact.
#include "sampling/dist.h"

#include "core/grid.h"
#include "sampling/loops.h"

double dist_sum(const double *w, int n)
{
    return loops()->sum(w, n);
}

// w := w / whole, whole being its sum. Every share is rounded down to the grid, and what is missing of 1, exactly, goes to
// the first of the largest: so what is left is a distribution, to the last bit.
static void share_out(double *w, int n, double whole)
{
    loops()->divide(w, n, whole);
    const double missing = 1 - dist_sum(w, n);
    if (missing != 0)
        w[loops()->argmax(w, n)] += missing;
}

bool dist_normalize(double *w, int n)
{
    double sum = dist_sum(w, n);
    if (!(sum > 0))
        return false;
    share_out(w, n, sum);
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
    double capacity[AT_ONCE];
    return copy(capacity, false, row, n);
}

double dist_share(float entry, double sum)
{
    double w = grid_of((double)entry); // as copied
    loops()->divide(&w, 1, sum);
    return w;
}

void dist_copy(double *to, const float *row, int n)
{
    copy(to, true, row, n);
}

void dist_from_row(double *to, const float *row, int n)
{
    double sum = copy(to, true, row, n);
    if (sum > 0 && sum != 1)
        share_out(to, n, sum);
}

// What is left is summed, never taken to be 1 - p[x], which is all rounding when p[x] is nearly everything.
double dist_strike(double *p, int n, int x)
{
    double struck = p[x];
    p[x] = 0;
    double left = dist_sum(p, n);
    if (left > 0)
        share_out(p, n, left);
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
    share_out(p, n, left);
    return left;
}

double dist_scaled_residual(double *p, double a, const double *q, int n)
{
    if (a != 1)
        loops()->multiply(p, n, a);
    return dist_residual(p, q, n);
}
