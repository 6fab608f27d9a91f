// test_killed.c - a runner that is killed at any moment loses nothing but what was under way, and goes on to the same
// texts.
#include "core/clock.h"
#include "tests/check.h"

#include <stdlib.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "core/error.h"
#include "core/splitmix.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments.h"
#include "tests/tiny.h"

// ---- dying

#define LONG_BODY \
    "name: long\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 40, context: 480, ignore_end: true}\nseed: 11\nrepeat: 2\nrecord: {trials: true}\n" \
    "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  batch: [1, 2]\n  drafter: [none, ngram, " \
    "{kind: small, model: draft.gguf, tokens: 3}]\n"
enum { LONG_RUNS = 12, LONG_SEQUENCES = LONG_RUNS * TURNS * 2 };

// Every prompt, turn and repeat of every cell is there, once or more, and each is a whole sequence.
static void expect_all_of_it(struct store *s)
{
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NOT NULL"), LONG_RUNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM (SELECT DISTINCT run, prompt, turn, repeat FROM sequence)"),
                     LONG_SEQUENCES);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"),
        0);
    assert_int_equal(
        ask(s,
            "SELECT count(*) FROM sequence AS q WHERE new_tokens <> (SELECT sum(tokens) FROM step WHERE sequence = q.id)"),
        0);
    assert_int_equal(ask(s, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    // Only `none` is ever run again with one sequence at a time.
    assert_int_equal(ask(s, "SELECT count(*) FROM (SELECT 1 FROM sequence JOIN run ON run.id = run WHERE batch = 1 AND"
                            " drafter_kind <> 'none' GROUP BY run, prompt, turn, repeat HAVING count(*) > 1)"),
                     0);
}

// The texts of a database, as one hash for each cell, prompt, turn and repeat; several of the same must be equal.
static void expect_the_same_texts(struct store *a, struct store *b)
{
    static const char texts[] =
        "SELECT cell, prompt, turn, repeat, min(tokens), max(tokens) FROM sequence JOIN run ON run.id = run"
        " GROUP BY cell, prompt, turn, repeat ORDER BY cell, prompt, turn, repeat";
    struct error err = { "" };
    struct query *p = query_open(a, texts), *q = query_open(b, texts);
    int n = 0;
    for (; query_next(p) && query_next(q); n++) {
        assert_string_equal(query_text(p, 0), query_text(q, 0));
        for (int i = 1; i < 4; i++)
            assert_int_equal(query_int(p, i), query_int(q, i));
        assert_string_equal(query_text(p, 4), query_text(p, 5));
        assert_string_equal(query_text(p, 4), query_text(q, 4));
        assert_string_equal(query_text(q, 4), query_text(q, 5));
    }
    assert_int_equal(n, LONG_SEQUENCES);
    assert_true(query_close(p, &err));
    assert_true(query_close(q, &err));
}

// In a child: runs the experiment and leaves. 0: it came to its end.
static pid_t start_run(const char *db)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct error err = { "" };
    char *path = tiny_path("long.yaml"), *to = tiny_path(db);
    struct experiment *e = experiment_load(path, &err);
    struct store *s = e != NULL ? store_open(to, &err) : NULL;
    bool ok = s != NULL && experiment_run(e, s, NULL, NULL, &err);
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    _exit(ok ? 0 : 1);
}

// Kills it after so many microseconds, unless it has ended; true: it was killed.
static bool kill_after(pid_t pid, int64_t us)
{
    int64_t until = clock_ns() / 1000 + us;
    int status = 0;
    pid_t gone = 0;
    while (clock_ns() / 1000 < until && (gone = waitpid(pid, &status, WNOHANG)) == 0)
        usleep(500);
    if (gone == 0) {
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return killed;
}

static void a_killed_runner_resumes_to_the_same_texts(void **state)
{
    (void)state;
    write_file("long.yaml", LONG_BODY);
    int64_t began = clock_ns() / 1000;
    assert_false(kill_after(start_run("whole.db"), INT64_C(600000000)));
    int64_t whole_us = clock_ns() / 1000 - began;
    struct store *whole = open_store("whole.db");
    expect_all_of_it(whole);
    assert_int_equal(ask(whole, "SELECT count(*) FROM sequence"), LONG_SEQUENCES);
    assert_int_equal(ask(whole, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);

    uint64_t chance = 2024;
    int killed = 0, completed = 0, middle = 0;
    for (int attempt = 0; attempt == 0 || killed < 20; attempt++) {
        char db[32];
        snprintf(db, sizeof(db), "killed%d.db", attempt);
        while (killed < 20) {
            if (!kill_after(start_run(db), 1000 + (int64_t)(splitmix(&chance) % (uint64_t)(whole_us / 5))))
                break;
            killed++;
            struct store *s = open_store(db); // what it left behind is whole
            assert_int_equal(ask(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
            assert_int_equal(
                ask(s,
                    "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"),
                0);
            middle +=
                ask(s,
                    "SELECT count(*) FROM (SELECT 1 FROM sequence WHERE prompt = 0 GROUP BY run, repeat HAVING max(turn) < 2)") >
                0;
            store_close(s);
        }
        assert_false(kill_after(start_run(db), INT64_C(600000000)));
        struct store *s = open_store(db);
        expect_all_of_it(s);
        expect_the_same_texts(whole, s);
        store_close(s);
        completed++;
    }
    print_message("killed %d times, %d of them in the middle of a conversation; completed %d times, %.1f s each\n",
                  killed, middle, completed, (double)whole_us / 1e6);
    store_close(whole);
}

static volatile int stop_now;

static void ring(int number)
{
    (void)number;
    stop_now = 1;
}

static void an_interrupted_run_leaves_a_consistent_database_and_goes_on(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("interrupted.db");
    struct experiment *e = load(LONG_BODY);
    signal(SIGALRM, ring);
    int interrupted = 0;
    for (;;) {
        stop_now = 0;
        setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { 0, 300000 } }, NULL);
        if (experiment_run(e, s, NULL, &stop_now, &err))
            break;
        assert_string_equal(err.text, "interrupted");
        assert_int_equal(
            ask(s,
                "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"),
            0);
        if (++interrupted == 4)
            signal(SIGALRM, SIG_IGN);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
    expect_all_of_it(s);
    struct store *whole = open_store("whole.db");
    expect_the_same_texts(whole, s);
    store_close(whole);
    experiment_free(e);
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_runner_resumes_to_the_same_texts),
        cmocka_unit_test(an_interrupted_run_leaves_a_consistent_database_and_goes_on),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
