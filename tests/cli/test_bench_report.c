// test_bench_report.c - a bench with fixed numbers as JSON (golden file cases/bench.txt, which python/tests/test_peers.py
// has as tables), and in the database. Nothing is measured.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/command_line.h"
#include "experiments/machine.h"
#include "models/model.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/results/sample_facts.h"
#include "tests/support/numbers.h"
#include "tests/support/small_model.h"

static bool write_golden;

static void open_bench(struct bench *b, const struct bench_plan *plan)
{
    struct error err = { "" };
    assert_ok(bench_open(b, plan, &err), err);
    free(b->machine), free(b->started), free(b->target->path);
    b->machine = xstrdup("a machine");
    b->started = xstrdup("2026-01-02T03:04:05Z");
    b->target->path = xstrdup("target.gguf");
    if (b->draft != NULL) {
        free(b->draft->path);
        b->draft->path = xstrdup("draft.gguf");
    }
}

// ---- a complete bench: two contexts, a draft model, six rounds

enum { WHOLE_ROUNDS = 6 };
static const char a_prober; // stands for a prober; never dereferenced

// Rounds 0, 1 and 4 count for S, 5 for D; in round 2 other processes used the machine, and 3 is unstable.
static const struct round whole_round[WHOLE_ROUNDS] = {
    { { 1.1e8, 2.0e8, 51 }, { 1.2e8, 2.1e8, 52 }, PLACED_S, 0.01, true },
    { { 1.3e8, 2.2e8, 53 }, { 1.4e8, 2.3e8, 54 }, PLACED_S, NAN, true },
    { { 9.1e8, 9.2e8, 93 }, { 9.4e8, 9.5e8, 94 }, PLACED_S, 0.5, false },
    { { 8.1e8, 8.2e8, 83 }, { 8.4e8, 8.5e8, 84 }, PLACED_UNSTABLE, 0.02, false },
    { { 1.5e8, 2.4e8, 55 }, { 1.6e8, 2.5e8, 56 }, PLACED_S, 0.03, true },
    { { 1.0e8, 3.0e8, 301 }, { 1.1e8, 3.2e8, 302 }, PLACED_D, 0.04, true },
};
static const double own_times[WHOLE_ROUNDS] = { 1, 1.25, 100, 1000, 2, 3 };

static void add(struct bench *b, enum bench_kind kind, int n, int context_index, double ns)
{
    struct measurement *i = &b->measurement[b->n_measurements++];
    *i = (struct measurement){ .kind = kind,
                               .slots = 1,
                               .n = n,
                               .context_index = context_index,
                               .context = kind == BENCH_PROMPT ? 0 : b->plan.context[context_index] };
    i->ns = xcalloc(WHOLE_ROUNDS, sizeof(double));
    for (int r = 0; r < WHOLE_ROUNDS; r++)
        i->ns[r] = ns * own_times[r];
}

static struct spread spread5(int n, double median, double low, double high, double least, double most)
{
    return (struct spread){ .n = n, .median = median, .low = low, .high = high, .least = least, .most = most };
}

static void complete(struct bench *b)
{
    static const double pass[2][3] = { { 4e6, 4.8e6, 8e6 }, { 5.6e6, 6e6, 1.2e7 } }, step[2] = { 1e6, 1.4e6 };
    static const struct peak peak[] = {
        { "f32", "avx512", 2e8 }, { "f32", "avx2", 1.5e8 }, { "int8", "avx512", 9e8 }, { "bf16", "plain", 4e8 }
    };
    const struct bench_plan plan = { .model = models.gguf,
                                     .draft = models.draft,
                                     .threads = 2,
                                     .repeats = 3,
                                     .prompt = 16,
                                     .n_rows = 3,
                                     .rows = { 1, 2, 6 },
                                     .n_contexts = 2,
                                     .context = { 8, 20 } };
    open_bench(b, &plan);
    b->plan.probe = true;
    b->prober = (struct prober *)(uintptr_t)&a_prober;
    memcpy(b->peak, peak, sizeof(peak));
    b->n_peaks = 4;
    b->measurement = xcalloc(9, sizeof(*b->measurement));
    for (int c = 0; c < 2; c++) {
        for (int i = 0; i < 3; i++)
            add(b, BENCH_PASS, plan.rows[i], c, pass[c][i]);
        add(b, BENCH_DRAFT_STEP, 1, c, step[c]);
    }
    add(b, BENCH_PROMPT, 16, 0, 4e7);
    b->round = xcalloc(WHOLE_ROUNDS, sizeof(*b->round));
    memcpy(b->round, whole_round, sizeof(whole_round));
    b->n_rounds = b->capacity = WHOLE_ROUNDS;
    b->counted[PLACED_S] = 3;
    b->counted[PLACED_D] = 1;
    b->overhead[0] =
        (struct overhead){ "greedy", spread5(48, 5e4, 4e4, 7e4, 3e4, 9e4), spread5(48, 4e6, 3.9e6, 4.2e6, 3.5e6, 5e6) };
    b->overhead[1] = (struct overhead){ "sampled", spread5(47, 6e4, 5.5e4, 8e4, 3.5e4, 9.5e4),
                                        spread5(47, 4.1e6, 4.0e6, 4.3e6, 3.6e6, 5.1e6) };
    b->overhead[2] = (struct overhead){ "matched", spread5(46, 7.5e4, 6.5e4, 8.5e4, 4e4, 9.9e4),
                                        spread5(46, 5e6, 4.9e6, 5.2e6, 4.5e6, 6e6) };
    b->cost[PLACED_S] = (struct cost){ .form = COST_HINGE,
                                       .a = 3e6,
                                       .b = 2e5,
                                       .s = 4e5,
                                       .n0 = 2,
                                       .d = 5e4,
                                       .e = 1e4,
                                       .hinge_max_error = 0.04,
                                       .hinge_rms = 0.03,
                                       .table_max_error = 0.02,
                                       .table_rms = 0.01,
                                       .step_a = 7e5,
                                       .step_d = 3e4,
                                       .step_max_error = 0.055 };
    b->cost[PLACED_D] =
        (struct cost){ .form = COST_HINGE, .a = 9e6, .step_a = NAN, .step_d = NAN, .step_max_error = NAN };
}

static void close_bench(struct bench *b)
{
    b->prober = NULL;
    bench_close(b);
}

// ---- the others

// Passes in rounds of one kind. experts: that each read, or NULL.
static void passes(struct bench *b, const struct bench_plan *plan, int rounds, struct round round, const double *ns,
                   const int64_t *experts, double cost_of_a_row)
{
    open_bench(b, plan);
    b->round = xcalloc((size_t)rounds, sizeof(*b->round));
    for (int r = 0; r < rounds; r++)
        b->round[r] = round;
    b->n_rounds = b->capacity = b->counted[PLACED_UNPROBED] = rounds;
    b->none_counts = !round.counts;
    const int n = plan->n_rows * (plan->n_slots > 0 ? plan->n_slots : 1);
    b->measurement = xcalloc((size_t)n, sizeof(*b->measurement));
    for (int i = 0; i < n; i++) {
        add(b, BENCH_PASS, plan->rows[i % plan->n_rows], 0, ns[i]);
        b->measurement[i].slots = plan->n_slots > 0 ? plan->slots[i / plan->n_rows] : 1;
        b->measurement[i].experts = experts != NULL ? experts[i] : 0;
    }
    b->cost[PLACED_UNPROBED] = (struct cost){
        .form = COST_HINGE, .a = 2e6, .b = cost_of_a_row, .step_a = NAN, .step_d = NAN, .step_max_error = NAN
    };
}

// No probes, and no round counts: both rounds are shown.
static void bare(struct bench *b)
{
    const struct bench_plan plan = {
        .model = models.gguf, .threads = 1, .repeats = 1, .n_rows = 1, .rows = { 2 }, .n_contexts = 1, .context = { 8 }
    };
    passes(b, &plan, 2,
           (struct round){ .before = { 1, 2, 3 }, .after = { 4, 5, 6 }, .placement = PLACED_UNPROBED, .foreign = 0.09 },
           (const double[]){ 4e6 }, NULL, 0);
}

static const struct round counted = { .placement = PLACED_UNPROBED, .foreign = NAN, .counts = true };

// Passes of one and of four slots.
static void batch(struct bench *b)
{
    const struct bench_plan plan = { .model = models.gguf,
                                     .threads = 1,
                                     .repeats = 1,
                                     .n_rows = 2,
                                     .rows = { 1, 2 },
                                     .n_slots = 2,
                                     .slots = { 1, 4 },
                                     .n_contexts = 1,
                                     .context = { 8 } };
    passes(b, &plan, 1, counted, (const double[]){ 2e6, 3e6, 5e6, 6e6 }, NULL, 1e6);
}

// A mixture of experts: rows of one slot and of three, whose experts were counted.
static void mixture(struct bench *b)
{
    static const char name[] =
        "shape:qwen3-30b-a3b,layers=3,width=64,heads=4,kv_heads=2,head_dim=16,hidden=128,vocab=288,context=512,experts=8,"
        "experts_used=2,expert_hidden=32,type=f32";
    const struct bench_plan plan = { .model = name,
                                     .threads = 1,
                                     .repeats = 1,
                                     .n_rows = 2,
                                     .rows = { 1, 4 },
                                     .n_slots = 2,
                                     .slots = { 1, 3 },
                                     .n_contexts = 1,
                                     .context = { 8 } };
    passes(b, &plan, 1, counted, (const double[]){ 6e6, 1.5e7, 1.3e7, 2.3e7 }, (const int64_t[]){ 6, 15, 13, 23 }, 0);
}

// ---- output

static char *replaced(char *text, const char *what, const char *with)
{
    struct text t = { 0 };
    const char *at = text;
    for (const char *found; (found = strstr(at, what)) != NULL; at = found + strlen(what)) {
        text_add(&t, at, (size_t)(found - at));
        text_puts(&t, with);
    }
    text_puts(&t, at);
    free(text);
    return t.s;
}

static char *all_outputs(void)
{
    static void (*const make[])(struct bench *) = { complete, bare, batch, mixture };
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    for (size_t i = 0; i < sizeof(make) / sizeof(make[0]); i++) {
        struct bench b = { 0 };
        make[i](&b);
        bench_json(&b, out);
        close_bench(&b);
    }
    fclose(out);
    text = replaced(text, program_version(), "REVISION");
    text = replaced(text, "\r\n", "\\r\n"); // made visible
    return replaced(text, "},{", "},\n{");  // for readable diffs
}

TEST(output_equals_the_golden_file)
{
    char *now = all_outputs();
    assert_golden_file("bench.txt", now, write_golden);
    free(now);
}

// ---- numbers

static double layer_products(void) // multiplications of one row in one layer
{
    const struct small_model *t = &small_default;
    double q = t->width * t->heads * t->head_dim, kv = 2.0 * t->width * t->kv_heads * t->head_dim,
           o = t->heads * t->head_dim * t->width, mlp = 3.0 * t->width * t->hidden;
    return q + kv + o + mlp;
}

// Counted row by row and layer by layer; each element of a head's keys and values takes two operations.
TEST(work_is_counted_row_by_row)
{
    struct bench b = { 0 };
    bare(&b);
    b.plan.prompt = 16;
    const struct small_model *t = &small_default;
    for (int n = 1; n <= 5; n += 2)
        for (int context = 0; context <= 40; context += 20) {
            double sum = 0;
            for (int row = 0; row < n; row++)
                sum += 2 * (t->layers * layer_products() + t->vocab * t->width) +
                       4.0 * t->layers * t->heads * t->head_dim * (context + row + 1);
            assert_true(bench_flops(&b, 1, n, context) == sum && bench_flops(&b, 3, n, context) == 3 * sum);
            const double cache = 2.0 * t->layers * t->kv_heads * t->head_dim * sizeof(float) * (context + n);
            assert_true(bench_bytes(&b, 1, n, context) == (double)model_bytes(b.target->model) + cache);
            assert_true(bench_bytes(&b, 3, n, context) == (double)model_bytes(b.target->model) + 3 * cache);
        }
    double prompt = 2.0 * t->vocab * t->width;
    for (int row = 0; row < 16; row++)
        prompt += 2 * t->layers * layer_products() + 4.0 * t->layers * t->heads * t->head_dim * (row + 1);
    assert_true(bench_prompt_flops(&b) == prompt);

    assert_true(bench_peak(&b) == 0); // none is known
    close_bench(&b);
}

// The peak of an instruction set that the device does not use is none for it.
TEST(a_peak_is_of_the_instructions_of_the_device)
{
    static const struct peak peak[] = {
        { "f32", "avx512", 8 }, { "f32", "avx2", 4 }, { "f32", "plain", 2 }, { "int8", "plain", 16 }
    };
    static const struct {
        const char *device;
        double peak;
    } devices[] = { { "cpu", 8 }, { "cpu:plain", 2 }, { "cpu:avx2", 4 }, { "cpu:avx2_vnni", 4 }, { "cpu:avx512", 8 } };
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        struct error err = { "" };
        struct bench b = { 0 };
        const struct bench_plan plan = { .model = models.gguf,
                                         .options.device = devices[i].device,
                                         .threads = 1,
                                         .repeats = 1,
                                         .n_rows = 1,
                                         .rows = { 1 },
                                         .n_contexts = 1,
                                         .context = { 8 } };
        if (bench_open(&b, &plan, &err)) { // not every processor has every device
            memcpy(b.peak, peak, sizeof(peak));
            b.n_peaks = 4;
            assert_true(bench_peak(&b) == devices[i].peak);
        } else {
            assert_true(i > 1);
        }
        bench_close(&b);
    }
}

// Computed by plain loops over the rounds that count.
TEST(spreads_cover_the_rounds_that_count)
{
    struct bench b = { 0 };
    complete(&b);
    static const int s[] = { 0, 1, 4 };
    double own_ns[3], memory[6];
    const struct measurement *i = bench_find(&b, BENCH_PASS, 1, 2, 20);
    assert_non_null(i);
    for (int k = 0; k < 3; k++) {
        own_ns[k] = 6e6 * own_times[s[k]];
        memory[2 * k] = whole_round[s[k]].before.all;
        memory[2 * k + 1] = whole_round[s[k]].after.all;
    }
    const struct spread is[] = { bench_ns(&b, i, PLACED_S), bench_memory(&b, PLACED_S) },
                        should[] = { spread_of(own_ns, 3), spread_of(memory, 6) };
    for (int k = 0; k < 2; k++) {
        assert_int_equal(is[k].n, should[k].n);
        assert_true(is[k].median == should[k].median && is[k].low == should[k].low && is[k].high == should[k].high);
        assert_true(is[k].least == should[k].least && is[k].most == should[k].most);
    }
    assert_null(bench_find(&b, BENCH_PASS, 1, 3, 20));
    assert_null(bench_find(&b, BENCH_DRAFT_STEP, 1, 1, 9));
    assert_int_equal(bench_find(&b, BENCH_DRAFT_STEP, 1, 1, 20)->kind, BENCH_DRAFT_STEP);
    close_bench(&b);
}

// ---- the database

static void holds(struct store *s, const char *sql)
{
    if (sample_facts_query(s, sql) != 1)
        fail_msg("expected 1: %s", sql);
}

TEST(measurements_are_stored)
{
    struct error err = { "" };
    char *path = test_path("report.db");
    struct store *st = store_open(path, &err);
    assert_non_null(st);
    struct bench b = { 0 };
    complete(&b);
    assert_ok(bench_store(&b, st, &err), err);
    char target[HASH_TEXT], draft[HASH_TEXT];
    hash_write(model_hash(b.target->model), target);
    hash_write(model_hash(b.draft->model), draft);
    assert_string_not_equal(target, draft);
    char *sql =
        xformat("SELECT target = 'target.gguf' AND target_hash = '%s' AND draft = 'draft.gguf' AND draft_hash = '%s'"
                " AND draft_activations = 'f32' AND activations = 'f32' AND model_type = 'f32' AND cache = 'f32'"
                " AND machine = 'a machine' AND started = '2026-01-02T03:04:05Z' AND threads = 2 AND"
                " marked_inflated = 0 AND overhead_ns = 5e4 AND overhead_low_ns = 4e4 AND overhead_high_ns = 7e4"
                " FROM bench WHERE id = 1",
                target, draft);
    holds(st, sql);
    free(sql);
    holds(st, "SELECT count(*) = 4 AND sum(per_second) = 16.5e8 FROM bench_peak");
    holds(st, "SELECT count(*) = 6 FROM bench_round");
    holds(st, "SELECT counts = 1 AND placement = 'S' AND foreign_share = 0.03 AND before_read = 2.4e8 AND"
              " before_read_one = 1.5e8 AND before_trip_ns = 55 AND after_read = 2.5e8 AND after_read_one = 1.6e8 AND"
              " after_trip_ns = 56 FROM bench_round WHERE round = 4");
    holds(st, "SELECT counts = 0 AND placement = 'unstable' FROM bench_round WHERE round = 3");
    // Nine measurements in six rounds.
    holds(st, "SELECT count(*) = 9 * 6 FROM bench_time WHERE peer = 0");
    holds(st, "SELECT ns = 12000000 FROM bench_time WHERE what = 'pass' AND n = 2 AND context = 20 AND round = 4"
              " AND peer = 0");
    holds(st, "SELECT ns = 2800000 FROM bench_time WHERE what = 'draft_step' AND context = 20 AND round = 4");
    holds(
        st,
        "SELECT count(*) = 2 AND sum(placement = 'S' AND form = 'hinge' AND a = 3e6 AND b = 2e5 AND s = 4e5 AND n0 = 2 AND"
        " d = 5e4 AND e = 1e4 AND u = 0 AND hinge_error = 0.04 AND hinge_rms = 0.03 AND table_error = 0.02 AND table_rms = 0.01 AND"
        " step_a = 7e5 AND step_d = 3e4 AND step_error = 0.055) = 1 AND sum(placement = 'D' AND a = 9e6 AND step_a IS NULL) = 1"
        " FROM cost");
    holds(
        st,
        "SELECT count(*) = 4 FROM bench_time WHERE round = 0 AND experts IS NULL AND slots = 1 AND what = 'pass' AND n < 6");

    // One row of several cannot be stored: nothing is.
    b.peak[3] = b.peak[2];
    assert_false(bench_store(&b, st, &err));
    assert_non_null(strstr(err.text, "constraint"));
    holds(st, "SELECT count(*) = 1 FROM bench");
    close_bench(&b);

    // Probes that were not run are stored as NULL, whatever the fields hold; so is a missing draft model.
    bare(&b);
    assert_ok(bench_store(&b, st, &err), err);
    holds(st, "SELECT draft IS NULL AND draft_hash IS NULL AND draft_activations IS NULL AND overhead_ns IS NULL AND"
              " overhead_low_ns IS NULL AND overhead_high_ns IS NULL FROM bench WHERE id = 2");
    holds(st, "SELECT count(*) = 2 FROM bench_round WHERE bench = 2 AND before_read IS NULL AND before_read_one IS NULL"
              " AND before_trip_ns IS NULL AND after_read IS NULL AND after_read_one IS NULL AND after_trip_ns IS NULL"
              " AND foreign_share = 0.09");
    close_bench(&b);
    store_close(st);
    free(path);
}

// With the argument `write` it rewrites bench.txt; read the diff.
int main(int argc, char **argv)
{
    write_golden = argc == 2 && strcmp(argv[1], "write") == 0;
    return tests_run(models_make, models_remove);
}
