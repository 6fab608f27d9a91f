// test_shard_command.c - `speclab run --shard` as a user or a job array of Slurm calls it: its database, messages and refusals.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

static int make(void **state)
{
    make_files(state);
    write_file("x.yaml",
               "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
               "limits: {new_tokens: 4}\ncells: {drafter: ngram}\n");
    return chdir(test_directory());
}

static void set_task(const char *id, const char *count, const char *min)
{
    setenv("SLURM_ARRAY_TASK_ID", id, 1);
    setenv("SLURM_ARRAY_TASK_COUNT", count, 1);
    setenv("SLURM_ARRAY_TASK_MIN", min, 1);
    setenv("SLURM_ARRAY_TASK_STEP", "1", 1);
}

static void unset_task(void)
{
    unsetenv("SLURM_ARRAY_TASK_ID");
}

static void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("expected \"%s\", found\n%s", part, text);
}

static int64_t count_of(const char *db, const char *sql)
{
    struct store *s = open_store(db);
    const int64_t n = query_first_int(s, sql);
    store_close(s);
    return n;
}

#define CONVERSATIONS "SELECT count(DISTINCT prompt) FROM sequence"

static void a_shard_has_a_database_of_its_own(void **state)
{
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        struct child_result r = child_run("run x.yaml --no-probe --shard %d/2", i);
        child_expect_success(&r, "run");
        char *db = xformat("results-%d-of-2.db", i),
             *end = xformat("Shard %d/2 is done, its results are in %s; `speclab merge`", i, db);
        expect_text(r.err, end);
        n += count_of(db, CONVERSATIONS);
        free(end);
        free(db);
        child_result_free(&r);
    }
    assert_int_equal(n, 5);
    assert_int_not_equal(access("results.db", F_OK), 0);
}

static void a_dry_run_shows_the_part(void **state)
{
    struct child_result r = child_run("run x.yaml --dry-run --json --shard 1/2 --db new.db");
    child_expect_success(&r, "run");
    expect_text(r.out, "\"shard\":{\"index\":1,\"of\":2,\"by_slurm\":false,\"pairs\":3,\"conversations\":6}");
    expect_text(r.out, "\"conversations\":3,\"done\":0,\"turns\":");
    child_result_free(&r);
    r = child_run("run x.yaml --dry-run --json --shard 0/2");
    expect_text(r.out, "\"turns\":0,");
    expect_text(r.out, "\"conversations\":2,\"done\":2,\"turns\":0,");
    child_result_free(&r);
}

static void a_task_of_an_array_goes_on_with_its_part(void **state)
{
    set_task("7", "3", "5");
    for (int again = 0; again < 2; again++) {
        struct child_result r = child_run("run x.yaml --no-probe --db task.db");
        child_expect_success(&r, "run");
        expect_text(r.err, "speclab run: shard 2/3, by SLURM_ARRAY_TASK_ID; --shard none runs all of it\n");
        child_result_free(&r);
        assert_int_equal(count_of("task.db", CONVERSATIONS), 2);
    }
    // Submitted again with another task, it would be half of the work.
    set_task("7", "2", "6");
    child_expect_error(
        1,
        "task.db has shard 2/3 of x, and by SLURM_ARRAY_TASK_ID this is shard 1/2: give --shard 2/3, or --shard none",
        "run x.yaml --no-probe --db task.db");
    assert_int_equal(count_of("task.db", CONVERSATIONS), 2);
    struct child_result r = child_run("run x.yaml --no-probe --db task.db --shard none");
    child_expect_success(&r, "run");
    expect_text(r.err, "Results are in task.db; `speclab report --db task.db` prints them.\n");
    child_result_free(&r);
    assert_int_equal(count_of("task.db", CONVERSATIONS), 5);
    unset_task();
}

static void bad_shards_are_mistakes_of_the_call(void **state)
{
    child_expect_error(2, "--shard: expected I from 0 to 3 in I/4, found \"4/4\": the first shard is 0",
                       "run x.yaml --shard 4/4");
    child_expect_error(2, "--shard: expected I/N, as in 0/4, N up to 65536, or none, found \"one\"",
                       "run x.yaml --shard one");
    set_task("3", "2", "0");
    child_expect_error(2, "SLURM_ARRAY_TASK_ID is 3: expected one of at most 65536 evenly spaced tasks", "run x.yaml");
    unset_task();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_has_a_database_of_its_own),
        cmocka_unit_test(a_dry_run_shows_the_part),
        cmocka_unit_test(a_task_of_an_array_goes_on_with_its_part),
        cmocka_unit_test(bad_shards_are_mistakes_of_the_call),
    };
    return child_is_present() ? cmocka_run_group_tests(tests, make, test_directory_tear_down) : child_is_missing();
}
