// test_slice_coverage.c - how often nominal 95 % intervals of a speedup, and of its change when it is measured again, contain the truth where
// batches of texts are decoded in slices of time, on machines whose clocks drift, wander and jump (table_machine.h).
//
// The truth is that of a constant clock: the enumerated tokens per step over the population, times the ratio of the times of passes. Beside it,
// what an interval over prompts covers where every cell is decoded in one block of time.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "results/statistics/intervals.h"
#include "tests/results/table_machine.h"
#include "tests/support/tests.h"

enum {
    POPULATIONS = 8,
    ROUNDS = 1, // a unit has this many
    FIRST_AGAIN = 1 << 20,
#if defined(__SANITIZE_ADDRESS__)
    EXPERIMENTS = 32, // a few of every kind: the bounds below hold for the released program's number
#else
    EXPERIMENTS = 400,
#endif
};
static const double slower = 1.03; // passes with drafts when a speedup is measured again

static struct population *population[POPULATIONS];

static int set_up(void **state)
{
    for (int i = 0; i < POPULATIONS; i++)
        population[i] = population_create(100 + (uint64_t)i);
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < POPULATIONS; i++)
        population_destroy(population[i]);
    return 0;
}

static bool contains(struct interval i, double truth)
{
    return i.low <= truth && truth <= i.high;
}

static struct interval speedup_of(const struct units *u)
{
    const double *const x[] = { u->x[0], u->x[1], u->x[2], u->x[3] }, *const work[] = { u->x[UNIT_STEPS], NULL };
    return interval_of_units(STATISTIC_RATIO_OF_RATIOS, x, work, u->prompt, u->slice, u->n);
}

// n rows, of which those from `from` on are x (count) and the others 0.
static double *among(const double *x, size_t from, size_t count, size_t n)
{
    double *to = xcalloc(n, sizeof(*to));
    memcpy(to + from, x, count * sizeof(*x));
    return to;
}

static struct interval change_of(const struct units *is, const struct units *was)
{
    const size_t n = is->n + was->n;
    int64_t *prompt = xmalloc(n * sizeof(*prompt)), *slice = xmalloc(n * sizeof(*slice));
    double *x[2][UNIT_COLUMNS];
    for (int k = 0; k < 2; k++) {
        const struct units *u = k == 0 ? is : was;
        const size_t from = k == 0 ? 0 : is->n;
        memcpy(prompt + from, u->prompt, u->n * sizeof(*prompt));
        memcpy(slice + from, u->slice, u->n * sizeof(*slice));
        for (int i = 0; i < UNIT_COLUMNS; i++)
            x[k][i] = among(u->x[i], from, u->n, n);
    }
    const double *const sums[] = { x[0][0], x[0][1], x[0][2], x[0][3], x[1][0], x[1][1], x[1][2], x[1][3] },
                        *const work[] = { x[0][UNIT_STEPS], NULL, x[1][UNIT_STEPS], NULL };
    const struct interval change = interval_of_units(STATISTIC_CHANGE, sums, work, prompt, slice, n);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < UNIT_COLUMNS; i++)
            free(x[k][i]);
    free(slice);
    free(prompt);
    return change;
}

static struct interval over_prompts(const struct units *u, size_t prompts)
{
    double *x[4];
    for (int k = 0; k < 4; k++) {
        x[k] = xcalloc(prompts, sizeof(*x[k]));
        for (size_t i = 0; i < u->n; i++)
            x[k][u->prompt[i]] += u->x[k][i];
    }
    const struct interval i =
        interval_of(STATISTIC_RATIO_OF_RATIOS, (const double *const[]){ x[0], x[1], x[2], x[3] }, prompts);
    for (int k = 0; k < 4; k++)
        free(x[k]);
    return i;
}

struct counts {
    int speedup, change, block;
    double slices;
};

static void run_experiment(struct counts *to, int i, size_t prompts, int batch, int cells, uint64_t *state)
{
    const struct population *p = population[i % POPULATIONS];
    const double truth = population_mean(p, X_TOKENS) / population_mean(p, X_STEPS) * none_s / cell_s[0];
    struct experiment e = { cells, batch, ROUNDS, i / POPULATIONS % CLOCK_KINDS, 1 };
    struct texts *t = texts_create(p, prompts, state);
    struct units was = units_of(t, &e, 0, state);
    e.slower = slower;
    struct units is = units_of(t, &e, FIRST_AGAIN, state);
    to->speedup += contains(speedup_of(&was), truth);
    to->change += contains(change_of(&is, &was), 1 / slower);
    to->slices += 1 + (double)was.slice[was.n - 1];
    units_free(&is);
    units_free(&was);
    e.slower = 1;
    e.rounds = 0;
    struct units block = units_of(t, &e, 0, state);
    to->block += contains(over_prompts(&block, prompts), truth);
    if (batch > 1) // nothing shows how the clock varies
        assert_true(isnan(speedup_of(&block).low));
    units_free(&block);
    texts_destroy(t);
}

// Where the clock is most of the error and the slices are few, as in changes, Student's intervals are wider than need be, since a clock that
// jumps is no normal variable; so their upper bound is a larger one.
static void expect(int covered, const char *what, size_t prompts, int batch, int cells, double below, double above)
{
    const double share = (double)covered / EXPERIMENTS;
    if (share < 0.95 - below || share > 0.95 + above)
        fail_msg("%s, %zu prompts, batch %d, %d cells: covered in %d of %d", what, prompts, batch, cells, covered,
                 EXPERIMENTS);
}

static void expect_coverage(size_t prompts)
{
    static const int batches[] = { 1, 4, 16, 64 }, cell_counts[] = { 2, 5 };
    uint64_t state = prompts << 32;
    int blocks = 0, kinds = 0;
    print_message(
        "%zu prompts: batch, cells, slices: a speedup in slices, a change of it; in one block of time, over prompts\n",
        prompts);
    for (int b = 0; b < 4; b++)
        for (int c = 0; c < 2; c++, kinds++) {
            struct counts n = { 0 };
            for (int i = 0; i < EXPERIMENTS; i++)
                run_experiment(&n, i, prompts, batches[b], cell_counts[c], &state);
            print_message("%5d %3d %6.1f: %5.1f %% %5.1f %%; %5.1f %%\n", batches[b], cell_counts[c],
                          n.slices / EXPERIMENTS, 100.0 * n.speedup / EXPERIMENTS, 100.0 * n.change / EXPERIMENTS,
                          100.0 * n.block / EXPERIMENTS);
            // The standard error of 400 experiments is 1.1 %, of 32 it is 3.9 %.
            const double slack = EXPERIMENTS < 100 ? 0.15 : 0.035;
            expect(n.speedup, "speedup", prompts, batches[b], cell_counts[c], slack, slack);
            expect(n.change, "change", prompts, batches[b], cell_counts[c], slack, slack + 0.01);
            blocks += n.block;
        }
    assert_true(blocks < 0.91 * kinds * EXPERIMENTS);
}

TEST(intervals_of_10_prompts_cover_the_truth)
{
    expect_coverage(10);
}

TEST(intervals_of_30_prompts_cover_the_truth)
{
    expect_coverage(30);
}

TEST(intervals_of_80_prompts_cover_the_truth)
{
    expect_coverage(80);
}

RUN_TESTS(set_up, tear_down)
