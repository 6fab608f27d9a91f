// matmul_float_kernels.c - multiplies rows of floats with panels of any type: weights become floats in registers, or in
// a tile. It is compiled once for each width of registers.
#include "kernels/cpu/matmul_kernels.h"

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/vectors.h"
#include "kernels/cpu/unpack.h"

enum { TILE_PREFETCH = 4096 }; // weights that are dequantized to a tile are prefetched in bursts, at a shorter distance

// Number of rows in registers together: their sums must fit. MAX_ROWS_SINGLE applies to one panel, for passes of at
// most that many rows.
#if defined(__AVX512F__)
enum { MAX_ROWS = 12, MAX_ROWS_SINGLE = 16 };
#define EACH_ROWS UP_TO_16
#elif defined(__AVX2__) || defined(NEON)
enum { MAX_ROWS = 6, MAX_ROWS_SINGLE = 6 };
#define EACH_ROWS UP_TO_6
#else
enum { MAX_ROWS = 2, MAX_ROWS_SINGLE = 2 };
#define EACH_ROWS UP_TO_2
#endif

// 16-bit weights become floats in registers if at most so many chunks read them, and in a tile if more do. If one
// instruction converts a register, a tile never pays: it is filled while nothing is multiplied.
#if defined(__AVX2__) || defined(NEON)
enum { DIRECT_CHUNKS = INT32_MAX };
#else
enum { DIRECT_CHUNKS = 1 };
#endif

// Returns register v of number j of a panel's rows, as floats. high: j is odd. m: rows whose sums are in registers.
INLINE vf weight(enum type type, int m, const uint8_t *w, int64_t j, bool high, int v)
{
    if (type == F16)
        return halves(w + 2 * (j * PANEL + v * W));
    if (type == F32)
        return load((const float *)w + j * PANEL + v * W);
    vu pair = load_bits(w + 4 * ((j >> 1) * PANEL + v * W));
    if (high && W == 8 && m == MAX_ROWS) // the mask would need a seventeenth register
        return (vf)(hidden(pair >> 16) << 16);
    return (vf)(high ? pair & 0xFFFF0000u : pair << 16);
}

// Multiplies one k of m rows with `panels` panels. again == x, hidden from the compiler. With two panels, a number of x
// takes three instructions if it is loaded once, and two if each multiplication loads it. Loads are as scarce as
// instructions, so two thirds of the rows do the latter.
INLINE void fma_step(enum type type, int m, int panels, vf a[][MAX_ROWS_SINGLE][V], const uint8_t *w,
                     size_t panel_bytes, int64_t j, bool high, const float *x, const float *again)
{
    vf b[MAX_PANELS][V];
    UNROLL
    for (int p = 0; p < panels; p++)
        UNROLL
    for (int v = 0; v < V; v++)
        b[p][v] = weight(type, m, w + (size_t)p * panel_bytes, j, high, v);
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
    vf a[MAX_PANELS][MAX_ROWS_SINGLE][V];
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
    if (panels == 2 && W == 16 && M <= MAX_ROWS) \
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
        EACH_ROWS(FMAS_OF)
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
        vu q = quad(f, group, t, v);
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

// Converts eight-bit floats.
static void tile_f8(float (*to)[PANEL], const uint8_t *group, const float (*scale)[2][PANEL], int groups)
{
    for (int g = 0; g < groups; g++, group += GROUP * PANEL)
        for (int t = 0; t < 8; t++)
            UNROLL
    for (int v = 0; v < V; v++) {
        const vu four = load_bits(group + (t * V + v) * W * 4);
        const vf d = load(scale[g][0] + v * W);
        UNROLL
        for (int b = 0; b < 4; b++)
            store(to[g * GROUP + 4 * t + b] + v * W, e4m3_floats(four >> (8 * b)) * d);
    }
}

static void tile_quantized(float (*to)[PANEL], const struct packed *w, const uint8_t *group,
                           const float (*scale)[2][PANEL], const float (*min)[PANEL], int groups)
{
    switch (w->type) {
#define TILE_OF(T, ...) \
    case T: \
        tile_quants(quant_formats[T], to, group, w->group, scale, min, groups); \
        break;
        QUANTIZED_TYPES(TILE_OF)
    default: // small floats
        tile_f8(to, group, scale, groups);
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
    return type_has_blocks(w->type) ? p->data + w->quants + (size_t)(first / GROUP) * w->group
                                    : p->data + (size_t)first * (size_t)type_facts[w->type].bytes * PANEL;
}

// Fills the tile with numbers first .. first + n of each panel as floats.
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

static void run_floats(float *sums, const struct packed *w, const struct panel *panel, int count,
                       const struct rounded *x, struct tile *t)
{
    const bool direct = w->type == F32 || (!type_has_blocks(w->type) && x->chunks <= DIRECT_CHUNKS);
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

const struct matmul_kernels PASTE(matmul_float_, ISA) = { MAX_ROWS, MAX_ROWS_SINGLE, run_floats };
