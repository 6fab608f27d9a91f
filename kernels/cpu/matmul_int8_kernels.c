// matmul_int8_kernels.c - multiplies rows rounded to int8 with panels of quantized weights, by dot products of four
// bytes. It is compiled once for each instruction set that has a product of bytes.
#include "kernels/cpu/matmul_kernels.h"

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/vectors.h"
#include "kernels/cpu/unpack.h"

// Sixteen registers, or 32 of half their width, hold little more than the integers of a group, so sums are kept in
// memory on these processors.
#if (defined(__AVX2__) && !defined(__AVX512F__)) || defined(NEON)
#define SUMS_IN_MEMORY
#endif
#if defined(NEON) && defined(__ARM_FEATURE_DOTPROD)
#define NEON_DOTPROD
#endif

// Number of rows in registers together: their sums must fit in addition to the sums of a group.
#if defined(__AVX512F__)
enum { MAX_ROWS = 16 };
#define EACH_ROWS UP_TO_16
#elif defined(NEON) && !defined(NEON_DOTPROD)
enum { MAX_ROWS = 4 };
#define EACH_ROWS UP_TO_4
#elif defined(SUMS_IN_MEMORY)
enum { MAX_ROWS = 6 };
#define EACH_ROWS UP_TO_6
#else
enum { MAX_ROWS = 2 };
#define EACH_ROWS UP_TO_2
#endif

INLINE vf word_float(const int32_t *w)
{
    float f;
    memcpy(&f, w, sizeof(f));
    return splat(f);
}

// Returns c + the four products of bytes in each lane; AVX2 without VNNI has pairs_of instead. With VNNI, weights are
// unsigned (0 .. 255), and the starting value of the sum subtracts what the offset of 128 adds. Without it, weights are
// made signed first, because VPMADDUBSW saturates otherwise.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
enum { SIGNED = 0 };
#else
enum { SIGNED = 1 };
#endif

INLINE vi dot4(vi c, vu w, int32_t x)
{
#if defined(__AVX512VNNI__)
    return (vi)_mm512_dpbusd_epi32((__m512i)c, (__m512i)w, _mm512_set1_epi32(x));
#elif defined(__AVX512BW__)
    __m512i s = (__m512i)(w ^ 0x80808080u), v = _mm512_set1_epi32(x);
    __m512i turned = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask(s), _mm512_setzero_si512(), v);
    __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(s), turned);
    return c + (vi)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVXVNNI__)
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)c, (__m256i)w, _mm256_set1_epi32(x));
#elif defined(NEON) // a pair of products is at most 2 * 128 * 127
    const int8x16_t s = (int8x16_t)(w ^ 0x80808080u), v = (int8x16_t)vdupq_n_s32(x);
    const int16x8_t low = vmull_s8(vget_low_s8(s), vget_low_s8(v)), high = vmull_high_s8(s, v);
    return (vi)vpadalq_s16((int32x4_t)c, vpaddq_s16(low, high));
#else
    vu s = w ^ 0x80808080u;
    for (int b = 0; b < 4; b++)
        c += ((vi)(s << (24 - 8 * b)) >> 24) * ((int32_t)((uint32_t)x << (24 - 8 * b)) >> 24);
    return c;
#endif
}

// Returns the starting value of a group's sum. word: word 8 of the rounded group, or 11 and 12 for its halves.
INLINE vi start(bool has_min, int32_t word)
{
    int32_t from = has_min == (bool)SIGNED ? (SIGNED ? -word : word) : 0;
    return from - (vi){ 0 };
}

// Sets d to a group's scales, or its minimums (min): from the panel at `plain` if the format stores them plainly,
// otherwise from the tile.
INLINE void group_scales(vf d[V], struct quant_format f, bool min, const uint8_t *plain, const float *tile)
{
    UNROLL
    for (int v = 0; v < V; v++) {
        if (!f.plain)
            d[v] = load(tile + v * W);
        else
            d[v] = min ? plain_min(plain, v * W) : plain_scale(f, plain, v * W);
    }
}

// Computes products of bytes: c (m, V) = those of a group's quads first .. first + count with rows from .. to. word:
// the argument of start(). There is one form for each kind of registers. IN_REGISTERS: number of rows of 8-bit numbers
// that are multiplied together.

#if defined(SUMS_IN_MEMORY)
// Without this, gcc would add everything in the end, and spill it.
#if defined(NEON)
#define KEEP_IN_REGISTER(v) __asm__("" : "+w"(v))
#else
#define KEEP_IN_REGISTER(v) __asm__("" : "+x"(v))
#endif

#if defined(NEON_DOTPROD)
enum { IN_REGISTERS = MAX_ROWS };

// Returns c + the products of the bytes of w with those of lane i of x.
INLINE vi dot4_lane(vi c, vu w, vi x, int i)
{
    const int8x16_t s = (int8x16_t)(w ^ 0x80808080u), v = (int8x16_t)x;
    switch (i) {
    case 0:
        return (vi)vdotq_laneq_s32((int32x4_t)c, s, v, 0);
    case 1:
        return (vi)vdotq_laneq_s32((int32x4_t)c, s, v, 1);
    case 2:
        return (vi)vdotq_laneq_s32((int32x4_t)c, s, v, 2);
    default:
        return (vi)vdotq_laneq_s32((int32x4_t)c, s, v, 3);
    }
}

// Four rows of x are in a register. Its last lanes may belong to the next words of x, which are not used.
INLINE void sum_quads(struct quant_format f, int m, int from, int to, int first, int count, vi c[][V],
                      const uint8_t *group, const int32_t *x, int word)
{
    UNROLL
    for (int s = 0; s < count; s++) {
        const int t = count == 8 ? s / 2 + s % 2 * 4 : first + s;
        vi four[(MAX_ROWS + 3) / 4];
        UNROLL
        for (int i = 0; i < m; i += 4)
            four[i / 4] = (vi)load_bits(x + t * m + i);
        UNROLL
        for (int v = 0; v < V; v++) {
            const vu w = quad(f, group, t, v);
            UNROLL
            for (int i = from; i < to; i++) {
                c[i][v] = dot4_lane(s == 0 ? start(f.has_min, x[word * m + i]) : c[i][v], w, four[i / 4], i % 4);
                KEEP_IN_REGISTER(c[i][v]);
            }
        }
    }
}
#elif defined(__AVXVNNI__) || defined(NEON)
enum { IN_REGISTERS = MAX_ROWS };

INLINE void sum_quads(struct quant_format f, int m, int from, int to, int first, int count, vi c[][V],
                      const uint8_t *group, const int32_t *x, int word)
{
    UNROLL
    for (int s = 0; s < count; s++) {
        const int t = count == 8 ? s / 2 + s % 2 * 4 : first + s; // low and high halves of one byte are used together
        vu w[V];
        UNROLL
        for (int v = 0; v < V; v++)
            w[v] = quad(f, group, t, v);
        UNROLL
        for (int i = from; i < to; i++) {
            UNROLL
            for (int v = 0; v < V; v++) {
                c[i][v] = dot4(s == 0 ? start(f.has_min, x[word * m + i]) : c[i][v], w[v], x[t * m + i]);
                KEEP_IN_REGISTER(c[i][v]);
            }
        }
    }
}
#else
enum { IN_REGISTERS = 4 };
typedef int16_t vs __attribute__((vector_size(2 * W * sizeof(int16_t))));

// Returns pairs of products of bytes. w is unsigned, 0 .. 127, or, with 8 bits, offset by 128; then the signs move to
// x.
INLINE vs pairs_of(int bits, vu w, int32_t x)
{
    const __m256i v = _mm256_set1_epi32(x), s = (__m256i)(w ^ 0x80808080u);
    return bits < 8 ? (vs)_mm256_maddubs_epi16((__m256i)w, v)
                    : (vs)_mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(v, s));
}

// Products are summed in sixteen bits as long as they fit: a pair of them is at most 2 * 127 * the largest number. The
// integers are equal.
INLINE void sum_quads(struct quant_format f, int m, int from, int to, int first, int count, vi c[][V],
                      const uint8_t *group, const int32_t *x, int word)
{
    const int fit = f.bits == 4 ? 8 : f.bits == 5 ? 4 : f.bits == 6 ? 2 : 1; // number of pairs
    const vs ones =
        (vs)_mm256_set1_epi16((short)(1 << (8 - f.bits))); // the other forms have numbers at the top of their bytes
    vs n[MAX_ROWS][V];
    UNROLL
    for (int s = 0; s < count; s++) {
        const int t = count == 8 ? s / 2 + s % 2 * 4 : first + s;
        vu w[V];
        UNROLL
        for (int v = 0; v < V; v++)
            w[v] = f.bits < 8 ? low_quad(f.bits, group, t, v) : quad(f, group, t, v);
        UNROLL
        for (int i = from; i < to; i++) {
            UNROLL
            for (int v = 0; v < V; v++) {
                const vs pairs = pairs_of(f.bits, w[v], x[t * m + i]);
                n[i][v] = s % fit == 0 ? pairs : n[i][v] + pairs;
                if (s % fit < fit - 1) {
                    KEEP_IN_REGISTER(n[i][v]);
                    continue;
                }
                const vi wide = (vi)_mm256_madd_epi16((__m256i)n[i][v], (__m256i)ones);
                c[i][v] = s < fit ? wide : c[i][v] + wide;
                KEEP_IN_REGISTER(c[i][v]);
            }
        }
    }
    if (f.has_min || f.bits == 8)
        return;
    UNROLL
    for (int i = from; i < to; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        c[i][v] += x[word * m + i];
}
#endif
#else
enum { IN_REGISTERS = MAX_ROWS };

INLINE void sum_quads(struct quant_format f, int m, int from, int to, int first, int count, vi c[][V],
                      const uint8_t *group, const int32_t *x, int word)
{
    UNROLL
    for (int i = from; i < to; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        c[i][v] = start(f.has_min, x[word * m + i]);
    UNROLL
    for (int s = 0; s < count; s++) {
        const int t = count == 8 ? s / 2 + s % 2 * 4 : first + s; // low and high halves of one byte are used together
        UNROLL
        for (int v = 0; v < V; v++) {
            vu w = quad(f, group, t, v);
            UNROLL
            for (int i = from; i < to; i++)
                c[i][v] = dot4(c[i][v], w, x[t * m + i]);
        }
    }
}
#endif

// These access sums of m rows in memory (m, PANEL), or in registers (m, V). add_product: += x * y
#if defined(SUMS_IN_MEMORY)
typedef float *sums_of_rows;

INLINE void add_product(sums_of_rows a, int i, int v, vf x, vf y)
{
    float *at = a + i * PANEL + v * W;
    store(at, mad(x, y, load(at)));
}
#else
typedef vf (*sums_of_rows)[V];

INLINE void add_product(sums_of_rows a, int i, int v, vf x, vf y)
{
    a[i][v] = mad(x, y, a[i][v]);
}
#endif

// a += scale * the products of a group's quads first .. first + count with rows from .. to.
INLINE void dot_rows(struct quant_format f, int m, int from, int to, int first, int count, sums_of_rows a,
                     const uint8_t *group, const vf *scale, const int32_t *x, int word)
{
    vi c[MAX_ROWS][V];
    sum_quads(f, m, from, to, first, count, c, group, x, word);
    UNROLL
    for (int i = from; i < to; i++) {
        const vf of_x = word_float(&x[9 * m + i]);
        UNROLL
        for (int v = 0; v < V; v++)
            add_product(a, i, v, __builtin_convertvector(c[i][v], vf), scale[v] * of_x);
    }
}

// sums (m, PANEL) += the products of `groups` groups. plain: the plain scales of the first group, if the format has
// them. next, bytes: each group prefetches the next `bytes` bytes from there, which spreads the requests over the work;
// 0: no prefetch.
INLINE void dots(struct quant_format f, int m, float *sums, const uint8_t *group, size_t stride, const uint8_t *plain,
                 const float (*scale)[2][PANEL], const float (*min)[PANEL], int groups, const int32_t *x,
                 const uint8_t *next, size_t bytes)
{
    vf d[V];
    const uint8_t *end = next;
#if defined(SUMS_IN_MEMORY)
    float *a = sums;
#else
    vf a[MAX_ROWS][V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        a[i][v] = load(sums + i * PANEL + v * W);
#endif
    for (int g = 0; g < groups; g++, group += stride, x += INT8_WORDS * m) {
        for (end += bytes; next < end; next += 64)
            __builtin_prefetch(next, 0, 2);
        group_scales(d, f, false, plain, scale[g][0]);
        const int half = IN_REGISTERS >= m || f.bits < 8 ? m : (m + 1) / 2;
        dot_rows(f, m, 0, half, 0, f.half_scales ? 4 : 8, a, group, d, x, f.half_scales ? 11 : 8);
        if (half < m)
            dot_rows(f, m, half, m, 0, 8, a, group, d, x, 8);
        if (f.half_scales) {
            group_scales(d, f, false, plain, scale[g][1]);
            dot_rows(f, m, 0, m, 4, 4, a, group, d, x, 12);
        }
        if (f.has_min) {
            group_scales(d, f, true, plain, min[g]);
            UNROLL
            for (int v = 0; v < V; v++)
                UNROLL
            for (int i = 0; i < m; i++)
                add_product(a, i, v, d[v], word_float(&x[10 * m + i]));
        }
        plain += f.has_min ? 64 : 32;
    }
#if !defined(SUMS_IN_MEMORY)
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        store(sums + i * PANEL + v * W, a[i][v]);
#endif
}

#define DOTS_OF(M) \
    case M: \
        dots(f, M, sums, group, w->group, plain, t->scale[p], t->min[p], groups, x, next, bytes); \
        break;
#define DOTS_OF_TYPE(T, ...) \
    case T: { \
        const struct quant_format f = quant_formats[T]; \
        switch (rows) { \
            EACH_ROWS(DOTS_OF) \
        } \
        break; \
    }

static void dots_of(int rows, const struct packed *w, const struct tile *t, int p, float *sums, const uint8_t *group,
                    const uint8_t *plain, int groups, const int32_t *x, const uint8_t *next, size_t bytes)
{
    switch (w->type) {
        QUANTIZED_TYPES(DOTS_OF_TYPE)
    default:
        break;
    }
}

// Number of groups of a panel that all rows are multiplied with before the next ones. If their scales are unpacked to a
// tile it is TILE_GROUPS.
enum { PLAIN_GROUPS = 64 };

static void run_int8(float *sums, const struct packed *w, const struct panel *panel, int count, const struct rounded *x,
                     struct tile *t)
{
    const struct quant_format *format = &quant_formats[w->type];
    const bool plain_scales = format->plain;
    const int64_t groups = w->k / GROUP, block = plain_scales ? PLAIN_GROUPS : TILE_GROUPS;
    for (int64_t first = 0; first < groups; first += block) {
        int n = (int)(groups - first < block ? groups - first : block);
        for (int p = 0; p < count && !plain_scales; p++)
            load_scales(t, p, w, panel[p].data, first, n);
        for (int c = 0; c < x->chunks; c++) {
            int64_t row = chunk_first(x, c), rows = chunk_first(x, c + 1) - row;
            const int32_t *at = (const int32_t *)x->data + row * x->words + first * INT8_WORDS * rows;
            for (int p = 0; p < count; p++) {
                const uint8_t *group = panel[p].data + w->quants + (size_t)first * w->group;
                const uint8_t *next = c == 0 ? prefetch_address(w, &panel[p], first * GROUP, PREFETCH) : NULL;
                const uint8_t *plain = panel[p].data + (size_t)first * format->stride; // read only if they are plain
                dots_of((int)rows, w, t, p, sums + (p * x->n + row) * PANEL, group, plain, n, at, next,
                        next != NULL ? w->group_stride : 0);
            }
        }
    }
}

const struct matmul_kernels PASTE(matmul_int8_, ISA) = { MAX_ROWS, MAX_ROWS, run_int8 };
