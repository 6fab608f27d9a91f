// mass.c - as mass.h says, in loops that a compiler turns into vectors.
//
// A sum in one variable must be added up one entry after the other. Here every sum is LANES sums, which grow side by
// side and are added up at the end, always in the same order: with wider registers the numbers stay the same.
#include "exact/mass.h"

#include <math.h>
#include <string.h>

// The same loops for wider registers, chosen when the program starts. Sanitizers do not get along with such a choice.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 32 };

struct lanes {
    double all[LANES], by_p[LANES], by_ratio[LANES], above[LANES];
    double surprise[LANES], surprise_square[LANES], log_ratio[LANES], log_ratio_square[LANES];
    float p_most[LANES], q_most[LANES];
    int32_t p_best[LANES], q_best[LANES];
};

// x = 2^e m with m about 1, and log m = 2 artanh((m - 1) / (m + 1)). For normal x: within 1e-7 of it, 0 at 1.
INLINE float log_of(float x)
{
    int32_t bits, sqrt_half = 0x3f3504f3;
    memcpy(&bits, &x, sizeof(bits));
    int32_t e = (bits - sqrt_half) >> 23;
    bits -= e * (1 << 23);
    float m;
    memcpy(&m, &bits, sizeof(m));
    float s = (m - 1) / (m + 1), z = s * s;
    return (float)e * 0.69314718f + 2 * s * (1 + z * (1.0f / 3 + z * (0.2f + z * (1.0f / 7))));
}

// Also of what is no number: the lower bound.
INLINE float clamp(float x, float low, float high)
{
    x = x > low ? x : low;
    return x < high ? x : high;
}

INLINE float surprise(float p, float by)
{
    return -log_of(clamp(p * by, 3.3546263e-4f, 1)); // e^-8
}

INLINE float log_ratio(float ratio, float scale)
{
    return log_of(clamp(ratio * scale, 0.049787068f, 20.085537f)); // e^-3, e^3
}

INLINE void add_p(struct lanes *restrict l, const float *restrict p, int at, float by, float last)
{
    for (int k = 0; k < LANES; k++) {
        float before = p[k] <= last ? p[k] : 0;
        double w = (double)p[k], g = (double)surprise(p[k], by);
        l->all[k] += w;
        l->by_p[k] += (double)before;
        l->surprise[k] += w * g;
        l->surprise_square[k] += w * g * g;
    }
    for (int k = 0; k < LANES; k++) {
        l->p_best[k] = p[k] > l->p_most[k] ? at + k : l->p_best[k];
        l->p_most[k] = p[k] > l->p_most[k] ? p[k] : l->p_most[k];
    }
}

INLINE void add_q(struct lanes *restrict l, const float *restrict p, const float *restrict q, int at, float scale,
                  float last)
{
    for (int k = 0; k < LANES; k++) {
        float ratio = q[k] / p[k], before = ratio <= last ? p[k] : 0, above = ratio * scale > 1 ? p[k] : 0;
        double w = (double)p[k], g = (double)log_ratio(ratio, scale);
        l->by_ratio[k] += (double)before;
        l->above[k] += (double)above;
        l->log_ratio[k] += w * g;
        l->log_ratio_square[k] += w * g * g;
    }
    for (int k = 0; k < LANES; k++) {
        l->q_best[k] = q[k] > l->q_most[k] ? at + k : l->q_best[k];
        l->q_most[k] = q[k] > l->q_most[k] ? q[k] : l->q_most[k];
    }
}

// A part of the row. Its last entries go through a copy that is filled up with what adds nothing.
struct chunk {
    const float *p, *q;
    int from, to;
    float last_p, last_ratio; // what comes before x has no more than this
};

WIDE static void add(struct lanes *l, const struct chunk *s, struct mass_scale scale)
{
    int i = s->from;
    for (; i + LANES <= s->to; i += LANES) {
        add_p(l, s->p + i, i, scale.p, s->last_p);
        if (s->q)
            add_q(l, s->p + i, s->q + i, i, scale.ratio, s->last_ratio);
    }
    if (i == s->to)
        return;
    float p[LANES] = { 0 }, q[LANES] = { 0 };
    memcpy(p, s->p + i, (size_t)(s->to - i) * sizeof(*p));
    add_p(l, p, i, scale.p, s->last_p);
    if (s->q) {
        memcpy(q, s->q + i, (size_t)(s->to - i) * sizeof(*q));
        add_q(l, p, q, i, scale.ratio, s->last_ratio);
    }
}

static double sum(const double x[LANES])
{
    double s = 0;
    for (int k = 0; k < LANES; k++)
        s += x[k];
    return s;
}

static int best(const float most[LANES], const int32_t at[LANES])
{
    int k = 0;
    for (int i = 1; i < LANES; i++)
        if (most[i] > most[k] || (most[i] == most[k] && at[i] < at[k]))
            k = i;
    return at[k];
}

struct mass mass_of(const float *p, const float *q, int vocab, struct mass_scale scale, int32_t token)
{
    // Of equals those with a smaller id come before x, so below x it is "at most", and from x on "less than".
    float own = p[token], ratio = q ? mass_ratio(own, q[token]) : 0;
    struct chunk below = { p, q, 0, token, own, ratio };
    struct chunk rest = { p, q, token, vocab, nextafterf(own, -INFINITY), nextafterf(ratio, -INFINITY) };
    struct lanes l = { 0 };
    add(&l, &below, scale);
    double by_id = sum(l.all);
    add(&l, &rest, scale);
    return (struct mass){
        .all = sum(l.all),
        .by_id = by_id,
        .by_p = sum(l.by_p),
        .surprise = sum(l.surprise),
        .surprise_square = sum(l.surprise_square),
        .p_best = best(l.p_most, l.p_best),
        .by_ratio = sum(l.by_ratio),
        .above = sum(l.above),
        .log_ratio = sum(l.log_ratio),
        .log_ratio_square = sum(l.log_ratio_square),
        .q_best = q ? best(l.q_most, l.q_best) : 0,
    };
}

float mass_ratio(float p, float q)
{
    return q / p;
}

bool mass_above(float p, float q, struct mass_scale s)
{
    return mass_ratio(p, q) * s.ratio > 1;
}

float mass_surprise(float p, struct mass_scale s)
{
    return surprise(p, s.p);
}

float mass_log_ratio(float p, float q, struct mass_scale s)
{
    return log_ratio(mass_ratio(p, q), s.ratio);
}
