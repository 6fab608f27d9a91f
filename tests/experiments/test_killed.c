// test_killed.c - a process killed at any moment loses only the sequences in progress, and a resumed run ends with the results of
// an uninterrupted one: the same texts in the same steps, each compared with the same text of its `none`.
#include "core/clock.h"
#include "tests/support/tests.h"

#include <stdlib.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/killable.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

// ---- the expected result

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

static const struct shard whole_run; // not divided
static int kills = 12;               // the command line may set both
static uint64_t random_state = 2024;

// Kills at moments spread evenly over the time of a whole run, as measured by the previous one, because the machine's load
// varies. Resumed runs are sometimes killed, too.
TEST(a_killed_run_resumes_to_the_results_of_an_uninterrupted_one)
{
    write_file("long.jsonl", long_conversations);
    write_file("long.yaml", LONG_BODY);
    int64_t whole_us = 0;
    assert_false(kill_after(start_run("whole.db", whole_run), INT64_C(600000000), &whole_us));
    struct store *whole = open_store("whole.db");
    check_sound(whole);
    expect_none(whole, "unfinished runs", "SELECT count(*) FROM run WHERE finished IS NULL");
    int64_t sequences = query_first_int(whole, "SELECT count(*) FROM sequence");
    expect_count(whole, 12, "run");
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
            if (!kill_after(start_run("killed.db", whole_run), (int64_t)(splitmix(&random_state) % (uint64_t)whole_us),
                            &took_us))
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
        assert_false(kill_after(start_run("killed.db", whole_run), INT64_C(600000000), &took_us));
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

TEST(an_interrupted_run_leaves_a_consistent_database_and_resumes)
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
    read_kills(argc, argv, &kills, &random_state);
    return tests_run(make_files, test_directory_tear_down);
}
