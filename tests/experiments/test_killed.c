// test_killed.c - a runner that is killed at any moment loses nothing but what was under way, and goes on to what an
// uninterrupted one has: the same texts in the same steps, each compared with the same of its `none`.
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

// ---- what it has to come to

// Texts end at letters and at the context: conversations differ in length, and at temperature 1 by drafter.
#define LONG_BODY \
    "name: long\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: long.jsonl, chat: none}\n" \
    "limits: {new_tokens: 40, context: 70, ignore_end: true, stop: [a, e, i, o, t, n, r, s]}\nseed: 11\nrepeat: 2\n" \
    "record: {trials: true}\ncells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  batch: [1, 2]\n" \
    "  drafter: [none, ngram, {kind: small, model: draft.gguf, tokens: 3}]\n"

static const char long_talks[] = "{\"id\": \"a\", \"turns\": [\"one two one two one\", \"and again\", \"enough\"]}\n"
                                 "{\"id\": \"b\", \"turns\": [\"ping\", \"pong\", \"ping\"]}\n"
                                 "{\"id\": \"c\", \"prompt\": \"x = x + 1\"}\n"
                                 "{\"id\": \"d\", \"turns\": [\"a b c a b c\", \"d e f\"]}\n"
                                 "{\"id\": \"e\", \"turns\": [\"1, 2, 3\", \"4\", \"5\"]}\n";

static void perform(struct store *s, char *sql) // owned
{
    struct error err = { "" };
    if (!query_perform(query_open(s, sql), &err))
        fail_msg("%s: %s", sql, err.text);
    free(sql);
}

static void expect_none(struct store *s, const char *what, const char *sql)
{
    int64_t n = ask(s, sql);
    if (n != 0)
        fail_msg("%s: %lld", what, (long long)n);
}

// Whatever a killed runner left: whole sequences, and nothing else.
static void expect_sound(struct store *s)
{
    expect_none(s, "offences against the file's format",
                "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'");
    expect_none(s, "rows that belong to nothing", "SELECT count(*) FROM pragma_foreign_key_check");
    expect_none(s, "sequences without all their steps",
                "SELECT count(*) FROM sequence AS q WHERE steps <> (SELECT count(*) FROM step WHERE sequence = q.id)"
                " OR new_tokens <> (SELECT coalesce(sum(tokens), 0) FROM step WHERE sequence = q.id)");
    expect_none(s, "sequences that are in their pair twice",
                "SELECT count(*) FROM (SELECT 1 FROM sequence GROUP BY run, prompt, turn, repeat, pair"
                " HAVING count(*) > 1)");
}

// Of `main`, or of another database that is attached: each text once, however often it was decoded, with its steps and
// how many trials they had; each comparison with none's; and what the report says of a run's texts.
static void make_views(struct store *s, const char *of)
{
    perform(s,
            xformat("CREATE TEMP VIEW %s_texts AS SELECT DISTINCT r.cell, q.prompt, q.turn, q.repeat, q.prompt_id,"
                    " q.category, q.prompt_tokens, q.tokens, q.text_hash, q.text, q.stop, q.steps,"
                    " (SELECT group_concat(drafted || ' ' || depth || ' ' || accepted || ' ' || tokens || ' ' ||"
                    "   (SELECT count(*) FROM %s.trial AS t WHERE t.sequence = p.sequence AND t.step = p.step), ', ')"
                    "  FROM (SELECT * FROM %s.step WHERE sequence = q.id ORDER BY step) AS p)"
                    " FROM %s.sequence AS q JOIN %s.run AS r ON r.id = q.run",
                    of, of, of, of, of));
    perform(s, xformat("CREATE TEMP VIEW %s_sides AS SELECT DISTINCT r.cell, q.prompt, q.turn, q.repeat, t.same_rule,"
                       " t.equal, t.first_difference FROM %s.texts AS t JOIN %s.sequence AS q ON q.id = t.sequence"
                       " JOIN %s.run AS r ON r.id = q.run",
                       of, of, of, of));
    perform(s, xformat("CREATE TEMP VIEW %s_runs AS SELECT r.cell, r.peers, r.settings, r.finished IS NOT NULL,"
                       " u.prompts, u.compared_texts > 0, u.equal_texts = u.compared_texts"
                       " FROM %s.run_summary AS u JOIN %s.run AS r ON r.id = u.run",
                       of, of, of));
}

static void expect_the_same(struct store *s, const char *what)
{
    char *sql = xformat("SELECT (SELECT count(*) FROM (SELECT * FROM main_%s EXCEPT SELECT * FROM whole_%s)) +"
                        " (SELECT count(*) FROM (SELECT * FROM whole_%s EXCEPT SELECT * FROM main_%s))",
                        what, what, what, what);
    expect_none(s, what, sql);
    free(sql);
}

static void expect_what_the_whole_has(struct store *s)
{
    char *path = tiny_path("whole.db");
    perform(s, xformat("ATTACH '%s' AS whole", path));
    free(path);
    make_views(s, "main");
    make_views(s, "whole");
    expect_sound(s);
    expect_none(s, "runs that are not finished", "SELECT count(*) FROM run WHERE finished IS NULL");
    expect_the_same(s, "texts");
    expect_the_same(s, "sides");
    expect_the_same(s, "runs");
    // One at a time nothing is decoded again that stood beside none's.
    expect_none(s, "sequences that were decoded again for nothing",
                "SELECT count(*) FROM (SELECT 1 FROM paired AS p JOIN sequence AS q ON q.id = p.sequence JOIN run AS r"
                " ON r.id = q.run WHERE r.batch = 1 AND p.none IS NOT NULL GROUP BY q.run, q.prompt, q.turn, q.repeat"
                " HAVING count(*) > 1)");
}

// ---- dying

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

// Kills it after so many microseconds, unless it has ended; true: it was killed. took_us grows by how long it ran.
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

static int kills = 12;         // the command line may ask for more
static uint64_t chance = 2024; // and for others

// Kills at moments spread evenly over the time that a whole run takes, as the one before it took: the machine may be
// busier at times. What goes on is sometimes killed, too.
static void a_killed_runner_resumes_to_what_an_uninterrupted_one_has(void **state)
{
    (void)state;
    write_file("long.jsonl", long_talks);
    write_file("long.yaml", LONG_BODY);
    int64_t whole_us = 0;
    assert_false(kill_after(start_run("whole.db"), INT64_C(600000000), &whole_us));
    struct store *whole = open_store("whole.db");
    expect_sound(whole);
    expect_none(whole, "unfinished runs", "SELECT count(*) FROM run WHERE finished IS NULL");
    int64_t sequences = ask(whole, "SELECT count(*) FROM sequence");
    assert_int_equal(ask(whole, "SELECT count(*) FROM run"), 12);
    // Repeats are other samples; at temperature 0 there are none.
    static const char repeats[] =
        "SELECT count(*) FROM sequence AS a JOIN sequence AS b ON b.run = a.run AND b.prompt ="
        " a.prompt AND b.turn = a.turn AND b.repeat = 1 JOIN run ON run.id = a.run WHERE"
        " a.repeat = 0 AND a.tokens <> b.tokens AND sampling ";
    char *sampled = xformat("%s = 'temperature=1'", repeats), *greedy = xformat("%s = 'temperature=0'", repeats);
    assert_true(ask(whole, sampled) > 0);
    assert_int_equal(ask(whole, greedy), 0);
    free(sampled);
    free(greedy);
    // Here and there a cell's conversation is over before none's, or after.
    int64_t apart = ask(whole, "SELECT count(*) FROM paired WHERE none IS NULL");
    store_close(whole);

    int killed = 0, again = 0, middle = 0, empty = 0, completed = 0;
    int64_t more = 0;
    while (killed < kills) {
        const int before = killed;
        int64_t took_us = 0;
        while (killed < kills && (killed == before || splitmix(&chance) % 3 == 0)) {
            if (!kill_after(start_run("killed.db"), (int64_t)(splitmix(&chance) % (uint64_t)whole_us), &took_us))
                break;
            again += killed > before;
            killed++;
            struct store *s = open_store("killed.db");
            expect_sound(s);
            middle += ask(s, "SELECT count(*) FROM pair") > 0 &&
                      ask(s, "SELECT count(DISTINCT run) FROM sequence WHERE pair = (SELECT max(id) FROM pair)") < 3;
            empty += ask(s, "SELECT count(*) FROM sequence") == 0;
            store_close(s);
        }
        assert_false(kill_after(start_run("killed.db"), INT64_C(600000000), &took_us));
        whole_us = took_us;
        struct store *s = open_store("killed.db");
        expect_what_the_whole_has(s);
        more += ask(s, "SELECT count(*) FROM sequence") - sequences;
        store_close(s);
        char *path = tiny_path("killed.db");
        remove(path);
        free(path);
        completed++;
    }
    print_message(
        "killed %d times (%d while it went on, %d within a pair, %d before its first sequence), gone on with and"
        " compared %d times: 0 differences. A whole run: %.2f s, %lld sequences, %lld without a partner; %.1f"
        " more where it was killed\n",
        killed, again, middle, empty, completed, (double)whole_us / 1e6, (long long)sequences, (long long)apart,
        (double)more / completed);
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
        setitimer(ITIMER_REAL, &(struct itimerval){ .it_value = { 0, 150000 } }, NULL);
        if (experiment_run(e, s, NULL, &stop_now, &err))
            break;
        assert_string_equal(err.text, "interrupted");
        expect_sound(s);
        if (++interrupted == 4)
            signal(SIGALRM, SIG_IGN);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
    expect_what_the_whole_has(s);
    experiment_free(e);
    store_close(s);
}

// test_killed [KILLS [SEED]]
int main(int argc, char **argv)
{
    if (argc > 1)
        kills = atoi(argv[1]);
    if (argc > 2)
        chance = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_runner_resumes_to_what_an_uninterrupted_one_has),
        cmocka_unit_test(an_interrupted_run_leaves_a_consistent_database_and_goes_on),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
