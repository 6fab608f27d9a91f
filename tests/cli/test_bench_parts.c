// test_bench_parts.c - parts of a bench: opening a plan, rounds, turns of other engines, and facts about the machine. No time is asserted.
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "commands/bench/bench.h"
#include "kernels/backend.h"
#include "kernels/cpu/probe.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "tests/support/tests.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "verifier/target_cache.h"
#include "verifier/verifier.h"

static int count_entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    if (d != NULL)
        closedir(d);
    return n;
}

static struct bench_plan small_plan(int rows, int context)
{
    return (struct bench_plan){ .model = models.gguf,
                                .threads = 1,
                                .repeats = 1,
                                .n_rows = 1,
                                .rows = { rows },
                                .n_contexts = 1,
                                .context = { context } };
}

// ---- several slots

// A slot's row has the logits that it has alone: each slot sees its own cached tokens, as many as the others.
TEST(slots_of_a_pass_do_not_see_each_other)
{
    struct error err = { "" };
    struct bench b;
    struct bench_plan p = small_plan(2, 8);
    p.n_slots = 2;
    p.slots[0] = 1;
    p.slots[1] = 3;
    assert_ok(bench_open(&b, &p, &err), err);
    struct bench_model *m = &b.model;
    const size_t bytes = (size_t)(2 * m->logits.width) * sizeof(float);
    float *together = xmalloc(3 * bytes);
    int64_t ns;
    assert_ok(bench_model_run(m, BENCH_PASS, 3, 2, 0, &ns, &err), err);
    memcpy(together, m->logits.data, 3 * bytes);
    for (int slot = 0; slot < 3; slot++) {
        assert_int_equal(kv_length(m->cache[0], slot), 8);
        assert_int_equal(kv_pending(m->cache[0], slot), 0);
        m->token += 2 * slot; // the tokens of that slot
        assert_ok(bench_model_run(m, BENCH_PASS, 1, 2, 0, &ns, &err), err);
        m->token -= 2 * slot;
        assert_memory_equal(m->logits.data, together + slot * 2 * m->logits.width, bytes);
    }
    free(together);
    bench_close(&b);
}

// ---- turns of other engines

// What is announced on the socket, each line answered at once.
static void *listen_and_answer(void *fd)
{
    FILE *f = fdopen(*(int *)fd, "r+");
    struct text heard = { 0 };
    char line[256];
    while (fgets(line, sizeof(line), f) != NULL) {
        text_puts(&heard, line);
        if (strchr("oredp", line[0]) != NULL && strncmp(line, "rows", 4) != 0 && strncmp(line, "prompt_", 7) != 0)
            dprintf(*(int *)fd, "1000\n"); // processor seconds, of which no more are used
    }
    fclose(f);
    return heard.s;
}

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

TEST(every_measurement_is_announced)
{
    struct error err = { "" };
    struct bench b;
    struct bench_plan p = small_plan(2, 8);
    int ends[2];
    pthread_t listener;
    void *heard;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(pthread_create(&listener, NULL, listen_and_answer, &ends[1]), 0);
    p.draft = models.draft;
    p.prompt = 5;
    p.n_slots = 2;
    p.slots[0] = 1;
    p.slots[1] = 4;
    p.turns = ends[0];
    assert_ok(bench_open(&b, &p, &err) && bench_run(&b, &err), err);
    const int rounds = b.n_rounds;
    bench_close(&b);
    pthread_join(listener, &heard);
    char *opening =
        xformat("model %s\nthreads 1\nrows 2\nprompt_tokens 5\ncontexts 8\nslots 1 4\nopen\nround\n", models.gguf);
    assert_memory_equal(heard, opening, strlen(opening));
    static const char *const each[] = { "\nround\n", "\npass 2 8 1\n", "\npass 2 8 4\n",
                                        "\ndraft\n", "\nprompt 5\n",   "end\n" };
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        assert_int_equal(count_of(heard, each[i]), rounds);
    free(opening);
    free(heard);
}

// ---- opening

// No more rounds than requested, except for those that do not count. These rounds are too short to measure the load of
// other processes.
TEST(rounds_are_run_until_enough_of_them_count)
{
    for (int repeats = 1; repeats <= 3; repeats += 2) {
        struct error err = { "" };
        struct bench b;
        struct bench_plan p = small_plan(1, 8);
        p.repeats = repeats;
        assert_ok(bench_open(&b, &p, &err) && bench_run(&b, &err), err);
        int counted = 0;
        for (int r = 0; r < b.n_rounds; r++)
            counted += b.round[r].counts;
        assert_true(counted == repeats || (counted < repeats && b.n_rounds == 2 * repeats));
        assert_int_equal(b.counted[PLACED_UNPROBED], counted > 0 ? counted : b.n_rounds);
        bench_close(&b);
    }
}

// The context of the models is 512 tokens.
TEST(a_plan_is_limited_to_the_context_of_the_model)
{
    struct error err = { "" };
    struct bench b;
    struct bench_plan p = small_plan(512, 100); // leaves no space for cached tokens
    p.prompt = 2000;
    assert_ok(bench_open(&b, &p, &err), err);
    assert_int_equal(b.plan.n_contexts, 1);
    assert_int_equal(b.plan.context[0], 0);
    assert_int_equal(b.plan.prompt, 512);
    bench_close(&b);

    p = small_plan(2, 8); // a context that does not fit is dropped, for the draft model as well
    p.n_contexts = 2;
    p.context[1] = 5000;
    p.draft = models.draft;
    assert_ok(bench_open(&b, &p, &err), err);
    assert_int_equal(b.plan.n_contexts, 1);
    assert_int_equal(b.plan.context[0], 8);
    assert_int_equal(b.draft_model.n_contexts, 1);
    assert_null(b.model.prompt_cache); // no prompt, no cache for it
    bench_close(&b);
    p.contexts_given = true;
    assert_false(bench_open(&b, &p, &err));
    assert_non_null(strstr(err.text, "--contexts 5000: "));
    bench_close(&b);

    assert_int_equal(bench_model_rows(&(struct bench_model_plan){ .rows = 1 }), 64);
    assert_int_equal(bench_model_rows(&(struct bench_model_plan){ .rows = 1, .prompt = 1 }), TARGET_CHUNK);
    assert_int_equal(bench_model_rows(&(struct bench_model_plan){ .rows = 300, .prompt = 1 }), 300);
    assert_int_equal(bench_model_rows(&(struct bench_model_plan){ .rows = 5, .slots = 60, .prompt = 1 }), 300);
}

TEST(memory_is_probed_by_the_threads_of_the_plan)
{
    const int before = count_entries("/proc/self/task");
    struct error err = { "" };
    struct bench b;
    struct bench_plan p = small_plan(1, 8);
    p.threads = 2;
    p.probe = true;
    assert_ok(bench_open(&b, &p, &err), err);
    assert_non_null(b.prober);
    assert_int_equal(prober_read(b.prober, 2, 0).threads, 2);
    const struct machine_state s = machine_state_probe(b.prober, 1);
    assert_true(s.one > 0 && s.all == s.one);
    bench_close(&b);
    for (int i = 0; i < 1000 && count_entries("/proc/self/task") != before;
         i++) // a joined thread may be listed a little longer
        usleep(1000);
    assert_int_equal(count_entries("/proc/self/task"), before); // the prober's threads are gone with it
}

// ---- when the device fails

static int syncs_left;
static bool (*real_sync)(struct backend *b, struct error *err);

static bool failing_sync(struct backend *b, struct error *err)
{
    return syncs_left-- > 0 ? real_sync(b, err) : fail(err, "device lost");
}

static void *no_memory(struct backend *b, size_t bytes)
{
    return NULL;
}

static bool prompt_works(struct bench *b, struct error *err)
{
    int64_t ns;
    return bench_model_run(&b->model, BENCH_PROMPT, 1, 7, 0, &ns, err);
}

static bool step_works(struct bench *b, struct error *err)
{
    int64_t ns;
    return bench_model_run(&b->model, BENCH_DRAFT_STEP, 1, 1, 0, &ns, err);
}

static bool pass_works(struct bench *b, struct error *err)
{
    int64_t ns;
    return bench_model_run(&b->model, BENCH_PASS, 1, 3, 0, &ns, err);
}

// The device fails at its first sync, its second, and so on: the work reports failure, until there are fewer syncs than that.
TEST(a_device_failure_is_reported)
{
    static const struct {
        bool (*works)(struct bench *b, struct error *err);
        int waits; // number of syncs; 0: more than are tried
    } work[] = { { prompt_works, 2 }, { step_works, 1 }, { pass_works, 1 }, { bench_overhead, 0 } };
    for (size_t i = 0; i < sizeof(work) / sizeof(work[0]); i++)
        for (int waits = 0; waits < (work[i].waits > 0 ? work[i].waits + 1 : 2); waits++) {
            struct error err = { "" };
            struct bench b;
            struct bench_plan p = small_plan(3, 8);
            p.prompt = 7;
            assert_ok(bench_open(&b, &p, &err), err);
            struct backend *device = model_backend(b.target->model);
            real_sync = device->sync;
            device->sync = failing_sync;
            syncs_left = waits;
            const bool works = work[i].works(&b, &err);
            device->sync = real_sync;
            assert_true(works == (work[i].waits > 0 && waits == work[i].waits));
            if (!works)
                assert_string_equal(err.text, "device lost");
            bench_close(&b);
        }
}

TEST(missing_device_memory_is_reported)
{
    struct error err = { "" };
    struct bench b;
    const struct bench_plan p = small_plan(3, 8);
    assert_ok(bench_open(&b, &p, &err), err);
    struct backend *device = model_backend(b.target->model);
    void *(*alloc)(struct backend *, size_t) = device->alloc;
    device->alloc = no_memory;
    struct bench_model s = { 0 };
    const struct bench_model_plan plan = {
        .rows = 3, .prompt = 7, .n_contexts = 1, .context = p.context, .cache = F32
    };
    assert_false(bench_model_open(&s, b.target->model, &plan, &err));
    assert_string_equal(err.text, "cpu: out of memory for the logits of 3 rows");
    device->alloc = alloc;
    bench_close(&b);
}

// ---- the machine

// Processor time in seconds from the first line of /proc/stat, without idle and iowait; negative: not available.
static double stat_seconds(void)
{
    FILE *f = fopen("/proc/stat", "r");
    double sum = 0, x = 0;
    int i = 0;
    if (f == NULL || fscanf(f, "cpu") != 0)
        return -1;
    for (; i < 8 && fscanf(f, " %lf", &x) == 1; i++)
        sum += i == 3 || i == 4 ? 0 : x;
    fclose(f);
    return i == 8 ? sum / (double)sysconf(_SC_CLK_TCK) : -1;
}

TEST(load_equals_the_statistics_of_the_kernel)
{
    const double before = stat_seconds();
    const struct load l = load_begin(0);
    const double after = stat_seconds();
    if (before < 0)
        skip();
    assert_true(l.busy >= before && l.busy <= after);
}

TEST(the_processor_is_named)
{
    char *is = machine_processor(), *line = NULL;
    size_t n = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f != NULL && getline(&line, &n, f) > 0)
        if (strncmp(line, "model name\t: ", 13) == 0) {
            line[strlen(line) - 1] = '\0';
            assert_int_equal(strncmp(is, line + 13, strlen(line + 13)), 0);
        }
    if (f != NULL)
        fclose(f);
    assert_true(*is != '\0');
    free(line), free(is);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); // as in main.c
    return tests_run(models_make, models_remove);
}
