// test_mapped_files.c - files that change while they are mapped: an end with a sentence, and nothing stored that was computed with other weights.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/mapped.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

enum { PAGE = 4096 };

static struct error err;

static void write_pages(const char *path, int n)
{
    char *bytes = xcalloc((size_t)n, PAGE);
    file_write_bytes(path, bytes, (size_t)n * PAGE);
    free(bytes);
}

// Writes equal bytes again into the file: only its time tells. The time is stated, as two writes may fall into one tick of the clock.
static void touch(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    const struct timespec times[2] = { st.st_atim, { st.st_mtim.tv_sec, (st.st_mtim.tv_nsec + 1) % 1000000000 } };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

// ---- the check

static void a_file_that_is_written_to_is_named(void **state)
{
    char *path = test_path("mapped"), *other = test_path("other"), *message;
    write_pages(path, 2);
    write_pages(other, 2);
    struct mapping m, n;
    assert_ok(file_map(path, &m, &err) && file_map(other, &n, &err), err);
    assert_ok(mapped_unchanged(&err), err);
    write_pages(path, 3); // another size
    assert_false(mapped_unchanged(&err));
    message = xformat("%s: has been written to while it was in use", path);
    assert_string_equal(err.text, message);
    file_unmap(&m);
    assert_ok(mapped_unchanged(&err), err);
    assert_false(mapped_was_unchanged(&err)); // remembered
    assert_string_equal(err.text, message);
    touch(other);
    assert_false(mapped_unchanged(&err));
    assert_non_null(strstr(err.text, other));
    file_unmap(&n);
    free(message);
    free(path);
    free(other);
}

static void a_file_that_is_replaced_is_the_mapped_one_no_more(void **state)
{
    char *path = test_path("replaced"), *new = test_path("new");
    write_pages(path, 2);
    write_pages(new, 3);
    struct mapping m;
    assert_ok(file_map(path, &m, &err), err);
    assert_int_equal(rename(new, path), 0);
    assert_ok(mapped_unchanged(&err), err);
    assert_int_equal(m.at[PAGE], 0); // its bytes are there
    assert_int_equal(unlink(path), 0);
    assert_ok(mapped_unchanged(&err), err);
    file_unmap(&m);
    free(path);
    free(new);
}

// ---- faults

// Reads byte `at` of a mapped file of three pages that is cut to one, in a process of its own. Returns how it ended; what it said is in `said`.
static int read_beyond(const char *path, size_t at, char said[256])
{
    int end[2], status;
    assert_int_equal(pipe(end), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct mapping first, m;
        dup2(end[1], STDERR_FILENO);
        mapped_catch_faults();
        char *other = test_path("first");
        write_pages(other, 1);
        if (!file_map(other, &first, &err) || !file_map(path, &m, &err) || truncate(path, PAGE) != 0)
            _exit(7);
        const volatile uint8_t *byte = m.at;
        _exit(byte[at] == 0 ? 0 : 8);
    }
    close(end[1]);
    ssize_t n = read(end[0], said, 255);
    said[n > 0 ? n : 0] = '\0';
    close(end[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void an_access_behind_the_end_is_one_sentence(void **state)
{
    char *path = test_path("cut"), said[256];
    char *sentence =
        xformat("speclab: %s: cannot be read: it has been shortened while it was in use, or its disk fails\n", path);
    for (int page = 0; page < 3; page++) {
        write_pages(path, 3);
        assert_int_equal(read_beyond(path, (size_t)page * PAGE + 5, said), page == 0 ? 0 : 1);
        assert_string_equal(said, page == 0 ? "" : sentence);
    }
    free(sentence);
    free(path);
}

// ---- a run

static long long stored(const char *db, const char *sql)
{
    struct store *s = store_open(db, &err);
    assert_ok(s != NULL, err);
    const long long n = query_first_int(s, sql);
    store_close(s);
    return n;
}

// Once the database has its first text, another process writes to the model.
static pid_t toucher(const char *db, const char *model)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0)
        return child;
    char *wal = xformat("%s-wal", db);
    struct stat st;
    for (int i = 0; i < 20000 && (stat(wal, &st) != 0 || st.st_size < 300000); i++)
        usleep(1000);
    touch(model);
    _exit(0);
}

static void a_run_ends_when_its_model_is_written_to(void **state)
{
    static const char all[] = "SELECT count(*) FROM sequence";
    char *yaml = test_path("changed.yaml"), *prompts = test_path("changed.jsonl"), *db = test_path("changed.db"),
         *text =
             xformat("name: changed\ntarget: {model: %s}\nthreads: 1\nprompts: {file: changed.jsonl, chat: chatml}\n"
                     "limits: {new_tokens: 200, context: 448, ignore_end: true}\nseed: 1\n"
                     "cells: {drafter: [{kind: none}, {kind: ngram}]}\n",
                     models.gguf);
    struct text lines = { 0 };
    for (int i = 0; i < 200; i++)
        text_printf(&lines, "{\"id\": \"p%d\", \"prompt\": \"one two %d one two\"}\n", i, i);
    file_write(yaml, text);
    file_write(prompts, lines.s);
    const pid_t other = toucher(db, models.gguf);
    struct child_result r = child_run("run %s --db %s", yaml, db);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err, "target.gguf: has been written to while it was in use\n"));
    child_result_free(&r);
    const long long before = stored(db, all);
    assert_true(before > 0 && before < 400);
    r = child_run("run %s --db %s", yaml, db); // the bytes are as they were: it goes on
    assert_int_equal(r.status, 0);
    child_result_free(&r);
    // A text of none whose partner was in flight is decoded again with it.
    assert_int_equal(stored(db, "SELECT count(*) FROM (SELECT DISTINCT run, prompt FROM sequence)"), 400);
    assert_int_equal(stored(db, "SELECT count(DISTINCT id) FROM run"), 2);
    free(lines.s);
    free(text);
    free(yaml);
    free(prompts);
    free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_replaced_is_the_mapped_one_no_more),
        cmocka_unit_test(a_file_that_is_written_to_is_named),
        cmocka_unit_test(an_access_behind_the_end_is_one_sentence),
        cmocka_unit_test(a_run_ends_when_its_model_is_written_to),
    };
    return run_with_models(tests);
}
