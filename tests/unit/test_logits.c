// test_logits.c - rows of logits cut into stretches (sampling/logits.h), beside a plain array that has none: long rows and
// short ones, with padding that begins beside the end of a stretch, ties, ruled-out tokens and stretches without any left.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/grid.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "sampling/dist.h"
#include "sampling/logits.h"
#include "tests/support/check.h"

enum { MOST = 3 * LOGITS_CHUNK + 9 };

static uint64_t chance = 1;

static int any(int below)
{
    return (int)(splitmix(&chance) % (uint64_t)below);
}

// One of a few values, so that there are ties; the large ones seldom.
static float any_value(void)
{
    const int k = any(100);
    return k < 10 ? -INFINITY : k == 10 ? FLT_MAX : k == 11 ? -3000 : (float)(k % 13) / 4 - 1;
}

struct plain { // the same row, as it should be
    int n;
    float x[MOST];
};

static float largest_of(const struct plain *p)
{
    float most = -INFINITY;
    for (int i = 0; i < p->n; i++)
        most = p->x[i] > most ? p->x[i] : most;
    return most;
}

static void expect_same(const struct logits *l, const struct plain *p, const char *after)
{
    assert_int_equal(l->n, p->n);
    if (logits_largest(l) != largest_of(p))
        fail_msg("after %s of %d: the largest is %g, not %g", after, p->n, (double)logits_largest(l),
                 (double)largest_of(p));
    for (int i = 0; i < p->n; i++)
        if (logits_at(l, i) != p->x[i])
            fail_msg("after %s of %d: %g at %d, not %g", after, p->n, (double)logits_at(l, i), i, (double)p->x[i]);
    // Of each stretch, too: what later work passes by.
    for (int s = 0; s * LOGITS_CHUNK < p->n; s++) {
        float most = -INFINITY;
        for (int i = s * LOGITS_CHUNK; i < p->n && i < (s + 1) * LOGITS_CHUNK; i++)
            most = p->x[i] > most ? p->x[i] : most;
        assert_true(l->most[s] == most);
    }
}

static void change(struct logits *l, struct plain *p)
{
    const int what = any(6);
    if (what < 2) {
        const int i = any(4) > 0 ? any(p->n) : any(2) * (p->n - 1); // the ends, now and then
        const float to = any(8) == 0 ? largest_of(p) : any(30) == 0 ? INFINITY : any_value();
        logits_set(l, i, to);
        p->x[i] = to > FLT_MAX ? FLT_MAX : to;
        expect_same(l, p, "set");
    } else if (what == 2) {
        const double least = (double)any_value();
        logits_drop_below(l, least);
        for (int i = 0; i < p->n; i++)
            p->x[i] = (double)p->x[i] < least ? -INFINITY : p->x[i];
        expect_same(l, p, "drop_below");
    } else if (what == 3) {
        const float value = any(2) ? largest_of(p) : any_value();
        const int stay = any(3) ? any(4) : any(p->n);
        if (value == -INFINITY)
            return;
        logits_drop_ties(l, value, stay);
        for (int i = 0, same = 0; i < p->n; i++)
            if (p->x[i] == value && ++same > stay)
                p->x[i] = -INFINITY;
        expect_same(l, p, "drop_ties");
    } else if (what == 4) {
        int32_t place[MOST + 1];
        const float least = any_value();
        int found = 0;
        if (least == -INFINITY)
            return;
        for (int i = 0; i < p->n; i++)
            found += p->x[i] >= least;
        const int capacity = any(3) ? MOST : found > 0 ? found - any(2) : 0;
        place[capacity] = -7;
        assert_int_equal(logits_from(l, least, place, capacity), found > capacity ? -1 : found);
        assert_int_equal(place[capacity], -7);
        for (int i = 0, k = 0; i < p->n && found <= capacity; i++)
            if (p->x[i] >= least)
                assert_int_equal(place[k++], i);
    } else {
        const float most = largest_of(p);
        double weight = 0;
        for (int i = 0; i < p->n && most > -INFINITY; i++)
            weight += exp((double)p->x[i] - (double)most);
        if (most > -INFINITY)
            assert_true(fabs(logits_weight(l) - weight) <= 1e-9 * weight);
    }
}

// In the end a softmax, or first the likeliest alone.
static void end(struct logits *l, struct plain *p)
{
    const float most = largest_of(p);
    double sum = 0;
    if (any(3) == 0 && most > -INFINITY) {
        logits_keep_argmax(l);
        for (int i = 0, kept = 0; i < p->n; i++)
            if (p->x[i] != most || kept++ > 0)
                p->x[i] = -INFINITY;
        expect_same(l, p, "keep_likeliest");
    }
    if (any(2) == 0 && most > -INFINITY) {
        const double by = 0.25 * (1 + any(8));
        logits_scale(l, by);
        for (int i = 0; i < p->n; i++)
            p->x[i] = p->x[i] == -INFINITY ? -INFINITY : (float)(((double)p->x[i] - (double)most) * by);
        expect_same(l, p, "heat");
    }
    logits_softmax(l);
    const float top = largest_of(p);
    for (int i = 0; i < p->n; i++)
        sum += top == -INFINITY ? i == 0 : exp((double)p->x[i] - (double)top);
    for (int i = 0; i < p->n; i++) {
        const double is = (double)l->x[i],
                     should = (top == -INFINITY ? i == 0 : exp((double)p->x[i] - (double)top)) / sum;
        if (!(fabs(is - should) <= 1e-6 * should + 1e-15))
            fail_msg("softmax of %d: %g at %d, not %g", p->n, is, i, should);
    }
}

static void a_long_row_is_what_a_plain_array_is(void **state)
{
    (void)state;
    static const int sizes[][2] = { // tokens, and those that are no padding
                                    { 1, 1 },
                                    { 7, 3 },
                                    { LOGITS_CHUNK, LOGITS_CHUNK },
                                    { LOGITS_CHUNK + 1, LOGITS_CHUNK + 1 },
                                    { LOGITS_CHUNK + 1, LOGITS_CHUNK },
                                    { 2 * LOGITS_CHUNK, LOGITS_CHUNK + 1 },
                                    { 2 * LOGITS_CHUNK, LOGITS_CHUNK - 1 },
                                    { 2 * LOGITS_CHUNK - 1, 2 * LOGITS_CHUNK - 2 },
                                    { MOST, LOGITS_CHUNK + 1 },
                                    { MOST, 2 * LOGITS_CHUNK },
                                    { MOST, MOST }
    };
    static struct plain p;
    float *x = xcalloc(MOST, sizeof(*x));
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
        for (int again = 0; again < 6; again++) {
            p.n = sizes[k][0];
            for (int i = 0; i < p.n; i++) {
                const int odd = any(1000);
                x[i] = odd == 0 ? NAN : odd == 1 ? INFINITY : again == 5 && i >= LOGITS_CHUNK ? -INFINITY : any_value();
                p.x[i] = isnan(x[i]) || i >= sizes[k][1] ? -INFINITY : x[i] > FLT_MAX ? FLT_MAX : x[i];
            }
            struct logits l = logits_of(x, p.n, sizes[k][1], (struct workers){ 0 });
            expect_same(&l, &p, "taking over");
            for (int step = 0; step < 14; step++)
                change(&l, &p);
            end(&l, &p);
        }
    free(x);
}

// ---- rows of probabilities, which are copied a thousand at a time

static void a_long_row_of_probabilities_is_copied_and_normalised_whole(void **state)
{
    (void)state;
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

static void a_row_of_nothing_stays_nothing(void **state)
{
    (void)state;
    const float nothing[3] = { 0, 0, 0 }, whole[3] = { 0.5f, 0.25f, 0.25f };
    double to[3] = { 7, 7, 7 };
    dist_from_row(to, nothing, 3);
    assert_true(to[0] == 0 && to[1] == 0 && to[2] == 0);
    assert_false(dist_normalize(to, 3));
    assert_true(dist_strike(to, 3, 1) == 0 && to[1] == 0);
    dist_from_row(to, whole, 3);
    assert_true(to[0] == 0.5 && to[1] == 0.25 && to[2] == 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_row_is_what_a_plain_array_is),
        cmocka_unit_test(a_long_row_of_probabilities_is_copied_and_normalised_whole),
        cmocka_unit_test(a_row_of_nothing_stays_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
