// race_loops.c - the loops for an exponential race that loops.h declares:
// uniforms by Philox, and the tokens that may win.
#include "sampling/vectors.h"

// These return the lower and the upper half of a0 b0 a1 b1 .. for registers a and b.
#if defined(__AVX512F__)
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

// Returns the 64-bit products of the lower halves of the lanes with b; the upper halves are ignored.
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

// Returns (k + 1/2) * 2^-53, where k is the upper 53 bits. The two halves of k become doubles as the low mantissa bits
// of 2^84 and 2^52; their sum is exact.
INLINE vd uniform_of(vu low, vu high)
{
    vu k = (high << 32 | (low & 0xffffffff)) >> 11;
    vd upper = (vd)(k >> 32 | 0x4530000000000000) - all(0x1p84),
       lower = (vd)((k & 0xffffffff) | 0x4330000000000000) - all(0x1p52);
    return (upper + lower + all(0.5)) * all(0x1p-53);
}

// Computes W blocks of Philox at once (Salmon et al. 2011).
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

// Computes the blocks number .. number + W - 1, counted from the first: the lower halves of c[k] hold word k of each.
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
#if defined(__clang__) // clang, which compiles the fuzz targets, lacks the builtin
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

// Returns which of 2 W elements are race candidates, by the upper 24 bits of u, which are exact in a float. `by` and
// `more` include margins for rounding and for the grid, which changes w to at most w + 2^-53.
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

extern const struct race_loops PASTE(race_loops_, ISA);
const struct race_loops PASTE(race_loops_, ISA) = {
    .uniforms = uniforms,
    .first_below = first_below,
    .candidates = candidates,
};
