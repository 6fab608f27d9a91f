// killable.c - see killable.h.
#include "tests/experiments/killable.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

const char long_conversations[] = "{\"id\": \"a\", \"turns\": [\"one two one two one\", \"and again\", \"enough\"]}\n"
                                  "{\"id\": \"b\", \"turns\": [\"ping\", \"pong\", \"ping\"]}\n"
                                  "{\"id\": \"c\", \"prompt\": \"x = x + 1\"}\n"
                                  "{\"id\": \"d\", \"turns\": [\"a b c a b c\", \"d e f\"]}\n"
                                  "{\"id\": \"e\", \"turns\": [\"1, 2, 3\", \"4\", \"5\"]}\n";

void check_sound(struct store *s)
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

void create_views(struct store *s, const char *of)
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

void check_same(struct store *s, const char *what)
{
    char *sql = xformat("SELECT (SELECT count(*) FROM (SELECT * FROM main_%s EXCEPT SELECT * FROM whole_%s)) +"
                        " (SELECT count(*) FROM (SELECT * FROM whole_%s EXCEPT SELECT * FROM main_%s))",
                        what, what, what, what);
    expect_none(s, what, sql);
    free(sql);
}

pid_t start_run(const char *db, struct shard shard)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct error err = { "" };
    char *path = test_path("long.yaml"), *to = test_path(db);
    struct experiment *e = experiment_load(path, &err);
    struct store *s = e != NULL ? store_open(to, &err) : NULL;
    if (e != NULL)
        e->shard = shard;
    bool ok = s != NULL && experiment_run(e, s, NULL, NULL, &err);
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    _exit(ok ? 0 : 1);
}

bool kill_after(pid_t pid, int64_t us, int64_t *took_us)
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

void read_kills(int argc, char **argv, int *kills, uint64_t *random_state)
{
    if (argc > 1)
        *kills = atoi(argv[1]);
    if (argc > 2)
        *random_state = strtoull(argv[2], NULL, 10);
}
