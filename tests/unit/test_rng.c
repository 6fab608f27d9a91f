// test_rng.c - the bits are those of Philox, accept and pick follow sampling/rng.h, and no two addresses share a draw.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/memory.h"
#include "sampling/outcomes.h"
#include "sampling/rng.h"
#include "tests/support/check.h"

// The uniform whose address, seed and sequence give this counter and key (layout of word 0: sampling/rng.h).
static double uniform_of(const uint32_t counter[4], const uint32_t key[2], uint32_t half)
{
    struct address at = { (enum purpose)(counter[0] >> 29), (int32_t)counter[1], (int32_t)(counter[0] >> 19 & 1023) };
    return philox_uniform((uint64_t)key[1] << 32 | key[0], (uint64_t)counter[3] << 32 | counter[2], at,
                          2 * (counter[0] & 0x7ffff) + half);
}

// Known answers for philox4x32-10 from the kat_vectors of Salmon et al.: counter, key, block. They cover every field.
static void philox_gives_the_published_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], block[4];
    } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        for (uint32_t half = 0; half < 2; half++) {
            uint64_t word = (uint64_t)known[i].block[2 * half + 1] << 32 | known[i].block[2 * half];
            assert_true(uniform_of(known[i].counter, known[i].key, half) == ldexp((double)(word >> 11), -53));
        }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Seventy thousand draws at addresses that differ in one field or in several, at both ends of every field. If two addresses
// shared a draw, their 53 bits would be equal; for distinct draws this happens once in 3 million such tests.
static void no_two_addresses_share_a_draw(void **state)
{
    static const uint64_t sequence[] = { 0, 1, 2, 1u << 31, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_MAX };
    static const int32_t position[] = { 0, 1, 2, 3, 511, 1 << 20, INT32_MAX, -1 };
    static const int32_t node[] = { 0, 1, 2, 3, 4, 511, 512, 1023 };
    static const uint32_t index[] = { 0, 1, 2, 3, 1 << 9, 49151, 1 << 19, (1 << 20) - 1 };
    static const uint64_t seed[] = { 0, 1, UINT64_C(1) << 32, UINT64_MAX };
    enum { N = 7 * 8 * 8 * 8 * 5 * 4 };
    double *u = xcalloc(N, sizeof(*u));
    int n = 0;
    for (int q = 0; q < 7; q++)
        for (int p = 0; p < 8; p++)
            for (int k = 0; k < 8; k++)
                for (int i = 0; i < 8; i++)
                    for (int purpose = FOR_DRAFT; purpose <= FOR_TOKEN; purpose++)
                        for (int s = 0; s < 4; s++) {
                            struct address at = { (enum purpose)purpose, position[p], node[k] };
                            u[n++] = philox_uniform(seed[s], sequence[q], at, index[i]);
                        }
    assert_int_equal(n, N);
    qsort(u, N, sizeof(*u), by_value);
    for (int i = 1; i < N; i++)
        assert_true(u[i - 1] < u[i]);
    free(u);
}

static void uniforms_have_53_bits(void **state)
{
    uint64_t any = 0, all = UINT64_MAX;
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        double u = philox_uniform(1, 2, (struct address){ FOR_BONUS, i, 3 }, 0);
        assert_true(u >= 0 && u < 1);
        uint64_t k = (uint64_t)ldexp(u, 53);
        assert_true(ldexp((double)k, -53) == u);
        any |= k, all &= k;
        sum += u;
    }
    assert_true(any == (UINT64_C(1) << 53) - 1 && all == 0);
    assert_true(fabs(sum / 10000 - 0.5) < 5 * 0.2887 / 100);
}

static void certain_acceptance_tests_use_no_randomness(void **state)
{
    struct philox s = philox_source(1, 1);
    struct outcomes o;
    outcomes_begin(&o);
    struct rng *source[] = { &s.rng, &o.rng };
    for (int i = 0; i < 1000; i++) {
        struct address at = { FOR_ACCEPT, i, 1 };
        struct rng *r = source[i % 2];
        assert_true(r->accept(r, 1, 1, at));
        assert_true(r->accept(r, 0.3, 0.1, at));
        assert_true(r->accept(r, 0x1p-1000, 0, at));
        assert_false(r->accept(r, 0, 1, at));
        assert_false(r->accept(r, 0, 0, at)); // probability 0
        assert_false(r->accept(r, -1, 1, at));
    }
    assert_int_equal(o.n, 0);
    outcomes_end(&o);
}

static void acceptance_tests_have_the_given_probability(void **state)
{
    struct philox s = philox_source(17, 4);
    for (int w = 1; w < 10; w++) {
        int n = 0;
        for (int i = 0; i < 20000; i++) {
            struct address at = { FOR_ACCEPT, i, w };
            bool accepted = s.rng.accept(&s.rng, 0.05 * w, 0.5, at);
            assert_true(accepted == (philox_uniform(17, 4, at, 0) * 0.5 < 0.05 * w));
            n += accepted;
        }
        double p = 0.1 * w;
        assert_true(fabs(n / 20000.0 - p) < 5 * sqrt(p * (1 - p) / 20000));
    }
}

// A row of n weights, some of them 0.
static void some_weights(double *w, int n, int which)
{
    for (int i = 0; i < n; i++) {
        double u = philox_uniform(99, (uint64_t)which, (struct address){ FOR_DRAFT, which, 0 }, (uint32_t)i);
        w[i] = u < 0.4 && i != which % n ? 0 : u * u;
    }
}

static void picks_invert_the_cumulative_sum(void **state)
{
    struct philox s = philox_source(2, 3);
    double w[40];
    for (int t = 0; t < 5000; t++) {
        struct address at = { FOR_RESIDUAL, t, 5 };
        int n = 1 + t % 40, x;
        double sum = 0, below = 0;
        some_weights(w, n, t);
        for (int i = 0; i < n; i++)
            sum += w[i];
        double u = philox_uniform(2, 3, at, 0);
        for (x = 0; x < n - 1; x++) {
            below += w[x];
            if (below > u * sum)
                break;
        }
        int got = s.rng.pick(&s.rng, w, n, at);
        assert_int_equal(got, x);
        assert_true(w[got] > 0);
    }
}

static void races_go_to_the_smallest_time(void **state)
{
    struct philox s = philox_source(2, 3);
    double w[40];
    for (int t = 0; t < 5000; t++) {
        struct address at = { FOR_TOKEN, t, 0 };
        int n = 1 + t % 40, first = -1;
        double best = INFINITY;
        some_weights(w, n, t);
        for (int i = 0; i < n; i++) {
            double u = philox_uniform(2, 3, at, (uint32_t)i) + 0x1p-54, time = w[i] > 0 ? -log1p(-u) / w[i] : INFINITY;
            if (time < best)
                best = time, first = i;
        }
        assert_int_equal(s.rng.pick(&s.rng, w, n, at), first);
    }
}

// Rows of a real vocabulary's size: chunks without weight, one-hot rows, rows that end within a chunk.
static void make_weights(double *w, int n, int which)
{
    for (int i = 0; i < n; i++) {
        double u = philox_uniform(98, (uint64_t)which, (struct address){ FOR_DRAFT, which, 0 }, (uint32_t)i);
        w[i] = which % 4 == 3 ? i == 4711 * which % n : u < 0.3 || (which % 2 && i / 5000 % 3) ? 0 : exp(-20 * u);
    }
}

static void run_backwards(void *self, int jobs, void (*job)(void *of, int number), void *of)
{
    for (int i = jobs - 1; i >= 0; i--)
        job(of, i);
}

static void picks_from_long_rows_invert_the_cumulative_sum(void **state)
{
    enum { N = 50001 };
    double *w = xcalloc(N, sizeof(*w));
    for (int which = 0; which < 12; which++) {
        make_weights(w, N, which);
        long double sum = 0;
        for (int i = 0; i < N; i++)
            sum += w[i];
        struct philox s = philox_source(2, (uint64_t)which), shared = s;
        shared.workers.run = run_backwards;
        for (int t = 0; t < 200; t++) {
            struct address at = { FOR_BONUS, t, 0 };
            int x = s.rng.pick(&s.rng, w, N, at);
            assert_int_equal(shared.rng.pick(&shared.rng, w, N, at), x);
            long double target = philox_uniform(2, (uint64_t)which, at, 0) * sum, below = 0;
            for (int i = 0; i < x; i++)
                below += w[i];
            assert_true(w[x] > 0 && below <= target + 1e-12 * sum && below + w[x] > target - 1e-12 * sum);
        }
    }
    free(w);
}

static void picks_from_floats_and_doubles_are_equal(void **state)
{
    static const int length[] = { 1, 7, 512, 513, 20001 };
    float row[20001];
    double w[20001], work[20001];
    struct philox s = philox_source(4, 4);
    for (int t = 0; t < 100; t++) {
        int n = length[t % 5];
        make_weights(w, n, t % 3);
        for (int i = 0; i < n; i++)
            w[i] = row[i] = (float)(w[i] + (i == t % n)); // at least one
        struct address at = { t % 2 ? FOR_TOKEN : FOR_BONUS, t, 0 };
        int x = s.rng.pick(&s.rng, w, n, at);
        assert_int_equal(rng_pick_row(&s.rng, row, n, at, NULL), x);
        struct philox plain = s; // a source without pick_row
        plain.rng.pick_row = NULL;
        assert_int_equal(rng_pick_row(&plain.rng, row, n, at, work), x);
    }
}

static void long_races_go_to_the_smallest_time_with_any_workers(void **state)
{
    enum { N = 50001 };
    double *w = xcalloc(N, sizeof(*w));
    float *row = xcalloc(N, sizeof(*row));
    struct philox alone = philox_source(7, 8), shared = alone;
    shared.workers.run = run_backwards;
    for (int t = 0; t < 24; t++) {
        struct address at = { FOR_TOKEN, t, 0 };
        int first = -1;
        double best = INFINITY;
        make_weights(w, N, t);
        for (int i = 0; i < N; i++) {
            row[i] = (float)w[i];
            w[i] = grid_round((double)row[i]);
            if (!(w[i] > 0))
                continue;
            double u = philox_uniform(7, 8, at, (uint32_t)i) + 0x1p-54, time = -log1p(-u) / w[i];
            if (time < best)
                best = time, first = i;
        }
        assert_int_equal(alone.rng.pick(&alone.rng, w, N, at), first);
        assert_int_equal(shared.rng.pick(&shared.rng, w, N, at), first);
        assert_int_equal(alone.rng.pick_row(&alone.rng, row, N, at), first);
        assert_int_equal(shared.rng.pick_row(&shared.rng, row, N, at), first);
    }
    free(w);
    free(row);
}

// Weights near 2^-53, which the grid rounds up or to 0, with one weight that may be most of the sum.
static void races_of_the_smallest_weights_go_to_the_smallest_time(void **state)
{
    enum { N = 9000 };
    float *row = xcalloc(N, sizeof(*row));
    struct philox s = philox_source(9, 8);
    for (int t = 0; t < 60; t++) {
        const int n = N - 50 * t;
        struct address at = { FOR_TOKEN, t, 0 };
        int first = -1;
        double best = INFINITY;
        for (int i = 0; i < n; i++) {
            const double u = philox_uniform(97, (uint64_t)t, (struct address){ FOR_DRAFT, 0, 0 }, (uint32_t)i);
            row[i] = (float)(t % 3 == 0   ? exp(-200 * u)
                             : t % 3 == 1 ? 0x1p-53 * (0.9 + 4 * u * u)
                                          : (i == 77 * t ? 0x1p-50 : 0x1p-54 * (1 + 2 * u)));
        }
        for (int i = 0; i < n; i++) {
            const double w = grid_round((double)row[i]), u = philox_uniform(9, 8, at, (uint32_t)i) + 0x1p-54;
            const double time = grid_exponential(u) / w;
            if (w > 0 && time < best)
                best = time, first = i;
        }
        assert_int_equal(s.rng.pick_row(&s.rng, row, n, at), first);
    }
    free(row);
}

static void picks_have_the_given_probabilities(void **state)
{
    static const double w[] = { 0.05, 0, 0.2, 0.15, 0.6, 0, 0.5, 0.5 };
    struct philox s = philox_source(11, 0);
    enum { N = 40000 };
    for (int r = 0; r < 2; r++) {
        int count[8] = { 0 };
        for (int i = 0; i < N; i++)
            count[s.rng.pick(&s.rng, w, 8, (struct address){ r ? FOR_TOKEN : FOR_BONUS, i, 0 })]++;
        for (int x = 0; x < 8; x++) {
            double p = w[x] / 2;
            assert_true(fabs((double)count[x] / N - p) <= 5 * sqrt(p * (1 - p) / N));
        }
    }
}

static void equal_weights_give_equal_winners(void **state)
{
    struct philox s = philox_source(5, 6), again = philox_source(5, 6);
    double w[33], scaled[33];
    for (int t = 0; t < 2000; t++) {
        some_weights(w, 33, t);
        for (int i = 0; i < 33; i++)
            scaled[i] = 4 * w[i];
        struct address at = { FOR_TOKEN, t, 0 };
        int x = s.rng.pick(&s.rng, w, 33, at);
        again.rng.root = t; // is not part of the address
        assert_int_equal(again.rng.pick(&again.rng, scaled, 33, at), x);
        for (int i = 0; i < 33; i++)
            w[i] = i == x || i % 3 ? w[i] : 0; // the winner stays the winner without some of the others
        assert_int_equal(s.rng.pick(&s.rng, w, 33, at), x);
    }
}

// Two rows race at the same addresses. P(same winner) = sum_i 1 / sum_j max(p_j / p_i, q_j / q_i), and that is at least
// (1 - TV) / (1 + TV) (Daliri, Musco, Suresh 2024).
static void similar_rows_mostly_pick_the_same_token(void **state)
{
    struct philox s = philox_source(21, 0);
    enum { V = 6, N = 20000 };
    for (int t = 0; t < 5; t++) {
        double p[V], q[V], ps = 0, qs = 0, tv = 0, expected = 0;
        for (int i = 0; i < V; i++) {
            ps += p[i] = 0.05 + philox_uniform(1, 0, (struct address){ FOR_DRAFT, t, 0 }, (uint32_t)i);
            qs += q[i] = p[i] * (0.2 + philox_uniform(1, 0, (struct address){ FOR_DRAFT, t, 1 }, (uint32_t)i));
        }
        for (int i = 0; i < V; i++) {
            tv += fabs(p[i] / ps - q[i] / qs) / 2;
            double slower = 0;
            for (int j = 0; j < V; j++)
                slower += fmax(p[j] / p[i], q[j] / q[i]);
            expected += 1 / slower;
        }
        int same = 0;
        for (int i = 0; i < N; i++) {
            struct address at = { FOR_TOKEN, t * N + i, 0 };
            same += s.rng.pick(&s.rng, p, V, at) == s.rng.pick(&s.rng, q, V, at);
        }
        assert_true(expected >= (1 - tv) / (1 + tv));
        assert_true(fabs((double)same / N - expected) < 5 * sqrt(expected * (1 - expected) / N));
    }
}

// ---- the source that enumerates every outcome

static void every_outcome_is_enumerated_once(void **state)
{
    static const double three[] = { 0.5, 0, 0.25, 0.25 }, two[] = { 1, 3 };
    double probability[4][3] = { { 0 } }, total = 0; // by the first pick and the second
    struct outcomes o;
    outcomes_begin(&o);
    while (outcomes_next(&o)) {
        int x = o.rng.pick(&o.rng, three, 4, (struct address){ FOR_DRAFT, 0, 0 }), y = 2;
        if (o.rng.accept(&o.rng, x, 3, (struct address){ FOR_ACCEPT, 0, 0 })) // certain for 0 and 3
            y = o.rng.pick(&o.rng, two, 2, (struct address){ FOR_BONUS, 0, 0 });
        probability[x][y] += outcomes_probability(&o);
        total += outcomes_probability(&o);
    }
    assert_int_equal(o.runs, 1 + 3 + 2); // after the first picks 0, 2 and 3
    assert_int_equal(o.repeated, 0);
    outcomes_end(&o);
    assert_true(fabs(total - 1) < 1e-15);
    assert_true(probability[0][2] == 0.5 && probability[1][0] + probability[1][1] + probability[1][2] == 0);
    assert_true(fabs(probability[2][0] - 0.25 * 2 / 3 / 4) < 1e-15 && fabs(probability[2][1] - 0.25 * 2 / 4) < 1e-15);
    assert_true(fabs(probability[2][2] - 0.25 / 3) < 1e-15);
    assert_true(probability[3][0] == 0.0625 && probability[3][1] == 0.1875 && probability[3][2] == 0);
}

static void an_address_used_twice_is_counted(void **state)
{
    struct outcomes o;
    outcomes_begin(&o);
    while (outcomes_next(&o))
        for (int i = 0; i < 2; i++)
            o.rng.accept(&o.rng, 1, 2, (struct address){ FOR_ACCEPT, 3, 4 });
    assert_int_equal(o.repeated, 4); // once in each of four runs
    outcomes_end(&o);
}

// A run that is made again has the same decisions, and is not counted.
static void a_run_can_be_made_again(void **state)
{
    struct outcomes o;
    double total = 0;
    outcomes_begin(&o);
    o.may_stray = true;
    while (outcomes_next(&o)) {
        bool taken[2][3];
        for (int again = 0; again < 2; again++) {
            if (again)
                outcomes_again(&o);
            for (int i = 0; i < 3; i++)
                taken[again][i] = o.rng.accept(&o.rng, 1 + i, 4, (struct address){ FOR_ACCEPT, 0, i });
            assert_true(outcomes_ended(&o));
        }
        assert_memory_equal(taken[0], taken[1], sizeof(taken[0]));
        total += outcomes_probability(&o);
    }
    assert_int_equal(o.runs, 8);
    outcomes_end(&o);
    assert_true(fabs(total - 1) < 1e-15);
}

// Code that depends on how often it was called: where it asks, with which probability, whether at all.
static void code_that_depends_on_more_than_its_decisions_strays(void **state)
{
    for (int kind = 0; kind < 5; kind++) {
        struct outcomes o;
        int calls = 0;
        outcomes_begin(&o);
        o.may_stray = true;
        while (outcomes_next(&o) && !o.strayed) {
            const int odd = kind > 0 ? ++calls % 2 : 0;
            const double weight[] = { kind == 4 ? odd : 1, kind == 4 ? 1 - odd : 1, 1 };
            if (kind != 3 || odd)
                o.rng.pick(&o.rng, weight, 3, (struct address){ FOR_RESIDUAL, 0, kind == 1 ? odd : 0 });
            o.rng.accept(&o.rng, kind == 2 ? 1 + odd : 1, 4, (struct address){ FOR_ACCEPT, 0, 0 });
            o.rng.accept(&o.rng, 1, 4, (struct address){ FOR_ACCEPT, 0, 1 });
        }
        assert_true(o.strayed == (kind > 0) && o.runs <= 12);
        outcomes_end(&o);
    }
}

static void code_without_decisions_runs_once(void **state)
{
    struct outcomes o;
    int runs = 0;
    outcomes_begin(&o);
    while (outcomes_next(&o))
        runs++;
    assert_int_equal(runs, 1);
    assert_true(outcomes_probability(&o) == 1);
    outcomes_end(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_known_answers),
        cmocka_unit_test(no_two_addresses_share_a_draw),
        cmocka_unit_test(uniforms_have_53_bits),
        cmocka_unit_test(certain_acceptance_tests_use_no_randomness),
        cmocka_unit_test(acceptance_tests_have_the_given_probability),
        cmocka_unit_test(picks_invert_the_cumulative_sum),
        cmocka_unit_test(races_go_to_the_smallest_time),
        cmocka_unit_test(picks_from_long_rows_invert_the_cumulative_sum),
        cmocka_unit_test(picks_from_floats_and_doubles_are_equal),
        cmocka_unit_test(races_of_the_smallest_weights_go_to_the_smallest_time),
        cmocka_unit_test(long_races_go_to_the_smallest_time_with_any_workers),
        cmocka_unit_test(picks_have_the_given_probabilities),
        cmocka_unit_test(equal_weights_give_equal_winners),
        cmocka_unit_test(similar_rows_mostly_pick_the_same_token),
        cmocka_unit_test(every_outcome_is_enumerated_once),
        cmocka_unit_test(an_address_used_twice_is_counted),
        cmocka_unit_test(a_run_can_be_made_again),
        cmocka_unit_test(code_that_depends_on_more_than_its_decisions_strays),
        cmocka_unit_test(code_without_decisions_runs_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
