// test_bench_parts.c - parts of a bench: opening a plan, the order of rounds, the protocol and life of a peer, and facts
// about the machine. No time is asserted.
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "commands/bench/bench_peer.h"
#include "kernels/backend.h"
#include "kernels/cpu/probe.h"
#include "formats/file.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "tests/support/check.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
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

// ---- rounds, as seen by peers

enum { ITEMS = 4, PEERS = 2 };

// As in bench.c: Fisher-Yates with Knuth's linear congruential generator, seeded by the round's number.
static void order_of(int order[ITEMS], int round)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(round + 1);
    for (int i = 0; i < ITEMS; i++)
        order[i] = i;
    for (int left = ITEMS; left > 1; left--) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int at = (int)((x >> 33) % (uint64_t)left), last = order[left - 1];
        order[left - 1] = order[at];
        order[at] = last;
    }
}

// Each of two peers appends every line that it receives to one file, with its number.
static void peers_receive_the_measurements_in_the_order_of_the_round(void **state)
{
    struct error err = { "" };
    char *script = test_path("note.sh"), *notes = test_path("notes");
    file_write(script, "while read w r; do echo \"$1 $w $r\" >>$2; case $w in open) echo ready twin-$1 1.0;;"
                       " pass|prompt) echo 0.00$1;; esac; done");
    const char *const one[] = { "sh", script, "1", notes, NULL }, *const two[] = { "sh", script, "2", notes, NULL };
    const struct bench_plan plan = { .model = models.gguf,
                                     .draft = models.draft,
                                     .threads = 1,
                                     .repeats = 2,
                                     .prompt = 5,
                                     .n_rows = 2,
                                     .rows = { 1, 3 },
                                     .n_contexts = 1,
                                     .context = { 8 },
                                     .n_peers = PEERS,
                                     .peer = { { one, "one", { 2, { "k=v", "deep=a=b" } } }, { .words = two } } };
    struct bench_plan named = plan;
    named.peer[1].label = "two";
    struct bench b = { 0 };
    assert_ok(bench_open(&b, &named, &err) && bench_run(&b, &err), err);
    assert_string_equal(peer_name(b.peer[1]), "twin-2 1.0");

    struct text expected = { 0 };
    for (int e = 1; e <= PEERS; e++) {
        text_printf(&expected, "%d model %s\n%d threads 1\n%d rows 3\n%d prompt_tokens 5\n%d contexts 8\n", e,
                    models.gguf, e, e, e, e);
        if (e == 1)
            text_puts(&expected, "1 option k v\n1 option deep a=b\n");
        text_printf(&expected, "%d open \n", e);
    }
    static const char *const item[ITEMS] = { "pass 1 8", "pass 3 8", NULL, "prompt " }; // NULL: a draft step
    for (int r = 0; r < b.n_rounds; r++) {
        int order[ITEMS];
        order_of(order, r);
        for (int k = 0; k < ITEMS; k++)
            for (int turn = 0; turn < 1 + PEERS && item[order[k]] != NULL; turn++) {
                int e = (k + r + turn) % (1 + PEERS); // 0: speclab
                if (e > 0)
                    text_printf(&expected, "%d %s\n", e, item[order[k]]);
            }
    }
    char *noted = file_text(notes, NULL, &err);
    assert_non_null(noted);
    assert_string_equal(noted, expected.s);

    static const int rows[ITEMS] = { 1, 3, 1, 5 };
    assert_int_equal(b.n_measurements, ITEMS);
    for (int i = 0; i < ITEMS; i++) {
        const struct measurement *m = &b.measurement[i];
        assert_int_equal(m->kind, i < 2 ? BENCH_PASS : i == 2 ? BENCH_DRAFT_STEP : BENCH_PROMPT);
        assert_int_equal(m->n, rows[i]);
        assert_int_equal(m->context, i < 3 ? 8 : 0);
        for (int e = 0; e < PEERS; e++) {
            assert_true((m->peer_ns[e] == NULL) == (i == 2));
            for (int r = 0; r < b.n_rounds && i != 2; r++)
                assert_true(m->peer_ns[e][r] == (e + 1) * 1e6);
        }
        for (int r = 0; r < b.n_rounds; r++)
            assert_true(m->ns[r] > 0);
    }
    // Three ways to decode 48 tokens, one a step.
    static const char *const mode[OVERHEADS] = { "greedy", "sampled, rejection", "sampled, match" };
    for (int i = 0; i < OVERHEADS; i++) {
        assert_string_equal(b.overhead[i].mode, mode[i]);
        assert_int_equal(b.overhead[i].outside.n, 48);
        assert_int_equal(b.overhead[i].all.n, 48);
    }

    // The operations of a pass add up to the pass, and carry its rows and context.
    for (int i = 0; i < 2; i++) {
        double flops = 0;
        for (int k = 0; k < b.n_operations; k++) {
            assert_int_equal(b.operation[k].context, 8);
            flops += b.operation[k].n == plan.rows[i] ? b.operation[k].flops : 0;
        }
        assert_true(flops == bench_flops(&b, 1, plan.rows[i], 8));
    }
    bench_close(&b);
    free(noted);
    free(expected.s);
    free(script);
    free(notes);
}

// ---- several slots

// A slot's row has the logits that it has alone: each slot sees its own cached tokens, as many as the others.
static void slots_of_a_pass_do_not_see_each_other(void **state)
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
    assert_ok(bench_model_pass(m, 3, 2, 0, &ns, &err), err);
    memcpy(together, m->logits.data, 3 * bytes);
    for (int slot = 0; slot < 3; slot++) {
        assert_int_equal(kv_length(m->cache[0], slot), 8);
        assert_int_equal(kv_pending(m->cache[0], slot), 0);
        m->token += 2 * slot; // the tokens of that slot
        assert_ok(bench_model_pass(m, 1, 2, 0, &ns, &err), err);
        m->token -= 2 * slot;
        assert_memory_equal(m->logits.data, together + slot * 2 * m->logits.width, bytes);
    }
    free(together);
    bench_close(&b);
}

static void passes_of_several_slots_are_measured(void **state)
{
    struct error err = { "" };
    char *script = test_path("slots.sh"), *notes = test_path("slots");
    file_write(script,
               "while read w r; do echo \"$w $r\" >>$1; case $w in slots) echo slots;; open) echo ready it 1.0;;"
               " pass) echo 0.001;; esac; done");
    const char *const words[] = { "sh", script, notes, NULL };
    struct bench_plan p = small_plan(2, 8);
    p.n_slots = 2;
    p.slots[0] = 1;
    p.slots[1] = 4;
    p.n_peers = 1;
    p.peer[0] = (struct peer_program){ .words = words, .label = "it" };
    struct bench b;
    assert_ok(bench_open(&b, &p, &err) && bench_run(&b, &err), err);
    assert_int_equal(b.n_measurements, 2);
    for (int i = 0; i < 2; i++) {
        const struct measurement *m = &b.measurement[i];
        assert_true(m == bench_find(&b, BENCH_PASS, p.slots[i], 2, 8));
        assert_true(m->ns[0] > 0 && m->peer_ns[0][0] == 1e6);
        double flops = 0;
        for (int k = 0; k < b.n_operations; k++)
            flops += b.operation[k].slots == p.slots[i] && b.operation[k].n == 2 ? b.operation[k].flops : 0;
        assert_true(flops == bench_flops(&b, p.slots[i], 2, 8) && flops == p.slots[i] * bench_flops(&b, 1, 2, 8));
    }
    // The cost model is of passes of one slot; a fit rounds.
    const double ns = bench_ns(&b, &b.measurement[0], PLACED_UNPROBED).median;
    assert_true(fabs(cost_ns(&b.cost[PLACED_UNPROBED], 2, 8) - ns) < 1e-9 * ns);
    bench_close(&b);
    char *noted = file_text(notes, NULL, &err);
    assert_non_null(noted);
    assert_non_null(strstr(noted, "\ncontexts 8\nslots 1 4\nopen \n"));
    assert_non_null(strstr(noted, "\npass 2 8\n"));
    assert_non_null(strstr(noted, "\npass 2 8 4\n"));
    free(noted);
    free(script);
    free(notes);
}

// ---- opening

// No more rounds than requested, except for those that do not count. These rounds are too short to measure the load of
// other processes.
static void rounds_are_run_until_enough_of_them_count(void **state)
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
        double flops = 0; // of one pass, however many there were
        for (int k = 0; k < b.n_operations; k++)
            flops += b.operation[k].flops;
        assert_true(flops == bench_flops(&b, 1, 1, 8));
        bench_close(&b);
    }
}

// The context of the models is 512 tokens.
static void a_plan_is_limited_to_the_context_of_the_model(void **state)
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
    assert_int_equal(bench_model_rows(&(struct bench_model_plan){ .rows = 1, .prompt = 1 }), VERIFIER_CHUNK);
    assert_int_equal(bench_model_rows(&(struct bench_model_plan){ .rows = 300, .prompt = 1 }), 300);
    assert_int_equal(bench_model_rows(&(struct bench_model_plan){ .rows = 5, .slots = 60, .prompt = 1 }), 300);
}

static void memory_is_probed_by_the_threads_of_the_plan(void **state)
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
    return bench_model_prompt(&b->model, &ns, err);
}

static bool step_works(struct bench *b, struct error *err)
{
    int64_t ns;
    return bench_model_draft_step(&b->model, 0, &ns, err);
}

static bool pass_works(struct bench *b, struct error *err)
{
    int64_t ns;
    return bench_model_pass(&b->model, 1, 3, 0, &ns, err);
}

// The device fails at its first sync, its second, and so on: the work reports failure, until there are fewer syncs than that.
static void a_device_failure_is_reported(void **state)
{
    static const struct {
        bool (*works)(struct bench *b, struct error *err);
        int waits; // number of syncs; 0: more than are tried
    } work[] = {
        { prompt_works, 2 }, { step_works, 1 }, { pass_works, 1 }, { bench_operations, 0 }, { bench_overhead, 0 }
    };
    for (size_t i = 0; i < sizeof(work) / sizeof(work[0]); i++)
        for (int waits = 0; waits < (work[i].waits > 0 ? work[i].waits + 1 : 2); waits++) {
            struct error err = { "" };
            struct bench b;
            struct bench_plan p = small_plan(3, 8);
            p.prompt = 7;
            assert_ok(bench_open(&b, &p, &err), err);
            struct backend *device = model_backend(b.target.model);
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

static void missing_device_memory_is_reported(void **state)
{
    struct error err = { "" };
    struct bench b;
    const struct bench_plan p = small_plan(3, 8);
    assert_ok(bench_open(&b, &p, &err), err);
    struct backend *device = model_backend(b.target.model);
    void *(*alloc)(struct backend *, size_t) = device->alloc;
    device->alloc = no_memory;
    struct bench_model s = { 0 };
    const struct bench_model_plan plan = {
        .rows = 3, .prompt = 7, .n_contexts = 1, .context = p.context, .cache = F32
    };
    assert_false(bench_model_open(&s, b.target.model, &plan, &err));
    assert_string_equal(err.text, "cpu: out of memory for the logits of 3 rows");
    device->alloc = alloc;
    bench_close(&b);
}

// ---- peers

static int next_descriptor(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

static void expect_open_error(const char *const *words, const char *message)
{
    struct error err = { "" };
    const int context = 8, open_files = count_entries("/proc/self/fd");
    const struct peer_plan p = { .words = words, .label = "it", .model = "m", .n_contexts = 1, .context = &context };
    assert_null(peer_open(&p, &err));
    assert_string_equal(err.text, message);
    assert_int_equal(count_entries("/proc/self/fd"), open_files); // its pipes are closed
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);             // and it was waited for
}

static void a_peer_that_fails_to_open_is_reported_and_cleaned_up(void **state)
{
#define PREFIX "the engine to compare with: "
    expect_open_error((const char *[]){ "/nowhere/engine", NULL }, PREFIX "/nowhere/engine: No such file or directory");
    expect_open_error((const char *[]){ "sh", "-c", "read l; exit 3", NULL },
                      PREFIX "it ended without an answer (exit status 3)");
    expect_open_error((const char *[]){ "sh", "-c", "echo error it is out of order; cat >/dev/null; sleep 0.1", NULL },
                      PREFIX "it is out of order");
    expect_open_error((const char *[]){ "sh", "-c", "echo hello; cat >/dev/null", NULL },
                      PREFIX "it: expected \"ready NAME\", found \"hello\"");

    // No file descriptor is free for the first pipe, or for the second.
    struct rlimit usual;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    const char *const words[] = { "true", NULL };
    for (int pipes = 0; pipes < 2; pipes++) {
        struct rlimit few = usual;
        struct error err = { "" };
        const int fd = next_descriptor(), open_files = count_entries("/proc/self/fd");
        few.rlim_cur = (rlim_t)(fd + 2 * pipes);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        struct peer *e = peer_open(&(struct peer_plan){ .words = words, .label = "it", .model = "m" }, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
        assert_null(e);
        assert_string_equal(err.text, PREFIX "cannot create a pipe: Too many open files");
        assert_int_equal(count_entries("/proc/self/fd"), open_files);
    }
}

static void a_peer_reports_seconds_and_is_waited_for(void **state)
{
    struct error err = { "" };
    int64_t ns = 0;
    const int open_files = count_entries("/proc/self/fd");
    const char *const good[] = { "sh", "-c",
                                 "while read w r; do case $w in open) printf 'ready it 1.0\\r\\n';; pass) echo 0.25;;"
                                 " prompt) echo error no prompt;; esac; done; sleep 0.1",
                                 NULL };
    struct peer *e = peer_open(&(struct peer_plan){ .words = good, .label = "it", .model = "m" }, &err);
    assert_ok(e != NULL, err);
    assert_string_equal(peer_name(e), "it 1.0");
    assert_true(getpgid(peer_group(e)) == peer_group(e) && peer_group(e) != getpgrp());
    assert_true(peer_pass(e, 1, 1, 8, &ns, &err));
    assert_int_equal(ns, 250000000);
    assert_false(peer_prompt(e, &ns, &err));
    assert_string_equal(err.text, "no prompt");
    peer_close(e);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(count_entries("/proc/self/fd"), open_files);
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

static void load_equals_the_statistics_of_the_kernel(void **state)
{
    const double before = stat_seconds();
    const struct load l = load_begin(NULL, 0);
    const double after = stat_seconds();
    if (before < 0)
        skip();
    assert_true(l.busy >= before && l.busy <= after);
}

// Reads the value of the first line of /proc/cpuinfo with this name.
static void cpuinfo(const char *name, char *to)
{
    char line[1024];
    FILE *f = fopen("/proc/cpuinfo", "r");
    *to = '\0';
    while (f != NULL && *to == '\0' && fgets(line, sizeof(line), f) != NULL && line[0] != '\n') {
        char *colon = strchr(line, ':');
        if (colon == NULL)
            continue;
        line[strlen(line) - 1] = '\0';
        for (char *end = colon; end > line && (*end == ':' || *end == ' ' || *end == '\t'); end--)
            *end = '\0';
        if (strcmp(line, name) == 0)
            for (strcpy(to, colon + 1); *to == ' ' || *to == '\t';)
                memmove(to, to + 1, strlen(to));
    }
    if (f != NULL)
        fclose(f);
}

static void the_processor_is_named_as_the_kernel_names_it(void **state)
{
    char name[1024], family[1024], model[1024];
    cpuinfo("model name", name);
    cpuinfo("cpu family", family);
    cpuinfo("model", model);
    char *should = *name == '\0'                       ? xstrdup("unknown processor")
                   : *family == '\0' || *model == '\0' ? xstrdup(name)
                                                       : xformat("%s (family %s, model %s)", name, family, model),
         *is = machine_processor();
    assert_string_equal(is, should);
    free(should);
    free(is);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); // as in main.c: a peer may exit before it has read everything
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_receive_the_measurements_in_the_order_of_the_round),
        cmocka_unit_test(slots_of_a_pass_do_not_see_each_other),
        cmocka_unit_test(passes_of_several_slots_are_measured),
        cmocka_unit_test(rounds_are_run_until_enough_of_them_count),
        cmocka_unit_test(a_plan_is_limited_to_the_context_of_the_model),
        cmocka_unit_test(memory_is_probed_by_the_threads_of_the_plan),
        cmocka_unit_test(a_device_failure_is_reported),
        cmocka_unit_test(missing_device_memory_is_reported),
        cmocka_unit_test(a_peer_that_fails_to_open_is_reported_and_cleaned_up),
        cmocka_unit_test(a_peer_reports_seconds_and_is_waited_for),
        cmocka_unit_test(load_equals_the_statistics_of_the_kernel),
        cmocka_unit_test(the_processor_is_named_as_the_kernel_names_it),
    };
    return cmocka_run_group_tests(tests, models_make, models_remove);
}
