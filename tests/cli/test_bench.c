// test_bench.c - statistics, cost models and probes of `speclab bench`. No time is asserted.
#include "tests/support/tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/machine.h"
#include "kernels/backend.h"
#include "kernels/cpu/probe.h"
#include "kernels/timed.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "results/cost.h"
#include "results/statistics/statistics.h"
#include "tests/cli/child_process.h"
#include "tests/support/small_model.h"

static bool near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

// ---- statistics

TEST(quartiles_are_interpolated_linearly)
{
    struct spread s = spread_of((const double[]){ 5, 1, NAN, 4, 2, 3 }, 6);
    assert_int_equal(s.n, 5);
    assert_true(s.median == 3 && s.low == 2 && s.high == 4 && s.least == 1 && s.most == 5);
    s = spread_of((const double[]){ 10, 40, 20, 30 }, 4);
    assert_true(s.median == 25 && s.low == 17.5 && s.high == 32.5);
    s = spread_of((const double[]){ 7 }, 1);
    assert_true(s.median == 7 && s.low == 7 && s.high == 7 && s.least == 7 && s.most == 7);
    s = spread_of((const double[]){ NAN, NAN }, 2);
    assert_true(s.n == 0 && isnan(s.median) && isnan(s.most));
    s = spread_of(NULL, 0);
    assert_true(s.n == 0 && isnan(s.low));
}

enum { ROWS = 9, CONTEXTS = 3 };
static const int rows[ROWS] = { 1, 2, 3, 4, 6, 8, 16, 32, 64 }, contexts[CONTEXTS] = { 0, 512, 2048 };

static void grid(struct cost_point p[ROWS * CONTEXTS], double (*ns)(double n, double c))
{
    for (int c = 0; c < CONTEXTS; c++)
        for (int i = 0; i < ROWS; i++) // not sorted
            p[(i * 7 % ROWS) * CONTEXTS + c] = (struct cost_point){ rows[i], contexts[c], ns(rows[i], contexts[c]), 0 };
}

static double hinged(double n, double c)
{
    return 4e6 + 2e4 * n + 3e5 * fmax(0, n - 8) + 800 * c + 90 * n * c;
}

static double stepped(double n, double c)
{
    return 4e6 + 3e6 * floor((n - 1) / 4) + 500 * c;
}

TEST(a_hinge_is_recovered_from_its_own_costs)
{
    struct cost_point p[ROWS * CONTEXTS];
    struct cost c;
    grid(p, hinged);
    cost_fit(&c, p, ROWS * CONTEXTS);
    assert_int_equal(c.form, COST_HINGE);
    assert_true(c.hinge_max_error < 1e-9 && c.n0 == 8);
    assert_true(near(c.a, 4e6, 1e-6) && near(c.b, 2e4, 1e-6) && near(c.s, 3e5, 1e-6) && near(c.d, 800, 1e-6) &&
                near(c.e, 90, 1e-6));
    assert_true(near(cost_ns(&c, 12, 1000), hinged(12, 1000), 1e-6));
    assert_true(isnan(c.step_a));
    cost_fit_step(&c, (const struct cost_point[]){ { 1, 128, 1.128e6, 0 }, { 1, 512, 1.512e6, 0 } }, 2);
    assert_true(near(c.step_a + c.step_d * 1000, 2e6, 1e-6) && c.step_max_error < 1e-9);
    cost_free(&c);
}

// Two points of one context say nothing about the context's term.
TEST(a_term_that_the_points_do_not_determine_is_0)
{
    struct cost c = { 0 };
    cost_fit_step(&c, (const struct cost_point[]){ { 1, 128, 2e6, 0 }, { 1, 128, 2e6, 0 } }, 2);
    assert_true(near(c.step_a, 2e6, 1e-9) && c.step_d == 0 && c.step_max_error < 1e-9);
}

// A mixture: 6 of 64 experts in 4 layers. The number of experts is a term of its own, and is interpolated between measured rows.
static double union_of(double n)
{
    return 4 * 64 * (1 - pow(1 - 6.0 / 64, n));
}

TEST(the_experts_that_a_pass_reads_are_a_term_of_its_cost)
{
    struct cost_point p[ROWS * CONTEXTS];
    struct cost c;
    grid(p, hinged);
    for (int i = 0; i < ROWS * CONTEXTS; i++) {
        p[i].experts = union_of(p[i].n);
        p[i].ns += 25000 * p[i].experts;
    }
    cost_fit(&c, p, ROWS * CONTEXTS);
    assert_int_equal(c.form, COST_HINGE);
    assert_true(c.hinge_max_error < 1e-9 && c.n0 == 8 && near(c.u, 25000, 1e-6) && near(c.s, 3e5, 1e-6));
    const double between = (union_of(8) + union_of(16)) / 2;
    assert_true(near(cost_experts(&c, 12, 100), between, 1e-12));
    assert_true(near(cost_ns(&c, 12, 100), hinged(12, 100) + 25000 * between, 1e-6));
    assert_true(cost_experts(&c, 400, 9000) == union_of(64)); // no more than were measured
    cost_free(&c);
    grid(p, hinged);
    cost_fit(&c, p, ROWS * CONTEXTS);
    assert_true(c.u == 0);
    cost_free(&c);
}

TEST(costs_with_steps_are_fitted_by_a_table)
{
    struct cost_point p[ROWS * CONTEXTS];
    struct cost c;
    grid(p, stepped);
    cost_fit(&c, p, ROWS * CONTEXTS);
    assert_int_equal(c.form, COST_TABLE);
    assert_true(c.hinge_max_error > 0.05 && c.table_max_error > 0.05);
    for (int i = 0; i < ROWS * CONTEXTS; i++)
        assert_true(cost_ns(&c, p[i].n, p[i].context) == p[i].ns);
    assert_true(near(cost_ns(&c, 5, 512), (stepped(4, 512) + stepped(6, 512)) / 2, 1e-12));
    assert_true(near(cost_ns(&c, 4, 1280), stepped(4, 1280), 1e-12));
    double beyond = stepped(64, 2048) + (stepped(64, 2048) - stepped(32, 2048));
    assert_true(near(cost_ns(&c, 96, 2048), beyond, 1e-12));
    cost_free(&c);
}

TEST(a_cost_fitted_to_few_points_is_exact_at_them)
{
    const struct cost_point p[] = { { 1, 128, 5e6, 0 }, { 3, 128, 7e6, 0 }, { 1, 256, 6e6, 0 }, { 3, 256, 8e6, 0 } };
    struct cost c;
    cost_fit(&c, p, 1);
    assert_true(near(cost_ns(&c, 1, 128), 5e6, 1e-9) && near(cost_ns(&c, 9, 900), 5e6, 1e-9));
    cost_free(&c);
    cost_fit(&c, p, 2);
    assert_true(near(cost_ns(&c, 2, 128), 6e6, 1e-9) && near(cost_table_ns(&c, 2, 128), 6e6, 1e-9));
    cost_free(&c);
    cost_fit(&c, p, 4);
    assert_true(near(cost_ns(&c, 2, 192), 6.5e6, 1e-9) && near(cost_table_ns(&c, 2, 192), 6.5e6, 1e-9));
    cost_free(&c);
    cost_fit(&c, NULL, 0);
    assert_int_equal(c.form, COST_NONE);
    cost_free(&c);
}

// ---- the machine

TEST(placement_follows_from_latency_and_bandwidth)
{
    const struct machine_state s = { 32e9, 36e9, 50 }, d = { 32e9, 63e9, 340 }, here = { 13e9, 26e9, 150 };
    struct machine_state slower = d;
    slower.all = 50e9;
    assert_int_equal(placement_of(&s), PLACED_S);
    assert_int_equal(placement_of(&d), PLACED_D);
    assert_int_equal(placement_of(&here), PLACED_OTHER);
    assert_int_equal(placement_of(&(struct machine_state){ 13e9, 13e9, NAN }), PLACED_OTHER);
    assert_int_equal(placement_between(&d, &d), PLACED_D);
    assert_int_equal(placement_between(&s, &d), PLACED_UNSTABLE);
    assert_int_equal(placement_between(&d, &slower), PLACED_UNSTABLE);
}

TEST(probes_measure_positive_numbers)
{
    struct prober *p = prober_create(2);
    assert_non_null(p);
    struct probe one = prober_read(p, 1, 0), all = prober_read(p, 2, 0);
    assert_true(one.bytes_per_second > 0 && one.passes >= 3 && one.threads == 1);
    assert_true(all.bytes_per_second > 0 && all.bytes == one.bytes);
    prober_destroy(p);
    double trip = probe_round_trip();
    assert_true(isnan(trip) || trip > 0);
    struct peak peak[MAX_PEAKS];
    int n = probe_peaks(1, peak);
    assert_true(n >= 1 && n <= MAX_PEAKS);
    for (int i = 0; i < n; i++)
        assert_true(peak[i].per_second > 0);
}

TEST(the_load_of_other_processes_is_not_negative)
{
    struct load l = load_begin(1);
    assert_true(isnan(load_foreign(&l, 1)));
    usleep(300 * 1000);
    double foreign = load_foreign(&l, 1);
    assert_true(isnan(foreign) || foreign >= 0);
    assert_true(isnan(foreign) || load_foreign(&l, 1001) == 0); // others used more than all
}

// ---- the timed backend

// From timed_begin to timed_end the operations are others; then the backend is as it was, to the byte.
TEST(a_timed_backend_is_as_it_was)
{
    struct error err;
    struct backend *b = backend_cpu(1, &err), before = *b;
    struct timed t;
    timed_begin(&t, b);
    assert_true(b->matmul != before.matmul && b->best != before.best && b->upload != before.upload);
    assert_true(b->alloc == before.alloc && b->sync != before.sync);
    assert_true(timed_end(&t, &err));
    assert_memory_equal(b, &before, sizeof(before));
    b->destroy(b);
}

// A failure is reported by the next sync(), or else by timed_end.
static bool lost(struct backend *b, struct error *err)
{
    return fail(err, "device lost");
}

TEST(a_failure_while_timing_is_reported_once)
{
    struct error err = { "" };
    struct backend *b = backend_cpu(1, &err);
    struct timed t;
    float x = 1;
    b->sync = lost;
    timed_begin(&t, b);
    b->upload(b, &x, &x, sizeof(x));
    assert_false(timed_end(&t, &err));
    assert_string_equal(err.text, "device lost");
    timed_begin(&t, b);
    b->upload(b, &x, &x, sizeof(x));
    assert_false(b->sync(b, &err));
    assert_true(timed_end(&t, &err));
    b->destroy(b);
}

static void run_chain(struct backend *b, int n, float *logits)
{
    struct error err;
    int32_t token[8] = { 3, 1, 4, 1, 5, 9, 2, 6 }, slot[8] = { 0 }, parent[8] = { -1, 0, 1, 2, 3, 4, 5, 6 };
    struct model *m = model_open(models.gguf, b, ACTIVATIONS_DEFAULT, n, &err);
    assert_non_null(m);
    struct kv_shape shape = model_kv_shape(m, 1, 16, 8);
    struct kv_cache *c = kv_create(b, &shape, &err);
    assert_non_null(c);
    struct states states;
    const struct pass pass = { .n = n, .token = token, .slot = slot, .parent = parent };
    int64_t vocab = model_shape(m)->vocab;
    struct tensor out = tensor_of(b->alloc(b, (size_t)(n * vocab) * sizeof(float)), F32, n, vocab);
    assert_true(model_forward(m, c, &pass, NULL, &states, &err));
    model_logits(m, out, states.last);
    assert_true(b->sync(b, &err));
    memcpy(logits, out.data, (size_t)(n * vocab) * sizeof(float));
    b->release(b, out.data);
    kv_destroy(c);
    model_close(m);
}

// Counts the calls of the entry with this name, which occurs once.
static int64_t calls_of(const struct timed *t, const char *name)
{
    int64_t calls = -1;
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->entry[i].operation, name) == 0) {
            assert_int_equal(calls, -1);
            calls = t->entry[i].calls;
        }
    return calls;
}

TEST(timing_does_not_change_logits)
{
    struct error err;
    enum { N = 4 };
    size_t bytes = (size_t)(N * small_default.vocab) * sizeof(float);
    float *plain = xmalloc(bytes), *counted = xmalloc(bytes);
    struct backend *b = backend_cpu(2, &err);
    struct timed t;
    run_chain(b, N, plain);
    timed_begin(&t, b);
    run_chain(b, N, counted);
    assert_true(timed_end(&t, &err));
    assert_memory_equal(plain, counted, bytes);
    assert_int_equal(calls_of(&t, "attend"), small_default.layers);
    assert_int_equal(calls_of(&t, "gated"), small_default.layers);
    assert_int_equal(calls_of(&t, "matmul"), 3 * small_default.layers + 1); // q, k, v; o; down; and the head
    timed_begin(&t, b);
    assert_int_equal(t.n, 0);
    assert_true(timed_end(&t, &err));
    b->destroy(b);
    free(plain);
    free(counted);
}

RUN_TESTS(models_make, models_remove)
