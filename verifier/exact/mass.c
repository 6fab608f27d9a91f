// mass.c - the sums of mass.h in loops that a compiler vectorises.
//
// A sum in one variable is sequential. Here every sum consists of LANES partial sums, which are added at the end,
// always in the same order, so the results do not depend on the width of the registers.
#include "verifier/exact/mass.h"

#include <math.h>
#include <string.h>

// The loops are also compiled for wider registers, and selected when the program starts. Sanitizers do not support
// this.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 32 };

struct lanes {
    double all[LANES], by_p[LANES], by_ratio[LANES], above[LANES];
    double surprisal[LANES], surprisal_square[LANES], log_ratio[LANES], log_ratio_square[LANES];
    float p_max[LANES], q_max[LANES];
    int32_t p_argmax[LANES], q_argmax[LANES];
};

// Returns log x, for x = 2^e m with m about 1 and log m = 2 artanh((m - 1) / (m + 1)). For normal x the error is within
// 1e-7, and 0 at 1.
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

// A NaN becomes the lower bound.
INLINE float clamp(float x, float low, float high)
{
    x = x > low ? x : low;
    return x < high ? x : high;
}

INLINE float surprisal(float p, float by)
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
        double w = (double)p[k], g = (double)surprisal(p[k], by);
        l->all[k] += w;
        l->by_p[k] += (double)before;
        l->surprisal[k] += w * g;
        l->surprisal_square[k] += w * g * g;
    }
    for (int k = 0; k < LANES; k++) {
        l->p_argmax[k] = p[k] > l->p_max[k] ? at + k : l->p_argmax[k];
        l->p_max[k] = p[k] > l->p_max[k] ? p[k] : l->p_max[k];
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
        l->q_argmax[k] = q[k] > l->q_max[k] ? at + k : l->q_argmax[k];
        l->q_max[k] = q[k] > l->q_max[k] ? q[k] : l->q_max[k];
    }
}

// A part of the row. The last entries of a row are copied and padded with zeros.
struct chunk {
    const float *p, *q;
    int from, to;
    float last_p, last_ratio; // largest values of entries that precede x
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

static int best(const float max[LANES], const int32_t at[LANES])
{
    int k = 0;
    for (int i = 1; i < LANES; i++)
        if (max[i] > max[k] || (max[i] == max[k] && at[i] < at[k]))
            k = i;
    return at[k];
}

struct mass mass_of(const float *p, const float *q, int vocab, struct mass_scale scale, int32_t token)
{
    // Ties are broken by id: ids below x precede it if "at most", ids from x on if "less than".
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
        .surprisal = sum(l.surprisal),
        .surprisal_square = sum(l.surprisal_square),
        .p_argmax = best(l.p_max, l.p_argmax),
        .by_ratio = sum(l.by_ratio),
        .above = sum(l.above),
        .log_ratio = sum(l.log_ratio),
        .log_ratio_square = sum(l.log_ratio_square),
        .q_argmax = q ? best(l.q_max, l.q_argmax) : 0,
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

float mass_surprisal(float p, struct mass_scale s)
{
    return surprisal(p, s.p);
}

float mass_log_ratio(float p, float q, struct mass_scale s)
{
    return log_ratio(mass_ratio(p, q), s.ratio);
}
