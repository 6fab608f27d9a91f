// test_rng.c - the bits are those of Philox, accept and pick follow sampling/rng.h, at edges and on rows of every length. That no two draws
// share a counter: test_audit.c.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/memory.h"
#include "core/acceptance.h"
#include "sampling/loops.h"
#include "sampling/outcomes.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"

#define LAST_U (1 - 0x1p-53) // the largest uniform

// The uniform whose address, seed and sequence give this counter and key (layout of word 0: sampling/rng.h).
static double uniform_of(const uint32_t counter[4], const uint32_t key[2], uint32_t half)
{
    struct address at = { (enum purpose)(counter[0] >> 29), (int32_t)counter[1], (int32_t)(counter[0] >> 19 & 1023) };
    return philox_uniform((uint64_t)key[1] << 32 | key[0], (uint64_t)counter[3] << 32 | counter[2], at,
                          2 * (counter[0] & 0x7ffff) + half);
}

// Known answers for philox4x32-10 from the kat_vectors of Salmon et al.: counter, key, block. They cover every field.
TEST(philox_gives_the_published_known_answers)
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

TEST(uniforms_have_53_bits)
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

TEST(certain_acceptance_tests_use_no_randomness)
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

TEST(acceptance_tests_compare_the_uniform_of_their_address)
{
    struct philox s = philox_source(17, 4);
    for (int w = 1; w < 10; w++)
        for (int i = 0; i < 2000; i++) {
            struct address at = { FOR_ACCEPT, i, w };
            assert_true(s.rng.accept(&s.rng, 0.05 * w, 0.5, at) == (philox_uniform(17, 4, at, 0) * 0.5 < 0.05 * w));
        }
}

TEST(certain_acceptance_tests_ignore_the_uniform)
{
    static const double sizes[] = { DBL_TRUE_MIN, 3 * DBL_TRUE_MIN, DBL_MIN, 0.1, 1, 3, DBL_MAX, INFINITY };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const double d = sizes[i];
        assert_true(acceptance_of(LAST_U, d, d)); // also where u * den rounds up to den
        assert_true(acceptance_of(LAST_U, INFINITY, d));
        assert_true(acceptance_of(LAST_U, d, 0));
        assert_false(acceptance_of(0, 0, d));
        assert_false(acceptance_of(0, -d, d));
    }
    assert_true(acceptance_of(0.5, 0.50001, 1));
    assert_false(acceptance_of(0.5, 0.5, 1)); // u < num / den
    assert_true(acceptance_of(0, DBL_TRUE_MIN, 1));
}

// The product of a uniform and the smallest sum is rounded up to that sum.
TEST(a_row_of_the_smallest_weight_has_a_pick)
{
    double w[3] = { 0, DBL_TRUE_MIN, 0 };
    for (int n = 2; n <= 3; n++) {
        assert_int_equal(rng_invert(LAST_U, w, n), 1);
        assert_int_equal(rng_invert(0, w, n), 1);
    }
}

// A row is summed in parts of 512 within chunks of 4,096. Here all of its weight is at one index next to their boundaries.
TEST(picks_find_weights_next_to_the_boundaries_of_parts)
{
    static const int sizes[] = { 1, 511, 512, 513, 1024, 1025, 4095, 4096, 4097, 4608, 4609, 8192, 8193 };
    double *w = xcalloc(8193, sizeof(*w));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int n = sizes[i];
        const int index[] = { 0, n / 2, n - 1, n > 1 ? n - 2 : 0, n > 512 ? 511 : 0, n > 512 ? 512 : 0 };
        for (size_t k = 0; k < sizeof(index) / sizeof(index[0]); k++) {
            memset(w, 0, (size_t)n * sizeof(*w));
            w[index[k]] = 1;
            for (double u = 0; u < 1; u = u == 0 ? 0.5 : u == 0.5 ? LAST_U : 1)
                assert_int_equal(rng_invert(u, w, n), index[k]);
            struct philox source = philox_source(3, (uint64_t)n);
            for (int p = 0; p < 2; p++) // inversion and race
                assert_int_equal(
                    source.rng.pick(&source.rng, w, n, (struct address){ p ? FOR_TOKEN : FOR_BONUS, 1, 0 }), index[k]);
        }
        // Two weights of a half: the second is picked from u = 0.5 on.
        memset(w, 0, (size_t)n * sizeof(*w));
        w[0] = w[n - 1] = 0.5;
        double u = 0.5;
        assert_int_equal(rng_invert(u, w, n), n - 1);
        u = 0.5 - 0x1p-53;
        assert_int_equal(rng_invert(u, w, n), 0);
    }
    free(w);
}

// A row of n weights, some of them 0.
static void some_weights(double *w, int n, int which)
{
    for (int i = 0; i < n; i++) {
        double u = philox_uniform(99, (uint64_t)which, (struct address){ FOR_DRAFT, which, 0 }, (uint32_t)i);
        w[i] = u < 0.4 && i != which % n ? 0 : u * u;
    }
}

TEST(picks_invert_the_cumulative_sum)
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

TEST(picks_from_long_rows_invert_the_cumulative_sum)
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

TEST(picks_from_floats_and_doubles_are_equal)
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

TEST(long_races_go_to_the_smallest_time_with_any_workers)
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
TEST(races_of_the_smallest_weights_go_to_the_smallest_time)
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

TEST(uniforms_fill_complete_steps_only)
{
    const struct block first = { { 1, 2 }, { 3, 4, 5, 6 } };
    for (int i = 0; all_loops[i] != NULL; i++)
        for (int n = 1; n <= 3 * LOOP_STEP && loops_supported(all_loops[i]); n++) {
            const int capacity = (n + LOOP_STEP - 1) / LOOP_STEP * LOOP_STEP;
            double u[5 * LOOP_STEP];
            for (int k = 0; k < 5 * LOOP_STEP; k++)
                u[k] = 7;
            all_loops[i]->race->uniforms(u, n, first);
            for (int k = 0; k < 5 * LOOP_STEP; k++)
                assert_true(k < n ? u[k] >= 0 && u[k] < 1 : k < capacity || u[k] == 7);
        }
}

// ---- the source that enumerates every outcome

TEST(every_outcome_is_enumerated_once)
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

TEST(an_address_used_twice_is_counted)
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
TEST(a_run_can_be_made_again)
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
TEST(code_that_depends_on_more_than_its_decisions_strays)
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

RUN_TESTS(NULL, NULL)
