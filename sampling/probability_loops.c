// probability_loops.c - the loops over probabilities that loops.h declares.
#include "sampling/vectors.h"

#include <float.h>

#include "core/acceptance.h"

static double copy(double *to, const float *from, int n)
{
    vd part[PARTS] = { 0 };
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        for (int k = 0; k < PARTS; k++) {
            vd v = on_grid(widen(from + i + W * k));
            save(to + i + W * k, v);
            part[k] += v;
        }
    for (int k = 0; i < n; i++, k++) {
        to[i] = grid_round((double)from[i]);
        part[k / W][k % W] += to[i];
    }
    return fold(part);
}

static double sum(const double *w, int n)
{
    vd part[PARTS] = { 0 };
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        for (int k = 0; k < PARTS; k++)
            part[k] += load(w + i + W * k);
    for (int k = 0; i < n; i++, k++)
        part[k / W][k % W] += w[i];
    return fold(part);
}

static void multiply(double *w, int n, double by)
{
    int i = 0;
    for (; i + W <= n; i += W)
        save(w + i, on_grid(load(w + i) * all(by)));
    for (; i < n; i++)
        w[i] = grid_round(w[i] * by);
}

// Computes grid_share() of each element.
INLINE vd share_of(vd v, vd sum, vd by)
{
    return choose((vu)(v == sum), all(1), below_on_grid(v * by));
}

static void divide(double *w, int n, double sum)
{
    const double by = 1 / sum;
    int i = 0;
    for (; by <= DBL_MAX && i + W <= n; i += W)
        save(w + i, share_of(load(w + i), all(sum), all(by)));
    for (; by <= DBL_MAX && i < n; i++)
        w[i] = grid_share(w[i], sum, by);
    for (; i < n; i++) // the inverse of the sum overflows
        w[i] = grid_round_down(w[i] / sum);
}

// Returns the first of the largest.
static int argmax(const double *w, int n)
{
    vd max = all(0);
    double largest = 0;
    int i = 0;
    for (; i + W <= n; i += W)
        max = larger(max, load(w + i));
    for (int k = 0; k < W; k++)
        largest = max[k] > largest ? max[k] : largest;
    for (; i < n; i++)
        largest = w[i] > largest ? w[i] : largest;
    for (i = 0; i < n - 1 && w[i] != largest;)
        i++;
    return i;
}

INLINE vd beyond(const double *p, const double *q)
{
    vd v = load(p) - load(q);
    return masked((vu)(v > all(0)), v);
}

static double excess(const double *p, const double *q, int n)
{
    vd part[PARTS] = { 0 };
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        for (int k = 0; k < PARTS; k++)
            part[k] += beyond(p + i + W * k, q + i + W * k);
    for (int k = 0; i < n; i++, k++)
        part[k / W][k % W] += grid_excess(p[i], q[i]);
    return fold(part);
}

static void take_excess(double *p, const double *q, int n)
{
    int i = 0;
    for (; i + W <= n; i += W)
        save(p + i, beyond(p + i, q + i));
    for (; i < n; i++)
        p[i] = grid_excess(p[i], q[i]);
}

extern const struct probability_loops PASTE(probability_loops_, ISA);
const struct probability_loops PASTE(probability_loops_, ISA) = {
    .copy = copy,
    .sum = sum,
    .multiply = multiply,
    .divide = divide,
    .argmax = argmax,
    .excess = excess,
    .take_excess = take_excess,
};
