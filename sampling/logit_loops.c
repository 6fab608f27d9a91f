// logit_loops.c - the loops over logits that loops.h declares.
#include "sampling/vectors.h"

#include <float.h>

// The parameters of a loop and what it accumulates.
struct loop_state {
    vd part[PARTS], rest[PARTS]; // parts of a sum: element i of each step is added to element i
    vf max_seen;
    vw numbers; // all ones in lanes without NaN and INFINITY
    double max, by;
};

typedef void step(float *x, struct loop_state *g);

// The last partial step is copied and padded with a neutral value.
INLINE void in_steps(float *x, int n, float filling, step *one, struct loop_state *g)
{
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        one(x + i, g);
    if (i == n)
        return;
    float rest[STEP];
    for (int k = 0; k < STEP; k++)
        rest[k] = i + k < n ? x[i + k] : filling;
    one(rest, g);
    memcpy(x + i, rest, (size_t)(n - i) * sizeof(*x));
}

INLINE void read_in_steps(const float *x, int n, float filling, void (*one)(const float *x, struct loop_state *g),
                          struct loop_state *g)
{
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        one(x + i, g);
    if (i == n)
        return;
    float rest[STEP];
    for (int k = 0; k < STEP; k++)
        rest[k] = i + k < n ? x[i + k] : filling;
    one(rest, g);
}

INLINE float highest(vf v)
{
    float s[2 * W], max = -INFINITY;
    memcpy(s, &v, sizeof(s));
    for (int i = 0; i < 2 * W; i++)
        max = s[i] > max ? s[i] : max;
    return max + 0.0f; // -0 becomes 0, since the two compare equal
}

INLINE void largest_step(const float *x, struct loop_state *g)
{
    for (int k = 0; k < FLOATS; k++) {
        vf v = load_floats(x + 2 * W * k);
        g->max_seen = choose_floats((vw)(v > g->max_seen), v, g->max_seen);
        g->numbers &= (vw)(v <= all_floats(FLT_MAX));
    }
}

static float largest(const float *x, int n)
{
    struct loop_state g = { .max_seen = all_floats(-INFINITY) };
    read_in_steps(x, n, -INFINITY, largest_step, &g);
    return highest(g.max_seen);
}

INLINE void sanitize_step(float *x, struct loop_state *g)
{
    (void)g;
    for (int k = 0; k < FLOATS; k++) {
        vf v = load_floats(x + 2 * W * k), max = all_floats(FLT_MAX);
        v = choose_floats((vw)(v == v), v, all_floats(-INFINITY));
        save_floats(x + 2 * W * k, choose_floats((vw)(v > max), max, v));
    }
}

// Logits are normally finite, and then nothing is written.
static float sanitize(float *x, int n)
{
    struct loop_state g = { .max_seen = all_floats(-INFINITY), .numbers = ~(vw){ 0 } };
    read_in_steps(x, n, -INFINITY, largest_step, &g);
    if (!any((vu)~g.numbers))
        return highest(g.max_seen);
    in_steps(x, n, -INFINITY, sanitize_step, &g);
    return largest(x, n);
}

INLINE void temperature_step(float *x, struct loop_state *g)
{
    for (int k = 0; k < PARTS; k++)
        narrow(x + W * k, (widen(x + W * k) - all(g->max)) * all(g->by));
}

static void temperature(float *x, int n, float max, double by)
{
    struct loop_state g = { .max = (double)max, .by = by };
    in_steps(x, n, max, temperature_step, &g);
}

// Computes grid_exp() of each element.
INLINE vd exp_of(vd x)
{
    static const double g[] = GRID_EXP_SERIES;
    const vd min = all(GRID_EXP_MIN);
    vu counts = (vu)(x >= min);
    x = larger(x, min);
    vd shifted = fused(x, all(GRID_EXP_PER_LN2), all(0x1.8p52)), n = shifted - all(0x1.8p52);
    vd r = fused(n, all(-GRID_EXP_LN2_REST), fused(n, all(-GRID_EXP_LN2), x));
    vd p = all(g[9]);
    for (int k = 8; k >= 0; k--)
        p = fused(p, r, all(g[k]));
    p = fused(p, r, all(1));
    return masked(counts, (vd)((vu)p + ((vu)shifted << 52)));
}

// Adds each element in two parts, as grid_split() does.
INLINE void add_exactly(vd e, vd *part, vd *rest)
{
    const vd whole = e + all(0x1.8p20) - all(0x1.8p20), left = e - whole;
    *part += whole;
    *rest += left + all(0x1.8p-13) - all(0x1.8p-13);
}

INLINE void exponentials_step(float *x, struct loop_state *g)
{
    for (int k = 0; k < PARTS; k++) {
        vd e = exp_of(widen(x + W * k) - all(g->max));
        narrow(x + W * k, e);
        add_exactly(e, &g->part[k], &g->rest[k]);
    }
}

static struct exact_sum exponentials(float *x, int n, float max)
{
    struct loop_state g = { .max = (double)max };
    in_steps(x, n, -INFINITY, exponentials_step, &g);
    return (struct exact_sum){ fold(g.part), fold(g.rest) };
}

INLINE void weights_step(double *to, const float *x, struct loop_state *g)
{
    for (int k = 0; k < PARTS; k++) {
        vd e = exp_of(widen(x + W * k) - all(g->max));
        save(to + W * k, e);
        add_exactly(e, &g->part[k], &g->rest[k]);
    }
}

static struct exact_sum weights(double *to, const float *x, int n, float max)
{
    struct loop_state g = { .max = (double)max };
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        weights_step(to + i, x + i, &g);
    if (i < n) {
        float rest[STEP];
        double e[STEP];
        for (int k = 0; k < STEP; k++)
            rest[k] = i + k < n ? x[i + k] : -INFINITY;
        weights_step(e, rest, &g);
        memcpy(to + i, e, (size_t)(n - i) * sizeof(*e));
    }
    return (struct exact_sum){ fold(g.part), fold(g.rest) };
}

INLINE void scale_step(float *x, struct loop_state *g)
{
    for (int k = 0; k < PARTS; k++)
        narrow(x + W * k, on_grid(widen(x + W * k) * all(g->by)));
}

static void scale(float *x, int n, double by)
{
    struct loop_state g = { .by = by };
    in_steps(x, n, 0, scale_step, &g);
}

INLINE void drop_below_step(float *x, struct loop_state *g)
{
    for (int k = 0; k < PARTS; k++) {
        vd v = widen(x + W * k);
        narrow(x + W * k, choose((vu)(v < all(g->by)), all(-INFINITY), v));
    }
}

static void drop_below(float *x, int n, double min)
{
    struct loop_state g = { .by = min };
    in_steps(x, n, 0, drop_below_step, &g);
}

static int find_at_least(const float *x, int n, float min, int32_t *index, int capacity)
{
    int found = 0;
    for (int i = 0; i < n; i += STEP) {
        if (n - i >= STEP) {
            vw found_here = { 0 };
            for (int k = 0; k < FLOATS; k++)
                found_here |= (vw)(load_floats(x + i + 2 * W * k) >= all_floats(min));
            if (!any((vu)found_here))
                continue;
        }
        for (int k = i; k < n && k < i + STEP; k++)
            if (x[k] >= min && found++ < capacity)
                index[found - 1] = k;
    }
    return found;
}

extern const struct logit_loops PASTE(logit_loops_, ISA);
const struct logit_loops PASTE(logit_loops_, ISA) = {
    .sanitize = sanitize,
    .largest = largest,
    .temperature = temperature,
    .exponentials = exponentials,
    .weights = weights,
    .scale = scale,
    .drop_below = drop_below,
    .find_at_least = find_at_least,
};
