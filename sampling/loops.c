// loops.c - the loops of loops.h. CMakeLists.txt compiles this file once per instruction set, whose name is LANES.
#include "sampling/loops.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// W: doubles per register. INTERLEAVE: the lower and upper half of a0 b0 a1 b1 .. for registers a and b.
#if defined(__AVX512F__)
enum { W = 8 };
#define INTERLEAVE_LOW \
    (vu) \
    { \
        0, 8, 1, 9, 2, 10, 3, 11 \
    }
#define INTERLEAVE_HIGH \
    (vu) \
    { \
        4, 12, 5, 13, 6, 14, 7, 15 \
    }
#elif defined(__AVX2__)
enum { W = 4 };
#define INTERLEAVE_LOW \
    (vu) \
    { \
        0, 4, 1, 5 \
    }
#define INTERLEAVE_HIGH \
    (vu) \
    { \
        2, 6, 3, 7 \
    }
#else
enum { W = 2 };
#define INTERLEAVE_LOW \
    (vu) \
    { \
        0, 2 \
    }
#define INTERLEAVE_HIGH \
    (vu) \
    { \
        1, 3 \
    }
#endif
enum {
    STEP = LOOP_STEP,
    PARTS = STEP / W,
    FLOATS = STEP / (2 * W)
}; // registers for the doubles of a step, for its floats

typedef double vd __attribute__((vector_size(8 * W)));
typedef uint64_t vu __attribute__((vector_size(8 * W)));
typedef float vf __attribute__((vector_size(8 * W)));
typedef uint32_t vw __attribute__((vector_size(8 * W)));
typedef int32_t vi __attribute__((vector_size(8 * W)));
typedef float half __attribute__((vector_size(4 * W))); // as many floats as a register has doubles

typedef double vd_any __attribute__((vector_size(8 * W), aligned(8), may_alias));
typedef float vf_any __attribute__((vector_size(8 * W), aligned(4), may_alias));
typedef float half_any __attribute__((vector_size(4 * W), aligned(4), may_alias));

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define QUOTE_(a) #a
#define QUOTE(a) QUOTE_(a)
#define INLINE static inline __attribute__((always_inline))

INLINE vd load(const double *p)
{
    return *(const vd_any *)p;
}

INLINE void save(double *p, vd v)
{
    *(vd_any *)p = v;
}

INLINE vf load_floats(const float *p)
{
    return *(const vf_any *)p;
}

INLINE void save_floats(float *p, vf v)
{
    *(vf_any *)p = v;
}

INLINE vd widen(const float *p)
{
#if defined(__AVX512F__)
    return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(p)); // GCC 12 would do it in halves
#else
    return __builtin_convertvector((half) * (const half_any *)p, vd);
#endif
}

INLINE void narrow(float *p, vd v)
{
    *(half_any *)p = __builtin_convertvector(v, half);
}

INLINE vd all(double x)
{
    return x - (vd){ 0 };
}

INLINE vf all_floats(float x)
{
    return x - (vf){ 0 };
}

INLINE vd masked(vu where, vd v)
{
    return (vd)((vu)v & where);
}

INLINE vd choose(vu where, vd yes, vd no)
{
    return (vd)(((vu)yes & where) | ((vu)no & ~where));
}

INLINE vf choose_floats(vw where, vf yes, vf no)
{
    return (vf)(((vw)yes & where) | ((vw)no & ~where));
}

INLINE vd larger(vd a, vd b)
{
#if defined(__AVX512F__)
    return (vd)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    return (vd)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
    return choose((vu)(a > b), a, b);
#endif
}

// a * b + c, rounded once. Without a hardware instruction the library function is slow.
INLINE vd fused(vd a, vd b, vd c)
{
#if defined(__AVX512F__)
    return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
    return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return (vd){ fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1]) };
#endif
}

// grid_round() of each element.
INLINE vd on_grid(vd v)
{
    return v + all(1) - all(1);
}

// grid_round_down() of each element.
INLINE vd below_on_grid(vd v)
{
    const vd near = on_grid(v);
    return near - masked((vu)(near > v), all(0x1p-52));
}

INLINE bool any(vu where)
{
#if defined(__AVX512F__)
    return _mm512_test_epi64_mask((__m512i)where, (__m512i)where) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)where, (__m256i)where);
#else
    return (where[0] | where[1]) != 0;
#endif
}

// ---- a row in steps

// Parameters of a loop and what it accumulates.
struct loop_state {
    vd part[PARTS], rest[PARTS]; // of a sum: element i of each step is added to element i
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

INLINE double fold(const vd part[PARTS])
{
    double s[STEP];
    memcpy(s, part, sizeof(s));
    for (int n = STEP / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}

INLINE float highest(vf v)
{
    float s[2 * W], max = -INFINITY;
    memcpy(s, &v, sizeof(s));
    for (int i = 0; i < 2 * W; i++)
        max = s[i] > max ? s[i] : max;
    return max + 0.0f; // -0 becomes 0, as the two compare equal
}

// ---- logits

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

// grid_exp() of each element.
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

static void multiply(double *w, int n, double by)
{
    int i = 0;
    for (; i + W <= n; i += W)
        save(w + i, on_grid(load(w + i) * all(by)));
    for (; i < n; i++)
        w[i] = grid_round(w[i] * by);
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

// ---- probabilities

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

// A row with one nonzero entry becomes exactly one-hot. Multiplying by the inverse does not ensure that, so v == sum is a case
// of its own.
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
        w[i] = w[i] == sum ? 1 : grid_round_down(w[i] * by);
    for (; i < n; i++) // the inverse of the sum overflows
        w[i] = grid_round_down(w[i] / sum);
}

// The first of the largest.
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
        part[k / W][k % W] += p[i] > q[i] ? p[i] - q[i] : 0;
    return fold(part);
}

static void take_excess(double *p, const double *q, int n)
{
    int i = 0;
    for (; i + W <= n; i += W)
        save(p + i, beyond(p + i, q + i));
    for (; i < n; i++)
        p[i] = p[i] > q[i] ? p[i] - q[i] : 0;
}

// ---- random numbers

// The 64-bit products of the lower halves of the lanes with b; the upper halves are ignored.
INLINE vu product(vu a, uint32_t b)
{
    const vu factor = b + (vu){ 0 };
#if defined(__AVX512F__)
    return (vu)_mm512_mul_epu32((__m512i)a, (__m512i)factor);
#elif defined(__AVX2__)
    return (vu)_mm256_mul_epu32((__m256i)a, (__m256i)factor);
#elif defined(__x86_64__)
    return (vu)_mm_mul_epu32((__m128i)a, (__m128i)factor);
#else
    return (a & 0xffffffff) * factor;
#endif
}

// (k + 1/2) * 2^-53, where k is the upper 53 bits. The two halves of k become doubles as the low mantissa bits of 2^84 and
// 2^52; their sum is exact.
INLINE vd uniform_of(vu low, vu high)
{
    vu k = (high << 32 | (low & 0xffffffff)) >> 11;
    vd upper = (vd)(k >> 32 | 0x4530000000000000) - all(0x1p84),
       lower = (vd)((k & 0xffffffff) | 0x4330000000000000) - all(0x1p52);
    return (upper + lower + all(0.5)) * all(0x1p-53);
}

// Philox (Salmon et al. 2011), W blocks at once.
enum { ROUNDS = 10 };
struct philox {
    vu counter[4], k0[ROUNDS], k1[ROUNDS]; // counters of the first W blocks; keys per round
};

INLINE void philox_begin(struct philox *p, struct block first)
{
    for (int k = 0; k < 4; k++)
        p->counter[k] = first.counter[k] + (vu){ 0 };
    for (int k = 0; k < W; k++)
        p->counter[0][k] += (uint64_t)k;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        p->k0[round] = first.key[0] + round * 0x9E3779B9 + (vu){ 0 };
        p->k1[round] = first.key[1] + round * 0xBB67AE85 + (vu){ 0 };
    }
}

// Blocks number .. number + W - 1, counted from the first: the lower halves of c[k] hold word k of each.
INLINE void philox(vu c[4], const struct philox *p, uint32_t number)
{
    c[0] = p->counter[0] + number, c[1] = p->counter[1], c[2] = p->counter[2], c[3] = p->counter[3];
    for (int round = 0; round < ROUNDS; round++) {
        const vu a = product(c[0], 0xD2511F53), b = product(c[2], 0xCD9E8D57);
        c[0] = b >> 32 ^ c[1] ^ p->k0[round];
        c[1] = b;
        c[2] = a >> 32 ^ c[3] ^ p->k1[round];
        c[3] = a;
    }
}

INLINE vd interleave(vd a, vd b, vu which)
{
#if defined(__clang__) // no such builtin; clang compiles the fuzz targets
    vd to;
    for (int i = 0; i < W; i++)
        to[i] = which[i] < W ? a[which[i]] : b[which[i] - W];
    return to;
#else
    return __builtin_shuffle(a, b, which);
#endif
}

static void uniforms(double *u, int n, struct block first)
{
    struct philox p;
    philox_begin(&p, first);
    for (int i = 0; i < n; i += 2 * W) {
        vu c[4];
        philox(c, &p, (uint32_t)i / 2);
        vd even = uniform_of(c[0], c[1]), odd = uniform_of(c[2], c[3]);
        save(u + i, interleave(even, odd, INTERLEAVE_LOW));
        save(u + i + W, interleave(even, odd, INTERLEAVE_HIGH));
    }
}

static int first_below(const double *u, const double *w, double by, int from, int n)
{
    int i = from;
    for (; i + STEP <= n; i += STEP) {
        vu some = { 0 };
        for (int k = 0; k < PARTS; k++)
            some |= (vu)(load(u + i + W * k) < all(by) * load(w + i + W * k));
        if (any(some))
            break;
    }
    while (i < n && !(u[i] < by * w[i]))
        i++;
    return i;
}

// Which of 2 W elements are race candidates, by the upper 24 bits of u, which are exact in a float. `by` and `more` include
// margins for rounding and for the grid, which changes w to at most w + 2^-53.
INLINE vw candidates_of(vf w, vu c1, vu c3, vf by, vf more)
{
    const vw upper = (vw)((c1 & 0xffffffff) | c3 << 32) >> 8; // ordered by index
    return (vw)(__builtin_convertvector((vi)upper, vf) <= w * by + more);
}

static int candidates(const float *w, int n, struct block first, double bound, int32_t *index)
{
    const double max = bound < 0x1p80 ? bound : 0x1p80; // far beyond the bound that includes every w
    const vf by = all_floats((float)(max * 0x1.00001p24)), more = all_floats((float)(max * 0x1.1p-29));
    struct philox p;
    int found = 0;
    philox_begin(&p, first);
    for (int i = 0; i < n; i += 2 * W) {
        float rest[2 * W] = { 0 };
        vf row;
        if (n - i >= 2 * W) {
            row = load_floats(w + i);
        } else {
            memcpy(rest, w + i, (size_t)(n - i) * sizeof(*rest));
            row = load_floats(rest);
        }
        const vw positive = (vw)(row > all_floats(0));
        if (!any((vu)positive))
            continue;
        vu c[4];
        philox(c, &p, (uint32_t)i / 2);
        const vw where = positive & candidates_of(row, c[1], c[3], by, more);
        if (!any((vu)where))
            continue;
        for (int k = 0; k < 2 * W && i + k < n; k++)
            if (where[k] != 0)
                index[found++] = i + k;
    }
    return found;
}

extern const struct loops PASTE(loops_, ISA);
const struct loops PASTE(loops_, ISA) = {
    .name = QUOTE(ISA),
    .sanitize = sanitize,
    .largest = largest,
    .temperature = temperature,
    .exponentials = exponentials,
    .weights = weights,
    .scale = scale,
    .multiply = multiply,
    .drop_below = drop_below,
    .find_at_least = find_at_least,
    .copy = copy,
    .sum = sum,
    .divide = divide,
    .argmax = argmax,
    .excess = excess,
    .take_excess = take_excess,
    .uniforms = uniforms,
    .first_below = first_below,
    .candidates = candidates,
};
