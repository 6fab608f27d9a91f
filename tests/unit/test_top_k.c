// test_top_k.c - the k largest probabilities of rows (sampling/logits.h) against a plain sort and sum in long doubles: padding,
// ties, infinities and NaN, rows in which no token remains.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/splitmix.h"
#include "sampling/logits.h"
#include "tests/support/check.h"

static uint64_t state_of_any = 1;

static int any(int below)
{
    return (int)(splitmix(&state_of_any) % (uint64_t)below);
}

// The logit as rows of probabilities read it.
static float sane(float x)
{
    return isnan(x) ? -INFINITY : x == INFINITY ? 3.402823466e38f : x;
}

static void expect_row(const float *x, int used, int k, const int32_t *id, const float *p)
{
    long double sum = 0;
    float max = -INFINITY;
    for (int i = 0; i < used; i++)
        max = sane(x[i]) > max ? sane(x[i]) : max;
    for (int i = 0; i < used; i++)
        sum += expl((long double)sane(x[i]) - max);
    bool *taken = xcalloc((size_t)used, sizeof(*taken));
    for (int n = 0; n < k; n++) {
        int best = -1;
        for (int i = 0; i < used; i++)
            if (!taken[i] && (best < 0 || sane(x[i]) > sane(x[best])))
                best = i;
        taken[best] = true;
        const long double wanted = max == -INFINITY ? (n == 0) : expl((long double)sane(x[best]) - max) / sum;
        if (id[n] != best || fabsl(p[n] - wanted) > 1e-7L * wanted)
            fail_msg("entry %d of %d: token %d with %.9g, expected %d with %.9Lg", n, k, id[n], (double)p[n], best,
                     wanted);
    }
    free(taken);
}

static float any_logit(int kind)
{
    const int odd = any(50);
    if (kind == 1) // ties
        return (float)any(5);
    if (kind == 2 && odd == 0)
        return any(3) == 0 ? NAN : any(2) == 0 ? INFINITY : -INFINITY;
    return kind == 3 ? NAN : (float)any(1 << 20) / (1 << 16);
}

static void rows_equal_a_plain_sort(void **state)
{
    static const int sizes[][3] = { // vocabulary, of which used, k
                                    { 1, 1, 1 },      { 7, 5, 5 },         { 64, 64, 1 },     { 65, 64, 64 },
                                    { 300, 288, 32 }, { 5000, 4097, 100 }, { 1000, 999, 999 }
    };
    enum { ROWS = 5 };
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
        for (int kind = 0; kind < 4; kind++) {
            const int vocab = sizes[s][0], used = sizes[s][1], k = sizes[s][2];
            const size_t bytes = (size_t)(ROWS * vocab) * sizeof(float);
            float *x = xmalloc(bytes), *before = xmalloc(bytes), *p = xmalloc((size_t)(ROWS * k) * sizeof(*p));
            int32_t *id = xmalloc((size_t)(ROWS * k) * sizeof(*id));
            for (int i = 0; i < ROWS * vocab; i++)
                x[i] = i % vocab < used ? any_logit(kind) : 1e6f;
            memcpy(before, x, bytes);
            top_k_rows((struct workers){ 0 }, x, ROWS, vocab, used, k, id, p);
            for (int r = 0; r < ROWS; r++)
                expect_row(before + r * vocab, used, k, id + r * k, p + r * k);
            free(x);
            free(before);
            free(p);
            free(id);
        }
}

// Every logit enters the list before those below it are known.
static void ascending_rows_are_sorted(void **state)
{
    enum { N = 3000, K = 40 };
    float x[N], before[N], p[K];
    int32_t id[K];
    for (int i = 0; i < N; i++)
        before[i] = x[i] = (float)i / 100;
    top_k_rows((struct workers){ 0 }, x, 1, N, N, K, id, p);
    expect_row(before, N, K, id, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_equal_a_plain_sort),
        cmocka_unit_test(ascending_rows_are_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
