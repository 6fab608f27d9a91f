// test_killed.c - a process killed at any moment loses only the sequences in progress, and a resumed run ends with the results of
// an uninterrupted one: the same texts in the same steps, each compared with the same text of its `none`.
#include "core/clock.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

// ---- the expected result

// Texts end at letters and at the context: conversations differ in length, and at temperature 1 by drafter.
#define LONG_BODY \
    "name: long\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: long.jsonl, chat: none}\n" \
    "limits: {new_tokens: 40, context: 70, ignore_end: true, stop: [a, e, i, o, t, n, r, s]}\nseed: 11\nrepeat: 2\n" \
    "record: {trials: true, rows: 4}\ncells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  batch: [1, 2]\n" \
    "  drafter: [none, ngram, {kind: small, model: draft.gguf, tokens: 3}]\n"

static const char long_conversations[] =
    "{\"id\": \"a\", \"turns\": [\"one two one two one\", \"and again\", \"enough\"]}\n"
    "{\"id\": \"b\", \"turns\": [\"ping\", \"pong\", \"ping\"]}\n"
    "{\"id\": \"c\", \"prompt\": \"x = x + 1\"}\n"
    "{\"id\": \"d\", \"turns\": [\"a b c a b c\", \"d e f\"]}\n"
    "{\"id\": \"e\", \"turns\": [\"1, 2, 3\", \"4\", \"5\"]}\n";

// Checks that the database has complete sequences and nothing else.
static void check_sound(struct store *s)
{
    expect_none(s, "errors of integrity_check",
                "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'");
    expect_none(s, "rows without a parent", "SELECT count(*) FROM pragma_foreign_key_check");
    expect_none(s, "sequences without all their steps",
                "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"
                " OR new_tokens <> (SELECT coalesce(sum(tokens), 0) FROM step WHERE sequence = q.id)");
    expect_none(
        s, "steps of drafters without their draft and rows",
        "SELECT count(*) FROM step AS t JOIN sequence AS q ON q.id = t.sequence JOIN run AS r ON r.id = q.run WHERE"
        " (drafter_kind <> 'none') <> EXISTS (SELECT 1 FROM draft AS d WHERE (d.sequence, d.step) = (t.sequence,"
        " t.step) AND length(rows) > 0)");
    expect_none(s, "sequences that are in their pair twice",
                "SELECT count(*) FROM (SELECT 1 FROM sequence GROUP BY run, prompt, turn, repeat, pair"
                " HAVING count(*) > 1)");
}

// Views on `main` or on an attached database: each text once, however often it was decoded, with its steps and their numbers of
// trials; each comparison with none's; and a run's numbers of texts.
static void create_views(struct store *s, const char *of)
{
    perform(s,
            "CREATE TEMP VIEW %s_texts AS SELECT DISTINCT r.cell, q.prompt, q.turn, q.repeat, q.prompt_id,"
            " q.category, q.prompt_tokens, q.tokens, q.text_hash, q.text, q.stop, q.steps,"
            " (SELECT group_concat(drafted || ' ' || depth || ' ' || accepted || ' ' || tokens || ' ' ||"
            "   (SELECT count(*) FROM %s.trial AS t WHERE t.sequence = p.sequence AND t.step = p.step), ', ')"
            "  FROM (SELECT * FROM %s.step WHERE sequence = q.id ORDER BY step) AS p)"
            " FROM %s.sequence AS q JOIN %s.run AS r ON r.id = q.run",
            of, of, of, of, of);
    perform(s,
            "CREATE TEMP VIEW %s_sides AS SELECT DISTINCT r.cell, q.prompt, q.turn, q.repeat, t.same_rule,"
            " t.equal, t.first_difference FROM %s.texts AS t JOIN %s.sequence AS q ON q.id = t.sequence"
            " JOIN %s.run AS r ON r.id = q.run",
            of, of, of, of);
    perform(s,
            "CREATE TEMP VIEW %s_runs AS SELECT r.cell, r.peers, r.settings, r.finished IS NOT NULL,"
            " u.prompts, u.compared_texts > 0, u.equal_texts = u.compared_texts"
            " FROM %s.run_summary AS u JOIN %s.run AS r ON r.id = u.run",
            of, of, of);
}

static void check_same(struct store *s, const char *what)
{
    char *sql = xformat("SELECT (SELECT count(*) FROM (SELECT * FROM main_%s EXCEPT SELECT * FROM whole_%s)) +"
                        " (SELECT count(*) FROM (SELECT * FROM whole_%s EXCEPT SELECT * FROM main_%s))",
                        what, what, what, what);
    expect_none(s, what, sql);
    free(sql);
}

static void check_equals_whole_run(struct store *s)
{
    char *path = test_path("whole.db");
    perform(s, "ATTACH '%s' AS whole", path);
    free(path);
    create_views(s, "main");
    create_views(s, "whole");
    check_sound(s);
    expect_none(s, "runs that are not finished", "SELECT count(*) FROM run WHERE finished IS NULL");
    check_same(s, "texts");
    check_same(s, "sides");
    check_same(s, "runs");
    // A paired sequence is never decoded again.
    expect_none(s, "paired sequences that were decoded again",
                "SELECT count(*) FROM (SELECT 1 FROM paired AS p JOIN sequence AS q ON q.id = p.sequence JOIN run AS r"
                " ON r.id = q.run WHERE p.none IS NOT NULL GROUP BY q.run, q.prompt, q.turn, q.repeat"
                " HAVING count(*) > 1)");
}

// ---- killing

// Runs the experiment in a child process; exit status 0: it finished.
static pid_t start_run(const char *db)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct error err = { "" };
    char *path = test_path("long.yaml"), *to = test_path(db);
    struct experiment *e = experiment_load(path, &err);
    struct store *s = e != NULL ? store_open(to, &err) : NULL;
    bool ok = s != NULL && experiment_run(e, s, NULL, NULL, &err);
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    _exit(ok ? 0 : 1);
}

// Kills the process after `us` microseconds unless it has ended; true: it was killed. Adds its run time to *took_us.
static bool kill_after(pid_t pid, int64_t us, int64_t *took_us)
{
    int64_t began = clock_ns() / 1000, until = began + us;
    int status = 0;
    pid_t gone = 0;
    while (clock_ns() / 1000 < until && (gone = waitpid(pid, &status, WNOHANG)) == 0)
        usleep(500);
    if (gone == 0) {
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    *took_us += clock_ns() / 1000 - began;
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return killed;
}

static int kills = 12; // the command line may set both
static uint64_t random_state = 2024;

// Kills at moments spread evenly over the time of a whole run, as measured by the previous one, because the machine's load
// varies. Resumed runs are sometimes killed, too.
static void a_killed_run_resumes_to_the_results_of_an_uninterrupted_one(void **state)
{
    write_file("long.jsonl", long_conversations);
    write_file("long.yaml", LONG_BODY);
    int64_t whole_us = 0;
    assert_false(kill_after(start_run("whole.db"), INT64_C(600000000), &whole_us));
    struct store *whole = open_store("whole.db");
    check_sound(whole);
    expect_none(whole, "unfinished runs", "SELECT count(*) FROM run WHERE finished IS NULL");
    int64_t sequences = query_first_int(whole, "SELECT count(*) FROM sequence");
    assert_int_equal(query_first_int(whole, "SELECT count(*) FROM run"), 12);
    // Repeats are other samples; at temperature 0 there are none.
    static const char repeats[] =
        "SELECT count(*) FROM sequence AS a JOIN sequence AS b ON b.run = a.run AND b.prompt ="
        " a.prompt AND b.turn = a.turn AND b.repeat = 1 JOIN run ON run.id = a.run WHERE"
        " a.repeat = 0 AND a.tokens <> b.tokens AND sampling ";
    char *sampled = xformat("%s = 'temperature=1'", repeats), *greedy = xformat("%s = 'temperature=0'", repeats);
    assert_true(query_first_int(whole, sampled) > 0);
    assert_int_equal(query_first_int(whole, greedy), 0);
    free(sampled);
    free(greedy);
    // Some conversations end before none's, or after.
    int64_t unpaired = query_first_int(whole, "SELECT count(*) FROM paired WHERE none IS NULL");
    store_close(whole);

    int killed = 0, again = 0, middle = 0, empty = 0, completed = 0;
    int64_t more = 0;
    while (killed < kills) {
        const int before = killed;
        int64_t took_us = 0;
        while (killed < kills && (killed == before || splitmix(&random_state) % 3 == 0)) {
            if (!kill_after(start_run("killed.db"), (int64_t)(splitmix(&random_state) % (uint64_t)whole_us), &took_us))
                break;
            again += killed > before;
            killed++;
            struct store *s = open_store("killed.db");
            check_sound(s);
            middle += query_first_int(s, "SELECT count(*) FROM pair") > 0 &&
                      query_first_int(
                          s, "SELECT count(DISTINCT run) FROM sequence WHERE pair = (SELECT max(id) FROM pair)") < 3;
            empty += query_first_int(s, "SELECT count(*) FROM sequence") == 0;
            store_close(s);
        }
        assert_false(kill_after(start_run("killed.db"), INT64_C(600000000), &took_us));
        whole_us = took_us;
        struct store *s = open_store("killed.db");
        check_equals_whole_run(s);
        more += query_first_int(s, "SELECT count(*) FROM sequence") - sequences;
        store_close(s);
        char *path = test_path("killed.db");
        remove(path);
        free(path);
        completed++;
    }
    print_message(
        "killed %d times (%d while resuming, %d within a pair, %d before its first sequence), resumed and compared"
        " %d times: 0 differences. A whole run: %.2f s, %lld sequences, %lld unpaired; %.1f more after kills\n",
        killed, again, middle, empty, completed, (double)whole_us / 1e6, (long long)sequences, (long long)unpaired,
        (double)more / completed);
}

static volatile int stop_now;

static void on_alarm(int number)
{
    stop_now = 1;
}

static void an_interrupted_run_leaves_a_consistent_database_and_resumes(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("interrupted.db");
    struct experiment *e = load(LONG_BODY);
    signal(SIGALRM, on_alarm);
    int interrupted = 0;
    for (;;) {
        stop_now = 0;
        setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { 0, 150000 } }, NULL);
        if (experiment_run(e, s, NULL, &stop_now, &err))
            break;
        assert_string_equal(err.text, "interrupted");
        check_sound(s);
        if (++interrupted == 4)
            signal(SIGALRM, SIG_IGN);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
    check_equals_whole_run(s);
    experiment_free(e);
    store_close(s);
}

// test_killed [KILLS [SEED]]
int main(int argc, char **argv)
{
    if (argc > 1)
        kills = atoi(argv[1]);
    if (argc > 2)
        random_state = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_resumes_to_the_results_of_an_uninterrupted_one),
        cmocka_unit_test(an_interrupted_run_leaves_a_consistent_database_and_resumes),
    };
    return cmocka_run_group_tests(tests, make_files, test_directory_tear_down);
}
