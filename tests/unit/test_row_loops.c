// test_row_loops.c - the vector loops of sampling/loops.h: against scalar loops, against expl(), and the instruction sets of
// this processor against one another, bit by bit.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/grid.h"
#include "core/memory.h"
#include "sampling/loops.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"

enum { MAX = 4099 };

static double uniform(uint32_t which, uint32_t i)
{
    return philox_uniform(3, which, (struct address){ FOR_DRAFT, 0, 0 }, i);
}

// Logits of every kind: ordinary, ties, both zeros, far below the others, -INFINITY.
static void some_logits(float *x, int n, uint32_t which)
{
    for (int i = 0; i < n; i++) {
        double u = uniform(which, (uint32_t)i), kind = uniform(which + 1, (uint32_t)i);
        x[i] = kind < 0.7    ? (float)(30 * u - 20)
               : kind < 0.8  ? 10
               : kind < 0.9  ? (float)(-120 * u)
               : kind < 0.93 ? -0.0f
               : kind < 0.96 ? 0
               : kind < 0.98 ? -INFINITY
                             : -FLT_MAX;
    }
}

// Weights on the grid whose sum stays below 2.
static void some_weights(double *w, int n, uint32_t which)
{
    for (int i = 0; i < n; i++) {
        double u = uniform(which, (uint32_t)i);
        w[i] = grid_round(u < 0.2 ? 0 : u < 0.25 ? 0x1p-40 * u : u < 0.5 ? 1e-9 * u : u * u * 0x1p-11);
    }
}

// The results of all loops on the same rows.
struct results {
    float sanitized[MAX], tempered[MAX], exponentials[MAX], scaled[MAX], dropped[MAX], largest[2];
    double weights[MAX], copied[MAX], divided[MAX], tiny[MAX], left[MAX], u[MAX + LOOP_STEP];
    double multiplied[MAX], sum[7];
    int32_t index[MAX];
    int found[5], candidates[4], candidate[4][MAX];
};
static const double bounds[4] = { 1e-3, 30, 2e6, 1e300 };

static void compute(const struct loops *l, int n, struct results *a)
{
    double w[MAX], q[MAX];
    size_t floats = (size_t)n * sizeof(float), doubles = (size_t)n * sizeof(double);
    memset(a, 0, sizeof(*a));
    some_logits(a->sanitized, n, 10);
    for (int i = 0; i < n; i += 7)
        a->sanitized[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -NAN;
    a->largest[0] = l->logits->sanitize(a->sanitized, n);
    some_logits(a->tempered, n, 20);
    a->largest[1] = l->logits->largest(a->tempered, n);
    memcpy(a->exponentials, a->tempered, floats);
    memcpy(a->dropped, a->tempered, floats);
    struct exact_sum e = l->logits->weights(a->weights, a->tempered, n, 10);
    a->sum[0] = e.whole, a->sum[5] = e.rest;
    a->found[0] = l->logits->find_at_least(a->tempered, n, 5, a->index, n / 8);
    l->logits->temperature(a->tempered, n, 10, 1 / 0.7);
    e = l->logits->exponentials(a->exponentials, n, 10);
    a->sum[1] = e.whole, a->sum[6] = e.rest;
    memcpy(a->scaled, a->exponentials, floats);
    l->logits->scale(a->scaled, n, 1 / (e.whole + e.rest));
    l->logits->drop_below(a->dropped, n, -3.25);
    a->sum[2] = l->probabilities->copy(a->copied, a->scaled, n);
    some_weights(w, n, 30);
    some_weights(q, n, 40);
    memcpy(a->multiplied, w, doubles);
    l->probabilities->multiply(a->multiplied, n, 0.7);
    a->found[4] = l->probabilities->argmax(w, n);
    a->sum[3] = l->probabilities->sum(w, n);
    memcpy(a->divided, w, doubles);
    l->probabilities->divide(a->divided, n, a->sum[3]);
    for (int i = 0; i < n; i++)
        a->tiny[i] = w[i] * 0x1p-1060;
    l->probabilities->divide(a->tiny, n, 0x1p-1060);
    memcpy(a->left, w, doubles);
    a->sum[4] = l->probabilities->excess(w, q, n);
    l->probabilities->take_excess(a->left, q, n);
    l->race->uniforms(a->u, n, (struct block){ { 5, 6 }, { 7, 8, 9, 10 } });
    memset(a->u + n, 0, LOOP_STEP * sizeof(*a->u)); // scratch
    a->found[1] = l->race->first_below(a->u, w, 1e-3, 0, n);
    a->found[2] = l->race->first_below(a->u, w, 1, n / 3, n);
    a->found[3] = l->race->first_below(a->u, w, INFINITY, 1, n);
    for (int k = 0; k < 4; k++)
        a->candidates[k] =
            l->race->candidates(a->scaled, n, (struct block){ { 5, 6 }, { 7, 8, 9, 10 } }, bounds[k], a->candidate[k]);
}

TEST(every_instruction_set_gives_the_same_bits)
{
    static const int length[] = { 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 48, 100, 511, 1024, 4096, MAX };
    struct results *first = xcalloc(1, sizeof(*first)), *other = xcalloc(1, sizeof(*other));
    for (size_t k = 0; k < sizeof(length) / sizeof(*length); k++)
        for (int i = 0, seen = 0; all_loops[i] != NULL; i++)
            if (loops_supported(all_loops[i])) {
                compute(all_loops[i], length[k], seen++ ? other : first);
                if (seen > 1 && memcmp(first, other, sizeof(*first)) != 0)
                    fail_msg("%s: other bits, in a row of %d", all_loops[i]->name, length[k]);
            }
    free(first);
    free(other);
}

TEST(the_last_loops_run_on_every_processor)
{
    int last = 0;
    while (all_loops[last + 1] != NULL)
        last++;
    assert_string_equal(all_loops[last]->name, "plain");
    assert_true(loops_supported(all_loops[last]));
}

// The sum, which is the same forwards and backwards.
static double summed(const double *w, int n)
{
    double sum = 0, backwards = 0;
    for (int i = 0; i < n; i++) {
        sum += w[i];
        backwards += w[n - 1 - i];
    }
    assert_true(sum == backwards);
    return sum;
}

static double below_on_grid(double x)
{
    return floor(x * 0x1p52) * 0x1p-52;
}

static double on_grid(double x) // by integers
{
    return nearbyint(x * 0x1p52) * 0x1p-52;
}

TEST(loops_agree_with_scalar_loops)
{
    struct results *a = xcalloc(1, sizeof(*a));
    for (int n = 1; n < 70; n++) {
        float x[70], sanitized[70], max = -INFINITY;
        double w[70], q[70], left[70];
        int found = 0;
        compute(loops(), n, a);
        some_logits(x, n, 20);
        some_logits(sanitized, n, 10);
        some_weights(w, n, 30);
        some_weights(q, n, 40);
        for (int i = 0; i < n; i++) {
            float was = sanitized[i];
            sanitized[i] = i % 7 != 0 ? was : i % 3 == 1 ? FLT_MAX : -INFINITY;
            max = fmaxf(max, sanitized[i]);
            left[i] = w[i] > q[i] ? w[i] - q[i] : 0;
            if (x[i] >= 5 && found++ < n / 8)
                assert_int_equal(a->index[found - 1], i);
            assert_true(a->tempered[i] == (float)(((double)x[i] - 10) * (1 / 0.7)));
            assert_true(a->dropped[i] == (x[i] < -3.25 ? -INFINITY : x[i]));
            assert_true(a->exponentials[i] == (float)a->weights[i] && a->copied[i] == on_grid(a->scaled[i]));
            assert_true(a->scaled[i] == (float)on_grid(a->exponentials[i] * (1 / (a->sum[1] + a->sum[6]))));
            assert_true(a->multiplied[i] == on_grid(w[i] * 0.7));
            assert_true(w[i] == 0 || a->divided[i] == (w[i] == a->sum[3] ? 1 : below_on_grid(w[i] * (1 / a->sum[3]))));
            assert_true(a->tiny[i] == below_on_grid(w[i] * 0x1p-1060 / 0x1p-1060));
            assert_true(a->left[i] == left[i]);
            assert_true(a->u[i] == philox_uniform((uint64_t)6 << 32 | 5, (uint64_t)10 << 32 | 9,
                                                  (struct address){ FOR_DRAFT, 8, 0 }, 14 + (uint32_t)i) +
                                       0x1p-54);
        }
        assert_memory_equal(a->sanitized, sanitized, (size_t)n * sizeof(*sanitized));
        assert_true(a->largest[0] == max);
        assert_int_equal(a->found[0], found);
        double whole[70], rest[70];
        long double weight = 0;
        for (int i = 0; i < n; i++) {
            whole[i] = nearbyint(a->weights[i] * 0x1p32) * 0x1p-32;
            rest[i] = nearbyint((a->weights[i] - whole[i]) * 0x1p65) * 0x1p-65;
            weight += (long double)a->weights[i];
        }
        assert_true(a->sum[0] == summed(whole, n) && a->sum[5] == summed(rest, n));
        assert_true(a->sum[1] == a->sum[0] && a->sum[6] == a->sum[5]);
        assert_true(fabsl((long double)a->sum[0] + (long double)a->sum[5] - weight) <= 70 * 0x1p-66L);
        assert_true(a->sum[2] == summed(a->copied, n) && a->sum[3] == summed(w, n));
        assert_true(a->sum[4] == summed(left, n));
        int argmax = 0;
        for (int i = 1; i < n; i++)
            argmax = w[i] > w[argmax] ? i : argmax;
        assert_int_equal(a->found[4], argmax);
        for (int k = 0; k < 4; k++) {
            int at = 0, one[70];
            const struct block first = { { 5, 6 }, { 7, 8, 9, 10 } };
            for (int i = 0; i < n; i++) { // each element is a candidate at a bound just above its own
                const double p = on_grid((double)a->scaled[i]);
                const int count =
                    p > 0 ? loops()->race->candidates(a->scaled, n, first, a->u[i] * (1 + 1e-9) / p, one) : 0;
                int number = 0;
                while (number < count && one[number] != i)
                    number++;
                assert_true(p == 0 || number < count);
            }
            for (int i = 0; i < n; i++) {
                const bool found_it = at < a->candidates[k] && a->candidate[k][at] == i;
                const double limit = bounds[k] * on_grid((double)a->scaled[i]);
                assert_true(found_it || !(a->u[i] < limit));
                assert_true(!found_it || a->u[i] < 1.0001 * limit + 0x1p-23 + bounds[k] * 0x1p-52);
                at += found_it;
            }
            assert_int_equal(at, a->candidates[k]);
        }
        static const double by[] = { 1e-3, 1, INFINITY };
        for (int k = 0; k < 3; k++) {
            int i = k == 1 ? n / 3 : k == 2 ? 1 : 0;
            while (i < n && !(a->u[i] < by[k] * w[i]))
                i++;
            assert_int_equal(a->found[k + 1], i);
        }
    }
    free(a);
}

// Over its whole range, and densely near 0, where the largest logits are.
TEST(exp_has_a_relative_error_below_1e_15)
{
    enum { N = 400000, CHUNK = 4000 };
    double worst = 0;
    for (int k = 0; k < N; k += CHUNK) {
        float x[CHUNK];
        double e[CHUNK];
        for (int i = 0; i < CHUNK; i++) {
            double u = uniform(50, (uint32_t)(k + i));
            x[i] = (float)(i % 4 == 0 ? -u : i % 4 == 1 ? -0.001 * u : -88.02 * u);
        }
        loops()->logits->weights(e, x, CHUNK, 0);
        for (int i = 0; i < CHUNK; i++) {
            long double exact = expl((long double)x[i]);
            worst = fmax(worst, (double)fabsl(((long double)e[i] - exact) / exact));
            assert_true(e[i] == grid_exp((double)x[i]));
        }
    }
    print_message("largest relative error of exp: %.2e\n", worst);
    assert_true(worst < 1e-15);
}

TEST(exp_is_exact_at_the_ends_of_its_range)
{
    float x[] = { 7, 7 - 88.02f, 7 - 88.04f, -1000, -FLT_MAX, -INFINITY };
    double e[6];
    loops()->logits->weights(e, x, 6, 7);
    assert_true(e[0] == 1 && e[1] >= 0x1p-127 && e[1] < 0x1.1p-127);
    for (int i = 2; i < 6; i++)
        assert_true(e[i] == 0);
}

// For the u of races, down to the smallest, and for u next to 1.
TEST(exponential_variates_have_a_relative_error_below_1e_15)
{
    enum { N = 1000000 };
    double worst = 0;
    for (uint32_t i = 0; i < N; i++) {
        double u = uniform(70, i) + 0x1p-54;
        u = i % 4 == 1 ? ldexp(u, -(int)(i % 53)) : i % 4 == 2 ? 1 - ldexp(u, -(int)(i % 50)) : u;
        u = i == 0 ? 0x1p-54 : i == 1 ? 1 - 0x1p-53 : i == 2 ? 1 - 0x1.6a09e667f3bcdp-1 : u;
        if (u <= 0 || u >= 1)
            continue;
        const long double exact = -log1pl(-(long double)u);
        const double off = (double)fabsl(((long double)grid_exponential(u) - exact) / exact);
        assert_true(off < 1e-15); // fmax ignores NaN
        worst = fmax(worst, off);
    }
    print_message("largest relative error of -log(1 - u): %.2e\n", worst);
    assert_true(worst < 1e-15);
}

// Exactly 1, although the loop multiplies by the inverse instead of dividing.
TEST(the_only_weight_of_a_row_becomes_1)
{
    for (uint32_t i = 0; i < 20000; i++) {
        double w[20] = { 0 }, whole = uniform(60, i);
        w[i % 20] = whole;
        loops()->probabilities->divide(w, 20, whole);
        assert_true(w[i % 20] == 1);
    }
}

RUN_TESTS(NULL, NULL)
