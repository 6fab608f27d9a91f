// dist.c - sums, and divisions by sums, on the grid of sampling/loops.h, where sums are exact.
#include "sampling/dist.h"

#include <assert.h>

#include "core/acceptance.h"
#include "core/draft.h"
#include "sampling/loops.h"

double dist_sum(const double *w, int n)
{
    return loops()->probabilities->sum(w, n);
}

// w := w / sum, where sum is the sum of w. Each entry is rounded down to the grid, and the difference of their sum to
// 1, which is exact, is added to the first of the largest entries: the result sums to exactly 1.
static void divide_by_sum(double *w, int n, double sum)
{
    loops()->probabilities->divide(w, n, sum);
    const double missing = 1 - dist_sum(w, n);
    if (missing != 0)
        w[loops()->probabilities->argmax(w, n)] += missing;
}

bool dist_normalize(double *w, int n)
{
    double sum = dist_sum(w, n);
    if (!(sum > 0))
        return false;
    divide_by_sum(w, n, sum);
    return true;
}

enum { CHUNK = 1024 };

// Copies a row to the grid and returns its sum. If keep, to is (n); otherwise to
// is (CHUNK) and each chunk overwrites it.
static double copy(double *to, bool keep, const float *row, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i += CHUNK)
        sum += loops()->probabilities->copy(keep ? to + i : to, row + i, n - i < CHUNK ? n - i : CHUNK);
    return sum;
}

int dist_row_argmax(const float *row, int n)
{
    int best = 0;
    for (int x = 1; x < n; x++)
        if (row[x] > row[best])
            best = x;
    return best;
}

double dist_row_sum(const float *row, int n)
{
    double scratch[CHUNK];
    return copy(scratch, false, row, n);
}

double dist_share(float entry, double sum)
{
    return grid_share(grid_round((double)entry), sum, 1 / sum); // equals copy() and divide_by_sum()
}

void dist_copy(double *to, const float *row, int n)
{
    copy(to, true, row, n);
}

void dist_from_row(double *to, const float *row, int n)
{
    double sum = copy(to, true, row, n);
    if (sum > 0 && sum != 1)
        divide_by_sum(to, n, sum);
}

// The remaining mass is summed, not computed as 1 - p[x], which consists of rounding error when p[x] is close to 1.
double dist_remove(double *p, int n, int x)
{
    double removed = p[x];
    p[x] = 0;
    double left = dist_sum(p, n);
    if (left > 0)
        divide_by_sum(p, n, left);
    else
        p[x] = removed;
    return left;
}

double dist_residual(double *p, const double *q, int n)
{
    double left = loops()->probabilities->excess(p, q, n);
    if (!(left > 0))
        return 0;
    loops()->probabilities->take_excess(p, q, n);
    divide_by_sum(p, n, left);
    return left;
}

double dist_scaled_residual(double *p, double a, const double *q, int n)
{
    if (a != 1)
        loops()->probabilities->multiply(p, n, a);
    return dist_residual(p, q, n);
}

// ---- proposals

void proposal_row(const struct draft *d, int node, int c, double *q, int vocab)
{
    int first = draft_next_child(d, node, node);
    dist_from_row(q, d->q->row(d->q, node), vocab);
    if (d->proposal[c] != SAMPLED_WITHOUT_REPLACEMENT || c == first)
        return;
    for (int s = first; s < c; s = draft_next_child(d, node, s))
        q[d->token[s]] = 0;
    dist_normalize(q, vocab);
}

double proposal_probability(const struct draft *d, int node, int c, double *work, int vocab)
{
    double m;
    if (d->proposal[c] == DETERMINISTIC)
        return 1;
    if (d->proposal[c] == SAMPLED_WITHOUT_REPLACEMENT && c != draft_next_child(d, node, node)) {
        proposal_row(d, node, c, work, vocab);
        m = work[d->token[c]];
    } else {
        const float *row = d->q->row(d->q, node);
        m = dist_share(row[d->token[c]], dist_row_sum(row, vocab));
    }
    assert(m > 0); // else the token was not sampled from this row
    return m;
}
