// matmul_bf16_kernels.c - multiplies rows rounded to bfloat16 with panels of bfloat16, by the instruction that
// multiplies pairs of them (AVX512-BF16).
#include "kernels/cpu/matmul_kernels.h"

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/vectors.h"

enum { MAX_ROWS = 12 }; // number of rows in registers together

INLINE void pairs(int m, float *sums, const uint8_t *w, int64_t k, const uint32_t *x, const uint8_t *next)
{
    __m512 a[MAX_ROWS];
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
        UP_TO_12(PAIRS_OF)
    }
}

static void run_pairs(float *sums, const struct packed *w, const struct panel *panel, int count,
                      const struct rounded *x, struct tile *t)
{
    (void)t;
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

const struct matmul_kernels PASTE(matmul_bf16_, ISA) = { MAX_ROWS, MAX_ROWS, run_pairs };
