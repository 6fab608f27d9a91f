// test_logits.c - rows of logits in chunks (sampling/logits.h) against a plain array: long and short rows, padding that begins
// next to a chunk boundary, ties, excluded tokens and chunks in which every token is excluded.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/grid.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "sampling/dist.h"
#include "sampling/logits.h"
#include "tests/support/tests.h"

enum { MAX_N = 3 * LOGITS_CHUNK + 9 };

static uint64_t state_of_any = 1;

static int any(int below)
{
    return (int)(splitmix(&state_of_any) % (uint64_t)below);
}

// One of a few values, which gives ties; extreme values are rare.
static float any_value(void)
{
    const int k = any(100);
    return k < 10 ? -INFINITY : k == 10 ? FLT_MAX : k == 11 ? -3000 : (float)(k % 13) / 4 - 1;
}

struct plain { // the expected row
    int n;
    float x[MAX_N];
};

static float largest_of(const struct plain *p)
{
    float max = -INFINITY;
    for (int i = 0; i < p->n; i++)
        max = p->x[i] > max ? p->x[i] : max;
    return max;
}

static void expect_same(const struct logits *l, const struct plain *p, const char *after)
{
    assert_int_equal(l->n, p->n);
    if (logits_largest(l) != largest_of(p))
        fail_msg("after %s of %d: the maximum is %g, expected %g", after, p->n, (double)logits_largest(l),
                 (double)largest_of(p));
    for (int i = 0; i < p->n; i++)
        if (logits_at(l, i) != p->x[i])
            fail_msg("after %s of %d: %g at %d, expected %g", after, p->n, (double)logits_at(l, i), i, (double)p->x[i]);
    // The maximum of each chunk decides which chunks later operations skip.
    for (int s = 0; s * LOGITS_CHUNK < p->n; s++) {
        float max = -INFINITY;
        for (int i = s * LOGITS_CHUNK; i < p->n && i < (s + 1) * LOGITS_CHUNK; i++)
            max = p->x[i] > max ? p->x[i] : max;
        assert_true(l->max[s] == max);
    }
}

static void change(struct logits *l, struct plain *p)
{
    const int what = any(6);
    if (what < 2) {
        const int i = any(4) > 0 ? any(p->n) : any(2) * (p->n - 1); // sometimes an end of the row
        const float to = any(8) == 0 ? largest_of(p) : any(30) == 0 ? INFINITY : any_value();
        logits_set(l, i, to);
        p->x[i] = to > FLT_MAX ? FLT_MAX : to;
        expect_same(l, p, "set");
    } else if (what == 2) {
        const double min = (double)any_value();
        logits_drop_below(l, min);
        for (int i = 0; i < p->n; i++)
            p->x[i] = (double)p->x[i] < min ? -INFINITY : p->x[i];
        expect_same(l, p, "drop_below");
    } else if (what == 3) {
        const float value = any(2) ? largest_of(p) : any_value();
        const int keep = any(3) ? any(4) : any(p->n);
        if (value == -INFINITY)
            return;
        logits_drop_ties(l, value, keep);
        for (int i = 0, same = 0; i < p->n; i++)
            if (p->x[i] == value && ++same > keep)
                p->x[i] = -INFINITY;
        expect_same(l, p, "drop_ties");
    } else if (what == 4) {
        int32_t id[MAX_N + 1];
        const float min = any_value();
        int found = 0;
        if (min == -INFINITY)
            return;
        for (int i = 0; i < p->n; i++)
            found += p->x[i] >= min;
        const int capacity = any(3) ? MAX_N : found > 0 ? found - any(2) : 0;
        id[capacity] = -7;
        assert_int_equal(logits_from(l, min, id, capacity), found > capacity ? -1 : found);
        assert_int_equal(id[capacity], -7);
        for (int i = 0, k = 0; i < p->n && found <= capacity; i++)
            if (p->x[i] >= min)
                assert_int_equal(id[k++], i);
    } else {
        const float max = largest_of(p);
        double weight = 0;
        for (int i = 0; i < p->n && max > -INFINITY; i++)
            weight += exp((double)p->x[i] - (double)max);
        if (max > -INFINITY)
            assert_true(fabs(logits_weight(l) - weight) <= 1e-9 * weight);
    }
}

// Optionally keeps the argmax only and scales, then takes the softmax.
static void end(struct logits *l, struct plain *p)
{
    const float max = largest_of(p);
    double sum = 0;
    if (any(3) == 0 && max > -INFINITY) {
        logits_keep_argmax(l);
        for (int i = 0, kept = 0; i < p->n; i++)
            if (p->x[i] != max || kept++ > 0)
                p->x[i] = -INFINITY;
        expect_same(l, p, "keep_argmax");
    }
    if (any(2) == 0 && max > -INFINITY) {
        const double by = 0.25 * (1 + any(8));
        logits_scale(l, by);
        for (int i = 0; i < p->n; i++)
            p->x[i] = p->x[i] == -INFINITY ? -INFINITY : (float)(((double)p->x[i] - (double)max) * by);
        expect_same(l, p, "scale");
    }
    logits_softmax(l);
    const float top = largest_of(p);
    for (int i = 0; i < p->n; i++)
        sum += top == -INFINITY ? i == 0 : exp((double)p->x[i] - (double)top);
    for (int i = 0; i < p->n; i++) {
        const double is = (double)l->x[i],
                     should = (top == -INFINITY ? i == 0 : exp((double)p->x[i] - (double)top)) / sum;
        if (!(fabs(is - should) <= 1e-6 * should + 1e-15))
            fail_msg("softmax of %d: %g at %d, expected %g", p->n, is, i, should);
    }
}

TEST(rows_in_chunks_agree_with_a_plain_array)
{
    static const int sizes[][2] = { // vocabulary, used vocabulary
                                    { 1, 1 },
                                    { 7, 3 },
                                    { LOGITS_CHUNK, LOGITS_CHUNK },
                                    { LOGITS_CHUNK + 1, LOGITS_CHUNK + 1 },
                                    { LOGITS_CHUNK + 1, LOGITS_CHUNK },
                                    { 2 * LOGITS_CHUNK, LOGITS_CHUNK + 1 },
                                    { 2 * LOGITS_CHUNK, LOGITS_CHUNK - 1 },
                                    { 2 * LOGITS_CHUNK - 1, 2 * LOGITS_CHUNK - 2 },
                                    { MAX_N, LOGITS_CHUNK + 1 },
                                    { MAX_N, 2 * LOGITS_CHUNK },
                                    { MAX_N, MAX_N }
    };
    static struct plain p;
    float *x = xcalloc(MAX_N, sizeof(*x));
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
        for (int again = 0; again < 6; again++) {
            p.n = sizes[k][0];
            for (int i = 0; i < p.n; i++) {
                const int odd = any(1000);
                x[i] = odd == 0 ? NAN : odd == 1 ? INFINITY : again == 5 && i >= LOGITS_CHUNK ? -INFINITY : any_value();
                p.x[i] = isnan(x[i]) || i >= sizes[k][1] ? -INFINITY : x[i] > FLT_MAX ? FLT_MAX : x[i];
            }
            struct logits l = logits_of(x, p.n, sizes[k][1], (struct workers){ 0 });
            expect_same(&l, &p, "logits_of");
            for (int step = 0; step < 14; step++)
                change(&l, &p);
            end(&l, &p);
        }
    free(x);
}

// ---- the k largest probabilities, against a plain sort and sum in long doubles

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

TEST(rows_equal_a_plain_sort)
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
TEST(ascending_rows_are_sorted)
{
    enum { N = 3000, K = 40 };
    float x[N], before[N], p[K];
    int32_t id[K];
    for (int i = 0; i < N; i++)
        before[i] = x[i] = (float)i / 100;
    top_k_rows((struct workers){ 0 }, x, 1, N, N, K, id, p);
    expect_row(before, N, K, id, p);
}

// ---- rows of probabilities, which are copied in chunks of 1024

TEST(long_rows_of_probabilities_are_copied_and_normalized)
{
    enum { N = 2 * 1024 + 5 };
    static float row[N];
    static double to[N];
    for (int n = 1024 - 1; n <= N; n += n < 1026 ? 1 : 509) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            row[i] = (float)(1 + any(1 << 20)) * 0x1p-32f;
            sum += (double)row[i]; // exact, in any order
        }
        assert_true(dist_row_sum(row, n) == sum);
        dist_copy(to, row, n);
        for (int i = 0; i < n; i++)
            assert_true(to[i] == (double)row[i]);
        dist_from_row(to, row, n);
        double all = 0;
        for (int i = 0; i < n; i++) {
            assert_true(fabs(to[i] - (double)row[i] / sum) <= 1e-12);
            all += to[i];
        }
        assert_true(all == 1);
        assert_true(fabs(dist_share(row[n - 1], sum) - (double)row[n - 1] / sum) <= 0x1p-52);
    }
}

TEST(a_row_of_zeros_stays_a_row_of_zeros)
{
    const float nothing[3] = { 0, 0, 0 }, whole[3] = { 0.5f, 0.25f, 0.25f };
    double to[3] = { 7, 7, 7 };
    dist_from_row(to, nothing, 3);
    assert_true(to[0] == 0 && to[1] == 0 && to[2] == 0);
    assert_false(dist_normalize(to, 3));
    assert_true(dist_remove(to, 3, 1) == 0 && to[1] == 0);
    dist_from_row(to, whole, 3);
    assert_true(to[0] == 0.5 && to[1] == 0.25 && to[2] == 0.25);
}

RUN_TESTS(NULL, NULL)
