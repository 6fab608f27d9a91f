#include "kernels/cpu/matmul_kernels.h"

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/vectors.h"
#include "kernels/cpu/rounding.h"
#include "kernels/cpu/unpack.h"

// How far ahead of its use memory is asked for, into the second-level cache (docs/performance.md has what was tried).
// Weights that become floats in a tile are asked for in bursts, and nearer.
enum { AHEAD = 8192, AHEAD_OF_TILE = 4096 };
// Groups and single k that are unpacked at a time, to stay in the first-level cache.
enum { GROUPS_AT_ONCE = 16, SPREAD_AT_ONCE = 128 };

// Rows in registers together: sums, and for whole numbers the sums of a group beside them, must fit. ONE_FLOAT: of one panel,
// for passes of no more rows than that.
#if defined(__AVX512F__)
enum { MOST_FLOAT = 12, ONE_FLOAT = 16, MOST_INT = 16 };
#elif defined(__AVX2__)
enum { MOST_FLOAT = 6, ONE_FLOAT = 6, MOST_INT = 4 };
#else
enum { MOST_FLOAT = 2, ONE_FLOAT = 2, MOST_INT = 2 };
#endif

// What to ask memory for when the first `done` of k numbers of a panel are to be multiplied: as far along in it, scales and all,
// and `by` bytes on, in this panel or in what follows it. NULL: nothing that is known.
INLINE const uint8_t *ahead(const struct packed *w, const struct panel *p, int64_t done, size_t by)
{
    size_t from = w->along * (size_t)(done / GROUP) + by;
    return from < w->panel ? p->data + from : p->then == NULL ? NULL : p->then + (from - w->panel);
}

INLINE vf word_float(const int32_t *w)
{
    float f;
    memcpy(&f, w, sizeof(f));
    return all(f);
}

// ---- whole numbers

// c + the four products of bytes in each lane. Two kinds of instruction: where VNNI is, weights are read as 0 .. 255, and
// what the offset of 128 adds is taken off through the starting value; elsewhere they are made signed first, since
// VPMADDUBSW saturates on larger ones.
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
#elif defined(__AVX2__)
    __m256i s = (__m256i)(w ^ 0x80808080u);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(_mm256_set1_epi32(x), s));
    return c + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    vu s = w ^ 0x80808080u;
    for (int b = 0; b < 4; b++)
        c += ((vi)(s << (24 - 8 * b)) >> 24) * ((int32_t)((uint32_t)x << (24 - 8 * b)) >> 24);
    return c;
#endif
}

// What a group's sum starts from; word: 8 for a whole group, 11 and 12 for its halves.
INLINE vi start(bool least, int32_t word)
{
    int32_t from = least == (bool)SIGNED ? (SIGNED ? -word : word) : 0;
    return from - (vi){ 0 };
}

// a += scale * the products of a group's quads first .. first + count. word: as in start().
INLINE void dot_group(struct form f, int m, int first, int count, vf a[][V], const uint8_t *group, const vf *scale,
                      const int32_t *x, int word)
{
    vi c[MOST_INT][V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        c[i][v] = start(f.least, x[word * m + i]);
    UNROLL
    for (int s = 0; s < count; s++) {
        const int t = count == 8 ? s / 2 + s % 2 * 4 : first + s; // low and high halves of the same bytes together
        UNROLL
        for (int v = 0; v < V; v++) {
            vu w = quad(f.bits, group, t, v);
            UNROLL
            for (int i = 0; i < m; i++)
                c[i][v] = dot4(c[i][v], w, x[t * m + i]);
        }
    }
    UNROLL
    for (int v = 0; v < V; v++)
        UNROLL
    for (int i = 0; i < m; i++)
        a[i][v] = mad(__builtin_convertvector(c[i][v], vf), scale[v] * word_float(&x[9 * m + i]), a[i][v]);
}

// A group's scales, or its leasts, in registers: from the panel, where they lie from `plain` on, or from the tile.
INLINE void scales_in(vf d[V], struct form f, bool least, const uint8_t *plain, const float *tile)
{
    UNROLL
    for (int v = 0; v < V; v++) {
        if (!f.plain)
            d[v] = load(tile + v * W);
        else
            d[v] = least ? plain_least(plain, v * W) : plain_scale(f, plain, v * W);
    }
}

// plain: the scales of the first group, if they are. next, bytes: what each group asks memory for meanwhile, so that
// requests are spread over the work; bytes 0: nothing.
INLINE void dots(struct form f, int m, float *sums, const uint8_t *group, size_t apart, const uint8_t *plain,
                 const float (*scale)[2][PANEL], const float (*least_of)[PANEL], int groups, const int32_t *x,
                 const uint8_t *next, size_t bytes)
{
    vf d[V];
    vf a[MOST_INT][V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        a[i][v] = load(sums + i * PANEL + v * W);
    const uint8_t *end = next;
    for (int g = 0; g < groups; g++, group += apart, x += INT8_WORDS * m) {
        for (end += bytes; next < end; next += 64)
            __builtin_prefetch(next, 0, 2);
        scales_in(d, f, false, plain, scale[g][0]);
        dot_group(f, m, 0, f.halves ? 4 : 8, a, group, d, x, f.halves ? 11 : 8);
        if (f.halves) {
            scales_in(d, f, false, plain, scale[g][1]);
            dot_group(f, m, 4, 4, a, group, d, x, 12);
        }
        if (f.least) {
            scales_in(d, f, true, plain, least_of[g]);
            UNROLL
            for (int v = 0; v < V; v++)
                UNROLL
            for (int i = 0; i < m; i++)
                a[i][v] = mad(d[v], word_float(&x[10 * m + i]), a[i][v]);
        }
        plain += f.least ? 64 : 32;
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        save(sums + i * PANEL + v * W, a[i][v]);
}

#define DOTS(T, M) \
    case T: \
        dots(form_of(T), M, sums, group, w->group, plain, t->scale[p], t->least[p], groups, x, next, bytes); \
        break;
#define DOTS_OF(M) \
    case M: \
        switch (w->type) { \
            DOTS(Q8_0, M) \
            DOTS(Q4_0, M) \
            DOTS(Q4_1, M) \
            DOTS(Q5_0, M) \
            DOTS(Q5_1, M) \
            DOTS(Q4_K, M) \
            DOTS(Q5_K, M) \
            DOTS(Q6_K, M) \
        default: \
            break; \
        } \
        break;

static void dots_of(int rows, const struct packed *w, const struct tile *t, int p, float *sums, const uint8_t *group,
                    const uint8_t *plain, int groups, const int32_t *x, const uint8_t *next, size_t bytes)
{
    switch (rows) {
        DOTS_OF(1)
        DOTS_OF(2)
#if defined(__AVX2__)
        DOTS_OF(3)
        DOTS_OF(4)
#endif
#if defined(__AVX512F__)
        DOTS_OF(5)
        DOTS_OF(6)
        DOTS_OF(7)
        DOTS_OF(8)
        DOTS_OF(9)
        DOTS_OF(10)
        DOTS_OF(11)
        DOTS_OF(12)
        DOTS_OF(13)
        DOTS_OF(14)
        DOTS_OF(15)
        DOTS_OF(16)
#endif
    }
}

static void run_int8(float *sums, const struct packed *w, const struct panel *panel, int count, const struct rounded *x,
                     struct tile *t)
{
    const int64_t groups = w->k / GROUP;
    for (int64_t first = 0; first < groups; first += GROUPS_AT_ONCE) {
        int n = (int)(groups - first < GROUPS_AT_ONCE ? groups - first : GROUPS_AT_ONCE);
        for (int p = 0; p < count && !form_of(w->type).plain; p++)
            take_scales(t, p, w, panel[p].data, first, n);
        for (int c = 0; c < x->chunks; c++) {
            int64_t row = chunk_first(x, c), rows = chunk_first(x, c + 1) - row;
            const int32_t *at = (const int32_t *)x->data + row * x->words + first * INT8_WORDS * rows;
            for (int p = 0; p < count; p++) {
                const uint8_t *group = panel[p].data + w->quants + (size_t)first * w->group;
                const uint8_t *next = c == 0 ? ahead(w, &panel[p], first * GROUP, AHEAD) : NULL;
                const uint8_t *plain = panel[p].data + packed_scales_at(w->type, first);
                dots_of((int)rows, w, t, p, sums + (p * x->n + row) * PANEL, group, plain, n, at, next,
                        next != NULL ? w->along : 0);
            }
        }
    }
}

// ---- floats

// Register v of number j of a panel's rows; high: j is odd.
INLINE vf weight(enum type type, const uint8_t *w, int64_t j, bool high, int v)
{
    if (type == F16)
        return halves(w + 2 * (j * PANEL + v * W));
    if (type == F32)
        return load((const float *)w + j * PANEL + v * W);
    vu pair = load_bits(w + 4 * ((j >> 1) * PANEL + v * W));
    return (vf)(high ? pair & 0xFFFF0000u : pair << 16);
}

// One k of m rows and so many panels. again: x, but the compiler must not know it. What a number of x needs with two panels
// is three instructions if it is read once, and two if each multiplication reads it; reads are as scarce as instructions,
// so two thirds of the rows do the latter.
INLINE void fma_step(enum type type, int m, int panels, vf a[][ONE_FLOAT][V], const uint8_t *w, size_t panel_bytes,
                     int64_t j, bool high, const float *x, const float *again)
{
    vf b[PANELS][V];
    UNROLL
    for (int p = 0; p < panels; p++)
        UNROLL
    for (int v = 0; v < V; v++)
        b[p][v] = weight(type, w + (size_t)p * panel_bytes, j, high, v);
    UNROLL
    for (int i = 0; i < m; i++) {
        vf xi[PANELS] = { all(x[j * m + i]) };
        xi[1] = 3 * i < 2 * m ? all(again[j * m + i]) : xi[0];
        UNROLL
        for (int p = 0; p < panels; p++)
            UNROLL
        for (int v = 0; v < V; v++)
            a[p][i][v] = mad(b[p][v], xi[p], a[p][i][v]);
    }
}

// sums (panels, rows of the pass, PANEL) += the products of k numbers. next: what to ask memory for meanwhile, or NULL.
INLINE void fmas(enum type type, int m, int panels, float *sums, int64_t apart, const uint8_t *w, size_t panel_bytes,
                 int64_t k, const float *x, const uint8_t *const *next)
{
    vf a[PANELS][ONE_FLOAT][V];
    const float *again = x;
    __asm__("" : "+r"(again));
    UNROLL
    for (int p = 0; p < panels; p++)
        UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        a[p][i][v] = load(sums + p * apart + i * PANEL + v * W);
    int64_t j = 0;
    for (; j + 2 <= k; j += 2) {
        for (int p = 0; p < panels; p++)
            if (next[p] != NULL) {
                const uint8_t *at = next[p] + j * PANEL * (type == F32 ? 4 : 2);
                __builtin_prefetch(at, 0, 2);
                if (type == F32)
                    __builtin_prefetch(at + 64, 0, 2);
            }
        fma_step(type, m, panels, a, w, panel_bytes, j, false, x, again);
        fma_step(type, m, panels, a, w, panel_bytes, j + 1, true, x, again);
    }
    if (j < k)
        fma_step(type, m, panels, a, w, panel_bytes, j, false, x, again);
    UNROLL
    for (int p = 0; p < panels; p++)
        UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        save(sums + p * apart + i * PANEL + v * W, a[p][i][v]);
}

#define FMAS(T, M) \
    if (panels == 2 && W == 16 && M <= MOST_FLOAT) \
        fmas(T, M, 2, sums, apart, w, panel_bytes, k, x, next); \
    else \
        for (int p = 0; p < panels; p++) \
            fmas(T, M, 1, sums + p * apart, apart, w + (size_t)p * panel_bytes, panel_bytes, k, x, next + p);
#define FMAS_OF(M) \
    case M: \
        if (type == BF16) { \
            FMAS(BF16, M) \
        } else if (type == F16) { \
            FMAS(F16, M) \
        } else { \
            FMAS(F32, M) \
        } \
        break;

static void fmas_of(enum type type, int rows, int panels, float *sums, int64_t apart, const uint8_t *w,
                    size_t panel_bytes, int64_t k, const float *x, const uint8_t *const *next)
{
    switch (rows) {
        FMAS_OF(1)
        FMAS_OF(2)
#if defined(__AVX2__)
        FMAS_OF(3)
        FMAS_OF(4)
        FMAS_OF(5)
        FMAS_OF(6)
#endif
#if defined(__AVX512F__)
        FMAS_OF(7)
        FMAS_OF(8)
        FMAS_OF(9)
        FMAS_OF(10)
        FMAS_OF(11)
        FMAS_OF(12)
        FMAS_OF(13)
        FMAS_OF(14)
        FMAS_OF(15)
        FMAS_OF(16)
#endif
    }
}

// Whole numbers of so many groups as floats, k by k.
INLINE void spread_form(struct form f, float (*to)[PANEL], const uint8_t *group, size_t apart,
                        const float (*scale)[2][PANEL], const float (*least)[PANEL], int groups)
{
    for (int g = 0; g < groups; g++, group += apart)
        UNROLL
    for (int t = 0; t < 8; t++)
        UNROLL
    for (int v = 0; v < V; v++) {
        vu q = quad(f.bits, group, t, v);
        vf d = load(scale[g][f.halves ? t / 4 : 0] + v * W), m = load(least[g] + v * W);
        UNROLL
        for (int b = 0; b < 4; b++) {
            vi number = (vi)(q >> (8 * b) & 255);
            float *at = to[g * GROUP + 4 * t + b] + v * W;
            save(at, f.least ? mad(__builtin_convertvector(number, vf), d, m)
                             : __builtin_convertvector(number - 128, vf) * d);
        }
    }
}

static void spread_quads(float (*to)[PANEL], const struct packed *w, const uint8_t *group,
                         const float (*scale)[2][PANEL], const float (*least)[PANEL], int groups)
{
    switch (w->type) {
#define SPREAD_OF(T) \
    case T: \
        spread_form(form_of(T), to, group, w->group, scale, least, groups); \
        break;
        SPREAD_OF(Q8_0)
        SPREAD_OF(Q4_0)
        SPREAD_OF(Q4_1)
        SPREAD_OF(Q5_0)
        SPREAD_OF(Q5_1)
        SPREAD_OF(Q4_K)
        SPREAD_OF(Q5_K)
        SPREAD_OF(Q6_K)
    default:
        break;
    }
}

static void spread_halves(float (*to)[PANEL], const uint8_t *from, int n)
{
    for (int k = 0; k < n; k++)
        UNROLL
    for (int v = 0; v < V; v++)
        save(to[k] + v * W, halves(from + 2 * (k * PANEL + v * W)));
}

static void spread_bf16(float (*to)[PANEL], const uint8_t *from, int n)
{
    for (int k = 0; k < n; k += 2)
        UNROLL
    for (int v = 0; v < V; v++) {
        vu pair = load_bits(from + (k * PANEL + 2 * v * W) * 2);
        save(to[k] + v * W, (vf)(pair << 16));
        save(to[k + 1] + v * W, (vf)(pair & 0xFFFF0000u));
    }
}

static const uint8_t *numbers(const struct packed *w, const struct panel *p, int64_t first)
{
    return type_is_quantised(w->type) ? p->data + w->quants + (size_t)(first / GROUP) * w->group
                                      : p->data + (size_t)first * (size_t)type_facts[w->type].bytes * PANEL;
}

// n numbers from `first` on of each panel as floats into the tile.
static void spread(struct tile *t, const struct packed *w, const struct panel *panel, int count, int64_t first, int n)
{
    for (int p = 0; p < count; p++) {
        const uint8_t *at = numbers(w, &panel[p], first);
        prefetch_lines(ahead(w, &panel[p], first, AHEAD_OF_TILE), w->along * (size_t)(n / GROUP));
        if (w->type == F16)
            spread_halves(t->spread[p], at, n);
        else if (w->type == BF16)
            spread_bf16(t->spread[p], at, n);
        else {
            take_scales(t, p, w, panel[p].data, first / GROUP, n / GROUP);
            spread_quads(t->spread[p], w, at, t->scale[p], t->least[p], n / GROUP);
        }
    }
}

// Weights of 16 bits are made floats in registers where one chunk reads them, and in the tile where several do.
static void run_floats(float *sums, const struct packed *w, const struct panel *panel, int count,
                       const struct rounded *x, struct tile *t)
{
    const bool straight = w->type == F32 || (!type_is_quantised(w->type) && x->chunks <= 2);
    const uint8_t *at = (const uint8_t *)t->spread[0];
    size_t panel_bytes = straight ? (size_t)(panel[count - 1].data - panel[0].data) : sizeof(t->spread[0]);
    for (int64_t first = 0; first < w->k; first += SPREAD_AT_ONCE) {
        int n = (int)(w->k - first < SPREAD_AT_ONCE ? w->k - first : SPREAD_AT_ONCE);
        const uint8_t *next[PANELS] = { NULL, NULL };
        if (straight) {
            at = numbers(w, &panel[0], first);
            for (int p = 0; p < count; p++)
                next[p] = ahead(w, &panel[p], first, AHEAD);
        } else
            spread(t, w, panel, count, first, n);
        for (int c = 0; c < x->chunks; c++) {
            int64_t row = chunk_first(x, c), rows = chunk_first(x, c + 1) - row;
            fmas_of(straight ? w->type : F32, (int)rows, count, sums + row * PANEL, x->n * PANEL, at, panel_bytes, n,
                    (const float *)x->data + row * x->words + first * rows, next);
            next[0] = next[1] = NULL;
        }
    }
}

// ---- pairs of bfloat16

#if defined(__AVX512BF16__)
INLINE void pairs(int m, float *sums, const uint8_t *w, int64_t k, const uint32_t *x, const uint8_t *next)
{
    __m512 a[MOST_FLOAT];
    UNROLL
    for (int i = 0; i < m; i++)
        a[i] = _mm512_loadu_ps(sums + i * PANEL);
    for (int64_t j = 0; j < k; j++) {
        __m512bh b = (__m512bh)_mm512_loadu_si512(w + j * 64);
        if (next != NULL)
            __builtin_prefetch(next + j * 64, 0, 2);
        UNROLL
        for (int i = 0; i < m; i++)
            a[i] = _mm512_dpbf16_ps(a[i], b, (__m512bh)_mm512_set1_epi32((int)x[j * m + i]));
    }
    UNROLL
    for (int i = 0; i < m; i++)
        _mm512_storeu_ps(sums + i * PANEL, a[i]);
}

#define PAIRS_OF(M) \
    case M: \
        pairs(M, sums, w, k, x, next); \
        break;

static void pairs_of(int rows, float *sums, const uint8_t *w, int64_t k, const uint32_t *x, const uint8_t *next)
{
    switch (rows) {
        PAIRS_OF(1)
        PAIRS_OF(2)
        PAIRS_OF(3)
        PAIRS_OF(4)
        PAIRS_OF(5)
        PAIRS_OF(6)
        PAIRS_OF(7)
        PAIRS_OF(8)
        PAIRS_OF(9)
        PAIRS_OF(10)
        PAIRS_OF(11)
        PAIRS_OF(12)
    }
}

static void run_pairs(float *sums, const struct packed *w, const struct panel *panel, int count,
                      const struct rounded *x)
{
    enum { AT_ONCE = 256 }; // pairs: 16 KiB of a panel
    const int64_t pairs_of_k = (w->k + 1) / 2;
    for (int64_t first = 0; first < pairs_of_k; first += AT_ONCE) {
        int64_t n = pairs_of_k - first < AT_ONCE ? pairs_of_k - first : AT_ONCE;
        for (int c = 0; c < x->chunks; c++) {
            int64_t row = chunk_first(x, c), rows = chunk_first(x, c + 1) - row;
            for (int p = 0; p < count; p++) {
                const uint8_t *at = panel[p].data + first * 64;
                pairs_of((int)rows, sums + (p * x->n + row) * PANEL, at, n, x->data + row * x->words + first * rows,
                         c == 0 ? ahead(w, &panel[p], 2 * first, AHEAD) : NULL);
            }
        }
    }
}
#endif

// ---- all of it

static void run(float *sums, const struct packed *w, const struct panel *panel, int count, const struct rounded *x,
                struct tile *t)
{
    memset(sums, 0, (size_t)(count * x->n * PANEL) * sizeof(float));
    if (x->how == ROUND_INT8)
        run_int8(sums, w, panel, count, x, t);
#if defined(__AVX512BF16__)
    else if (x->how == ROUND_PAIRS)
        run_pairs(sums, w, panel, count, x);
#endif
    else
        run_floats(sums, w, panel, count, x, t);
}

enum { ROWS_AHEAD = 16 }; // rows of outputs that memory is asked for before they are written

// Row i of n is being written, at `to`: the one that comes so much later is asked for.
INLINE void ask_output(const float *to, int64_t i, int64_t n, int64_t m)
{
    __builtin_prefetch(to + (i + ROWS_AHEAD < n ? ROWS_AHEAD : 0) * m, 1, 3);
}

INLINE void copy_lanes(float *to, const float *from, int wide)
{
    if (wide == PANEL)
        memcpy(to, from, PANEL * sizeof(float)); // of a size that the compiler knows
    else
        memcpy(to, from, (size_t)wide * sizeof(float));
}

static void put(float *out, int64_t m, int64_t first, int wide, const float *sums, int64_t n, const float *bias,
                bool add)
{
    float offset[PANEL] = { 0 };
    if (bias != NULL)
        memcpy(offset, bias + first, (size_t)wide * sizeof(float));
    for (int64_t i = 0; i < n; i++, sums += PANEL) {
        float *to = out + i * m + first, part[PANEL];
        ask_output(to, i, n, m);
        for (int l = 0; l < PANEL; l++)
            part[l] = sums[l] + offset[l];
        if (add) {
            float before[PANEL] = { 0 };
            copy_lanes(before, to, wide);
            for (int l = 0; l < PANEL; l++)
                part[l] += before[l];
        }
        copy_lanes(to, part, wide);
    }
}

static void put_gated(float *out, int64_t m, int64_t first, int wide, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++, gate += PANEL, up += PANEL) {
        float *to = out + i * m + first, part[PANEL];
        ask_output(to, i, n, m);
        for (int l = 0; l < PANEL; l += W) {
            vf g = load(gate + l);
            save(part + l, g / (all(1.0f) + exp_lanes(-g)) * load(up + l));
        }
        copy_lanes(to, part, wide);
    }
}

const struct products PASTE(products_, LANES) = {
#if defined(__AVX512BF16__)
    .pairs = true,
#endif
    .most = { MOST_FLOAT, MOST_FLOAT, MOST_FLOAT, MOST_INT },
    .alone = { ONE_FLOAT, ONE_FLOAT, MOST_FLOAT, MOST_INT },
    .round = round_part,
    .run = run,
    .put = put,
    .put_gated = put_gated,
};
