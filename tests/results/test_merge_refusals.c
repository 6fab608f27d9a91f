// test_merge_refusals.c - what cannot be merged is refused in a sentence and changes nothing, and a merge that is killed at any moment leaves
// whole inputs and nothing else.
#include "tests/support/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "results/merge/merge.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/results/merge_files.h"
#include "tests/results/sample_facts.h"
#include "tests/support/small_model.h"

static void expect_refused(struct store *out, const char *name, const char *expected)
{
    struct error err = { "" };
    struct merged m;
    char *path = test_path(name), *before = merge_dump(out);
    if (merge_check(path, &err) && merge(out, path, &m, &err))
        fail_msg("%s: expected a failure with \"%s\", found none", name, expected);
    if (strstr(err.text, expected) == NULL || strstr(err.text, name) == NULL || strchr(err.text, '\n') != NULL)
        fail_msg("expected a sentence about %s with \"%s\", found: %s", name, expected, err.text);
    char *after = merge_dump(out);
    assert_string_equal(before, after);
    free(before);
    free(after);
    free(path);
}

static void other_inputs_of_a_cell_are_refused(void **state)
{
    static const struct {
        const char *change, *expected;
    } cases[] = {
        { "UPDATE run SET target_hash = 'ffff' WHERE id = 2",
          "run 2 (synthetic, drafter ngram(longest=3, tokens=8), rejection): expected weights of the target 0123, as in " },
        { "UPDATE run SET target_hash = 'ffff', cell = 'new' WHERE id = 2",
          "expected weights of the target 0123, as in " },
        { "UPDATE run SET drafter_hash = 'ffff' WHERE drafter_hash IS NOT NULL",
          "expected weights or configuration of the drafter " },
        { "UPDATE run SET drafter_hash = NULL, cell = 'new' WHERE drafter_hash IS NOT NULL", ", found none" },
        { "UPDATE run SET config_hash = 'ffff'", "expected configuration of the target none, as in " },
        { "UPDATE run SET tokenizer_hash = 'ffff', cell = 'new' || cell",
          "expected tokenizer of the target none, as in " },
        { "UPDATE run SET prompts = 'p.jsonl 4567', cell = 'new' || cell", ", found p.jsonl 4567" },
        { "UPDATE run SET settings = '{}' WHERE id = 3", "run 3 (synthetic, drafter " },
        { "UPDATE run SET cell = 'new' WHERE id = 1", "expected cell (inputs as the chat template) c0, as in " },
        { "UPDATE sequence SET decode_ns = 5 WHERE id = (SELECT min(id) FROM sequence)",
          "expected the text and times of sequence 1 of " },
        { "DROP TABLE trial", "could not be merged into " },
        { "ALTER TABLE draft DROP COLUMN entries", "could not be merged into " },
        { "PRAGMA user_version = 12", "expected schema version 13, found 12" },
        { "PRAGMA user_version = 14", "expected schema version 13, found 14" },
        { "PRAGMA application_id = 7", "an SQLite database of another program" },
    };
    struct store *s = merge_whole(), *out = open_store("out.db");
    perform(s, "UPDATE run SET settings = settings || id"); // else they are those of run 1
    merge_into(out, "results.db");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store *changed = merge_copy(s, "changed.db", "run", "false");
        perform(changed, "%s", cases[i].change);
        store_close(changed);
        expect_refused(out, "changed.db", cases[i].expected);
    }
    store_close(s);
    store_close(out);
}

static void files_that_are_no_databases_are_refused(void **state)
{
    struct store *s = merge_whole(), *out = open_store("out.db");
    merge_into(out, "results.db");
    char *path = test_path("folder");
    assert_int_equal(mkdir(path, 0700), 0);
    free(path);
    write_file("text.db",
               "this is a text that is long enough for a header of a database, which it is not.....................");
    write_file("empty.db", "");
    expect_refused(out, "text.db", "not an SQLite database");
    expect_refused(out, "empty.db", "expected a database of speclab, found an empty one");
    expect_refused(out, "folder", "is a folder, not a database");
    expect_refused(out, "none.db", "expected a database, found none");
    store_close(s);
    store_close(out);
}

// Cut, or with bytes changed where SQLite keeps its trees: refused, or merged if the change is in what a row says.
static void a_damaged_file_is_refused(void **state)
{
    uint64_t random = 3;
    int refused = 0;
    struct store *s = merge_whole(), *out = open_store("out.db");
    merge_into(out, "results.db");
    for (int trial = 0; trial < 12; trial++) {
        store_close(merge_copy(s, "damaged.db", "run", "false"));
        char *path = test_path("damaged.db");
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        if (trial < 3)
            assert_int_equal(truncate(path, st.st_size / 4096 * 4096 * (trial + 1) / 4), 0);
        FILE *f = fopen(path, "r+");
        for (int page = 1; trial >= 3 && page < st.st_size / 4096; page += 7) {
            fseek(f, page * 4096L + (long)(splitmix(&random) % 8), SEEK_SET);
            fputc((int)(splitmix(&random) % 256), f);
        }
        fclose(f);
        struct error err = { "" };
        refused += !merge_check(path, &err) && strstr(err.text, "damaged") != NULL;
        if (err.text[0] == '\0')
            merge_into(out, "damaged.db");
        free(path);
    }
    assert_true(refused >= 10);
    store_close(s);
    expect_none(out, "errors of integrity_check",
                "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok' AND"
                " integrity_check NOT LIKE 'NULL value in %'");
    store_close(out);
}

static void a_database_that_is_being_written_is_refused(void **state)
{
    struct error err = { "" };
    struct store *s = merge_whole(), *out = open_store("out.db");
    int ready[2];
    char byte, *path = test_path("results.db");
    assert_int_equal(pipe(ready), 0);
    store_close(s);
    pid_t writer = fork();
    if (writer == 0) {
        alarm(60); // if the test fails
        struct store *w = store_open(path, &err);
        const bool locked = w != NULL && store_lock(w, "synthetic", &err);
        _exit(write(ready[1], locked ? "y" : "n", 1) != 1 || pause());
    }
    assert_true(read(ready[0], &byte, 1) == 1 && byte == 'y');
    expect_refused(out, "results.db", "another process is running an experiment into");
    kill(writer, SIGKILL);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    merge_into(out, "results.db"); // killed: complete sequences, some of them in its log
    free(path);
    store_close(out);
}

static void an_experiment_is_not_run_into_while_it_is_merged(void **state)
{
    struct error err = { "" };
    struct merged m;
    struct store *s = merge_whole(), *out = open_store("out.db");
    int ready[2];
    char byte, *path = test_path("out.db"), *from = test_path("results.db");
    store_close(s);
    assert_int_equal(pipe(ready), 0);
    store_close(out);
    pid_t runner = fork();
    if (runner == 0) {
        alarm(60);
        struct store *w = store_open(path, &err);
        const bool locked = w != NULL && store_lock(w, "synthetic", &err);
        _exit(write(ready[1], locked ? "y" : "n", 1) != 1 || pause());
    }
    assert_true(read(ready[0], &byte, 1) == 1 && byte == 'y');
    out = open_store("out.db");
    assert_false(merge(out, from, &m, &err));
    assert_non_null(strstr(err.text, "another process is running experiment \"synthetic\" into it"));
    kill(runner, SIGKILL);
    assert_int_equal(waitpid(runner, NULL, 0), runner);
    store_close(out);
    free(path);
    free(from);
}

static void a_log_of_a_killed_process_is_read(void **state)
{
    struct store *s = merge_whole(), *out = open_store("out.db");
    char *facts = merge_facts(s), *path = test_path("results.db");
    fflush(NULL);
    pid_t writer = fork();
    if (writer == 0) { // its last rows are in the log alone
        struct error err;
        struct store *w = store_open(path, &err);
        if (w == NULL || !query_perform(query_open(w, "UPDATE pair SET started = '2020-01-01'"), &err))
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    free(facts);
    facts = merge_facts(s);
    store_close(s);
    merge_into(out, "results.db");
    char *merged = merge_facts(out);
    assert_string_equal(facts, merged);
    assert_int_equal(query_first_int(out, "SELECT count(DISTINCT started) FROM pair WHERE started = '2020-01-01'"), 1);
    free(facts);
    free(merged);
    free(path);
    store_close(out);
}

// ---- killing

enum { INPUTS = 3, KILLS = 15 };
static const char *const input[INPUTS] = { "0.db", "1.db", "2.db" };

static pid_t start_merge(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct error err;
    char *path = test_path("out.db");
    struct store *out = store_open(path, &err);
    for (int i = 0; i < INPUTS; i++) {
        struct merged m;
        char *from = test_path(input[i]);
        if (out == NULL || !merge(out, from, &m, &err)) {
            fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
    }
    store_close(out);
    _exit(0);
}

static void a_killed_merge_leaves_whole_inputs(void **state)
{
    uint64_t random = 9;
    int64_t texts[INPUTS + 1] = { 0 }, whole_us = 0;
    int partial = 0, counts[INPUTS + 1] = { 0 };
    struct store *s = merge_whole();
    for (int i = 0; i < INPUTS; i++) {
        char *where = xformat("id / 2 %% %d <> %d", INPUTS, i);
        struct store *part = merge_copy(s, input[i], "pair", where);
        texts[i + 1] = texts[i] + query_first_int(part, "SELECT count(*) FROM sequence");
        store_close(part);
        free(where);
    }
    char *facts = merge_facts(s), *path = test_path("out.db");
    store_close(s);
    for (int kills = 0; kills <= KILLS; kills++) {
        int status;
        const int64_t began = clock_ns() / 1000;
        remove(path);
        pid_t pid = start_merge();
        if (kills > 0) {
            usleep((useconds_t)(splitmix(&random) % (uint64_t)whole_us));
            kill(pid, SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (kills == 0) {
            assert_int_equal(status, 0);
            whole_us = clock_ns() / 1000 - began;
        }
        struct store *out = open_store("out.db");
        const int64_t found = query_first_int(out, "SELECT count(*) FROM sequence");
        int whole = 0;
        while (whole <= INPUTS && texts[whole] != found)
            whole++;
        assert_true(whole <= INPUTS);
        counts[whole]++;
        partial += whole < INPUTS;
        expect_none(out, "rows without a parent", "SELECT count(*) FROM pragma_foreign_key_check");
        expect_none(
            out, "sequences without all their steps",
            "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)");
        for (int i = 0; i < INPUTS; i++)
            merge_into(out, input[i]);
        char *merged = merge_facts(out);
        assert_string_equal(facts, merged);
        free(merged);
        store_close(out);
    }
    print_message("killed %d times, with 0, 1, 2 and 3 whole inputs: %d, %d, %d, %d\n", KILLS, counts[0], counts[1],
                  counts[2], counts[3] - 1);
    assert_true(partial > KILLS / 3);
    free(facts);
    free(path);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, test_directory_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(other_inputs_of_a_cell_are_refused),
        TEST(files_that_are_no_databases_are_refused),
        TEST(a_damaged_file_is_refused),
        TEST(a_database_that_is_being_written_is_refused),
        TEST(an_experiment_is_not_run_into_while_it_is_merged),
        TEST(a_log_of_a_killed_process_is_read),
        TEST(a_killed_merge_leaves_whole_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
