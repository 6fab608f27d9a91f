#include "kernels/cpu/matmul_kernels.h"

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/vectors.h"
#include "kernels/cpu/rounding.h"
#include "kernels/cpu/unpack.h"

// Prefetch distances in bytes, into L2 (docs/notes/performance_log.md lists what was tried). Weights that are dequantized to a
// tile are prefetched in bursts, at a shorter distance.
enum { PREFETCH = 8192, TILE_PREFETCH = 4096 };

// Rows in registers together: their sums must fit, for int8 beside the sums of a group. MAX_FLOAT_ONE: with one panel, for passes
// of at most that many rows.
#if defined(__AVX512F__)
enum { MAX_FLOAT = 12, MAX_FLOAT_ONE = 16, MAX_INT = 16 };
#elif defined(__AVX2__)
enum { MAX_FLOAT = 6, MAX_FLOAT_ONE = 6, MAX_INT = 4 };
#else
enum { MAX_FLOAT = 2, MAX_FLOAT_ONE = 2, MAX_INT = 2 };
#endif

// The address to prefetch when number `k` of a panel is about to be multiplied: `distance` bytes beyond the same fraction of the
// panel (scales included), in this panel or in the next. NULL: unknown.
INLINE const uint8_t *prefetch_address(const struct packed *w, const struct panel *p, int64_t k, size_t distance)
{
    size_t from = w->group_stride * (size_t)(k / GROUP) + distance;
    return from < w->panel ? p->data + from : p->next == NULL ? NULL : p->next + (from - w->panel);
}

INLINE vf word_float(const int32_t *w)
{
    float f;
    memcpy(&f, w, sizeof(f));
    return splat(f);
}

// ---- int8

// c + the four products of bytes in each lane. With VNNI, weights are unsigned (0 .. 255), and the starting value of the sum
// subtracts what the offset of 128 adds; without it, weights are made signed first, because VPMADDUBSW saturates otherwise.
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

// The starting value of a group's sum. word: word 8 of the rounded group, or 11 and 12 for its halves.
INLINE vi start(bool has_min, int32_t word)
{
    int32_t from = has_min == (bool)SIGNED ? (SIGNED ? -word : word) : 0;
    return from - (vi){ 0 };
}

// a += scale * the products of a group's quads first .. first + count. word: as in start().
INLINE void dot_group(struct quant_format f, int m, int first, int count, vf a[][V], const uint8_t *group,
                      const vf *scale, const int32_t *x, int word)
{
    vi c[MAX_INT][V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        c[i][v] = start(f.has_min, x[word * m + i]);
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

// d = a group's scales, or its minimums (min): from the panel at `plain` if the format stores them plainly, else from the tile.
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

// sums (m, PANEL) += the products of `groups` groups. plain: the plain scales of the first group, if the format has them. next,
// bytes: each group prefetches the next `bytes` bytes from there, which spreads the requests over the work; 0: no prefetch.
INLINE void dots(struct quant_format f, int m, float *sums, const uint8_t *group, size_t stride, const uint8_t *plain,
                 const float (*scale)[2][PANEL], const float (*min)[PANEL], int groups, const int32_t *x,
                 const uint8_t *next, size_t bytes)
{
    vf d[V];
    vf a[MAX_INT][V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        a[i][v] = load(sums + i * PANEL + v * W);
    const uint8_t *end = next;
    for (int g = 0; g < groups; g++, group += stride, x += INT8_WORDS * m) {
        for (end += bytes; next < end; next += 64)
            __builtin_prefetch(next, 0, 2);
        group_scales(d, f, false, plain, scale[g][0]);
        dot_group(f, m, 0, f.half_scales ? 4 : 8, a, group, d, x, f.half_scales ? 11 : 8);
        if (f.half_scales) {
            group_scales(d, f, false, plain, scale[g][1]);
            dot_group(f, m, 4, 4, a, group, d, x, 12);
        }
        if (f.has_min) {
            group_scales(d, f, true, plain, min[g]);
            UNROLL
            for (int v = 0; v < V; v++)
                UNROLL
            for (int i = 0; i < m; i++)
                a[i][v] = mad(d[v], word_float(&x[10 * m + i]), a[i][v]);
        }
        plain += f.has_min ? 64 : 32;
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        store(sums + i * PANEL + v * W, a[i][v]);
}

#define DOTS(T, M) \
    case T: \
        dots(quant_format_of(T), M, sums, group, w->group, plain, t->scale[p], t->min[p], groups, x, next, bytes); \
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
    for (int64_t first = 0; first < groups; first += TILE_GROUPS) {
        int n = (int)(groups - first < TILE_GROUPS ? groups - first : TILE_GROUPS);
        for (int p = 0; p < count && !quant_format_of(w->type).plain; p++)
            load_scales(t, p, w, panel[p].data, first, n);
        for (int c = 0; c < x->chunks; c++) {
            int64_t row = chunk_first(x, c), rows = chunk_first(x, c + 1) - row;
            const int32_t *at = (const int32_t *)x->data + row * x->words + first * INT8_WORDS * rows;
            for (int p = 0; p < count; p++) {
                const uint8_t *group = panel[p].data + w->quants + (size_t)first * w->group;
                const uint8_t *next = c == 0 ? prefetch_address(w, &panel[p], first * GROUP, PREFETCH) : NULL;
                const uint8_t *plain = panel[p].data + packed_scales_at(w->type, first);
                dots_of((int)rows, w, t, p, sums + (p * x->n + row) * PANEL, group, plain, n, at, next,
                        next != NULL ? w->group_stride : 0);
            }
        }
    }
}

// ---- floats

// Register v of number j of a panel's rows, as floats; high: j is odd.
INLINE vf weight(enum type type, const uint8_t *w, int64_t j, bool high, int v)
{
    if (type == F16)
        return halves(w + 2 * (j * PANEL + v * W));
    if (type == F32)
        return load((const float *)w + j * PANEL + v * W);
    vu pair = load_bits(w + 4 * ((j >> 1) * PANEL + v * W));
    return (vf)(high ? pair & 0xFFFF0000u : pair << 16);
}

// One k of m rows and `panels` panels. again == x, hidden from the compiler. With two panels, a number of x takes three
// instructions if it is loaded once, and two if each multiplication loads it; loads are as scarce as instructions, so two
// thirds of the rows do the latter.
INLINE void fma_step(enum type type, int m, int panels, vf a[][MAX_FLOAT_ONE][V], const uint8_t *w, size_t panel_bytes,
                     int64_t j, bool high, const float *x, const float *again)
{
    vf b[MAX_PANELS][V];
    UNROLL
    for (int p = 0; p < panels; p++)
        UNROLL
    for (int v = 0; v < V; v++)
        b[p][v] = weight(type, w + (size_t)p * panel_bytes, j, high, v);
    UNROLL
    for (int i = 0; i < m; i++) {
        vf xi[MAX_PANELS] = { splat(x[j * m + i]) };
        xi[1] = 3 * i < 2 * m ? splat(again[j * m + i]) : xi[0];
        UNROLL
        for (int p = 0; p < panels; p++)
            UNROLL
        for (int v = 0; v < V; v++)
            a[p][i][v] = mad(b[p][v], xi[p], a[p][i][v]);
    }
}

// sums (panels, rows of the pass, PANEL) += the products of k numbers. next (panels): prefetch addresses; NULL: none.
INLINE void fmas(enum type type, int m, int panels, float *sums, int64_t stride, const uint8_t *w, size_t panel_bytes,
                 int64_t k, const float *x, const uint8_t *const *next)
{
    vf a[MAX_PANELS][MAX_FLOAT_ONE][V];
    const float *again = x;
    __asm__("" : "+r"(again));
    UNROLL
    for (int p = 0; p < panels; p++)
        UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        a[p][i][v] = load(sums + p * stride + i * PANEL + v * W);
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
        store(sums + p * stride + i * PANEL + v * W, a[p][i][v]);
}

#define FMAS(T, M) \
    if (panels == 2 && W == 16 && M <= MAX_FLOAT) \
        fmas(T, M, 2, sums, stride, w, panel_bytes, k, x, next); \
    else \
        for (int p = 0; p < panels; p++) \
            fmas(T, M, 1, sums + p * stride, stride, w + (size_t)p * panel_bytes, panel_bytes, k, x, next + p);
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

static void fmas_of(enum type type, int rows, int panels, float *sums, int64_t stride, const uint8_t *w,
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

// to (groups * GROUP, PANEL) = quantized groups as floats.
INLINE void tile_quants(struct quant_format f, float (*to)[PANEL], const uint8_t *group, size_t stride,
                        const float (*scale)[2][PANEL], const float (*min)[PANEL], int groups)
{
    for (int g = 0; g < groups; g++, group += stride)
        UNROLL
    for (int t = 0; t < 8; t++)
        UNROLL
    for (int v = 0; v < V; v++) {
        vu q = quad(f.bits, group, t, v);
        vf d = load(scale[g][f.half_scales ? t / 4 : 0] + v * W), m = load(min[g] + v * W);
        UNROLL
        for (int b = 0; b < 4; b++) {
            vi number = (vi)(q >> (8 * b) & 255);
            float *at = to[g * GROUP + 4 * t + b] + v * W;
            store(at, f.has_min ? mad(__builtin_convertvector(number, vf), d, m)
                                : __builtin_convertvector(number - 128, vf) * d);
        }
    }
}

static void tile_quantized(float (*to)[PANEL], const struct packed *w, const uint8_t *group,
                           const float (*scale)[2][PANEL], const float (*min)[PANEL], int groups)
{
    switch (w->type) {
#define TILE_OF(T) \
    case T: \
        tile_quants(quant_format_of(T), to, group, w->group, scale, min, groups); \
        break;
        TILE_OF(Q8_0)
        TILE_OF(Q4_0)
        TILE_OF(Q4_1)
        TILE_OF(Q5_0)
        TILE_OF(Q5_1)
        TILE_OF(Q4_K)
        TILE_OF(Q5_K)
        TILE_OF(Q6_K)
    default:
        break;
    }
}

static void tile_f16(float (*to)[PANEL], const uint8_t *from, int n)
{
    for (int k = 0; k < n; k++)
        UNROLL
    for (int v = 0; v < V; v++)
        store(to[k] + v * W, halves(from + 2 * (k * PANEL + v * W)));
}

static void tile_bf16(float (*to)[PANEL], const uint8_t *from, int n)
{
    for (int k = 0; k < n; k += 2)
        UNROLL
    for (int v = 0; v < V; v++) {
        vu pair = load_bits(from + (k * PANEL + 2 * v * W) * 2);
        store(to[k] + v * W, (vf)(pair << 16));
        store(to[k + 1] + v * W, (vf)(pair & 0xFFFF0000u));
    }
}

static const uint8_t *weights_at(const struct packed *w, const struct panel *p, int64_t first)
{
    return type_is_quantized(w->type) ? p->data + w->quants + (size_t)(first / GROUP) * w->group
                                      : p->data + (size_t)first * (size_t)type_facts[w->type].bytes * PANEL;
}

// Tile weights = numbers first .. first + n of each panel as floats.
static void fill_tile(struct tile *t, const struct packed *w, const struct panel *panel, int count, int64_t first,
                      int n)
{
    for (int p = 0; p < count; p++) {
        const uint8_t *at = weights_at(w, &panel[p], first);
        prefetch_lines(prefetch_address(w, &panel[p], first, TILE_PREFETCH), w->group_stride * (size_t)(n / GROUP));
        if (w->type == F16)
            tile_f16(t->weights[p], at, n);
        else if (w->type == BF16)
            tile_bf16(t->weights[p], at, n);
        else {
            load_scales(t, p, w, panel[p].data, first / GROUP, n / GROUP);
            tile_quantized(t->weights[p], w, at, t->scale[p], t->min[p], n / GROUP);
        }
    }
}

// 16-bit weights are converted to floats in registers if one or two chunks read them, and through the tile if more do.
static void run_floats(float *sums, const struct packed *w, const struct panel *panel, int count,
                       const struct rounded *x, struct tile *t)
{
    const bool direct = w->type == F32 || (!type_is_quantized(w->type) && x->chunks <= 2);
    const uint8_t *at = (const uint8_t *)t->weights[0];
    size_t panel_bytes = direct ? (size_t)(panel[count - 1].data - panel[0].data) : sizeof(t->weights[0]);
    for (int64_t first = 0; first < w->k; first += TILE_K) {
        int n = (int)(w->k - first < TILE_K ? w->k - first : TILE_K);
        const uint8_t *next[MAX_PANELS] = { NULL, NULL };
        if (direct) {
            at = weights_at(w, &panel[0], first);
            for (int p = 0; p < count; p++)
                next[p] = prefetch_address(w, &panel[p], first, PREFETCH);
        } else
            fill_tile(t, w, panel, count, first, n);
        for (int c = 0; c < x->chunks; c++) {
            int64_t row = chunk_first(x, c), rows = chunk_first(x, c + 1) - row;
            fmas_of(direct ? w->type : F32, (int)rows, count, sums + row * PANEL, x->n * PANEL, at, panel_bytes, n,
                    (const float *)x->data + row * x->words + first * rows, next);
            next[0] = next[1] = NULL;
        }
    }
}

// ---- pairs of bfloat16

#if defined(__AVX512BF16__)
INLINE void pairs(int m, float *sums, const uint8_t *w, int64_t k, const uint32_t *x, const uint8_t *next)
{
    __m512 a[MAX_FLOAT];
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
    enum { STEP = 256 }; // pairs: 16 KiB of a panel
    const int64_t pairs_of_k = (w->k + 1) / 2;
    for (int64_t first = 0; first < pairs_of_k; first += STEP) {
        int64_t n = pairs_of_k - first < STEP ? pairs_of_k - first : STEP;
        for (int c = 0; c < x->chunks; c++) {
            int64_t row = chunk_first(x, c), rows = chunk_first(x, c + 1) - row;
            for (int p = 0; p < count; p++) {
                const uint8_t *at = panel[p].data + first * 64;
                pairs_of((int)rows, sums + (p * x->n + row) * PANEL, at, n, x->data + row * x->words + first * rows,
                         c == 0 ? prefetch_address(w, &panel[p], 2 * first, PREFETCH) : NULL);
            }
        }
    }
}
#endif

// ---- the table

static void run(float *sums, const struct packed *w, const struct panel *panel, int count, const struct rounded *x,
                struct tile *t)
{
    memset(sums, 0, (size_t)(count * x->n * PANEL) * sizeof(float));
    if (x->rounding == ROUND_INT8)
        run_int8(sums, w, panel, count, x, t);
#if defined(__AVX512BF16__)
    else if (x->rounding == ROUND_PAIRS)
        run_pairs(sums, w, panel, count, x);
#endif
    else
        run_floats(sums, w, panel, count, x, t);
}

enum { OUTPUT_PREFETCH = 16 }; // prefetch distance of outputs, in rows

// Row i of n is being written, at `to`: prefetches the row OUTPUT_PREFETCH later.
INLINE void prefetch_output(const float *to, int64_t i, int64_t n, int64_t m)
{
    __builtin_prefetch(to + (i + OUTPUT_PREFETCH < n ? OUTPUT_PREFETCH : 0) * m, 1, 3);
}

INLINE void copy_lanes(float *to, const float *from, int width)
{
    if (width == PANEL)
        memcpy(to, from, PANEL * sizeof(float)); // a constant size
    else
        memcpy(to, from, (size_t)width * sizeof(float));
}

static void write_output(float *out, int64_t m, int64_t first, int width, const float *sums, int64_t n,
                         const float *bias, bool add)
{
    float offset[PANEL] = { 0 };
    if (bias != NULL)
        memcpy(offset, bias + first, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < n; i++, sums += PANEL) {
        float *to = out + i * m + first, part[PANEL];
        prefetch_output(to, i, n, m);
        for (int l = 0; l < PANEL; l++)
            part[l] = sums[l] + offset[l];
        if (add) {
            float before[PANEL] = { 0 };
            copy_lanes(before, to, width);
            for (int l = 0; l < PANEL; l++)
                part[l] += before[l];
        }
        copy_lanes(to, part, width);
    }
}

static void write_gated(float *out, int64_t m, int64_t first, int width, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++, gate += PANEL, up += PANEL) {
        float *to = out + i * m + first, part[PANEL];
        prefetch_output(to, i, n, m);
        for (int l = 0; l < PANEL; l += W) {
            vf g = load(gate + l);
            store(part + l, g / (splat(1.0f) + exp_lanes(-g)) * load(up + l));
        }
        copy_lanes(to, part, width);
    }
}

const struct matmul_kernels PASTE(matmul_kernels_, ISA) = {
#if defined(__AVX512BF16__)
    .pairs = true,
#endif
    .max_rows = { MAX_FLOAT, MAX_FLOAT, MAX_FLOAT, MAX_INT },
    .max_rows_single = { MAX_FLOAT_ONE, MAX_FLOAT_ONE, MAX_FLOAT, MAX_INT },
    .round = round_rows,
    .run = run,
    .write = write_output,
    .write_gated = write_gated,
};
