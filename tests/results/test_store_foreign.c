// test_store_foreign.c - a database that a stranger has changed: what is in place of a table is refused, triggers do not run, and no query and no name is
// without end.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "results/store/store_schema.h"
#include "tests/support/tests.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

#define ENDLESS "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT "

TEST(what_is_in_place_of_a_table_is_refused)
{
    static const struct {
        const char *change[3], *refused;
    } file[] = {
        { { "ALTER TABLE step RENAME TO old", "CREATE VIEW step AS " ENDLESS "x AS sequence FROM n" },
          "expected tables as speclab makes them, found the view \"step\"" },
        { { "ALTER TABLE bench_time RENAME TO old", "CREATE VIEW Bench_Time AS " ENDLESS "x AS bench FROM n" },
          "expected tables as speclab makes them, found the view \"Bench_Time\"" },
        { { "ALTER TABLE draft RENAME TO old", "CREATE VIRTUAL TABLE draft USING fts4(rows)" },
          "expected tables as speclab makes them, found the table \"draft\"" },
        { { "CREATE VIEW json_each AS " ENDLESS "x AS value FROM n" },
          "expected tables as speclab makes them, found the view \"json_each\"" },
        { { "CREATE VIEW pragma_table_xinfo AS " ENDLESS "x AS name FROM n" },
          "expected tables as speclab makes them, found the view \"pragma_table_xinfo\"" },
        { { "ALTER TABLE step ADD COLUMN twice INTEGER AS (2 * sequence)" },
          "table step: expected columns as speclab makes them, found the computed \"twice\"" },
        { { "ALTER TABLE run ADD COLUMN \"x\"\" AS BLOB))>9 THEN 1 END FROM run WHERE 0)--\" TEXT" },
          "table run: expected columns as speclab makes them, found \"x\" AS BLOB))>9 THEN 1 END FROM run WHERE 0)--\"" },
        { { "ALTER TABLE pair RENAME TO old",
            "CREATE TABLE pair (id INTEGER PRIMARY KEY, experiment VARCHAR, started, uuid BLOB)" },
          "expected tables as speclab makes them, found the table \"pair\"" },
        { { "ALTER TABLE pair RENAME TO old",
            "CREATE TABLE pair (id INTEGER PRIMARY KEY, experiment VARCHAR) -- ) STRICT" },
          "expected tables as speclab makes them, found the table \"pair\"" },
        { { "ALTER TABLE pair RENAME TO old",
            "CREATE TABLE pair (id INTEGER PRIMARY KEY, experiment VARCHAR /*\n*/) /*\n) STRICT" },
          "expected tables as speclab makes them, found the table \"pair\"" },
    };
    for (size_t i = 0; i < sizeof(file) / sizeof(*file); i++) {
        struct error err = { "" };
        struct store *s = sample_store_small();
        for (int k = 0; k < 3 && file[i].change[k] != NULL; k++)
            sample_facts_query(s, file[i].change[k]);
        store_close(s);
        char *sentence = xformat("%s: %s", sample_store_path(), file[i].refused);
        assert_null(store_open(sample_store_path(), &err));
        assert_string_equal(err.text, sentence);
        free(sentence);
        test_directory_remove();
    }
}

TEST(a_name_without_end_is_refused)
{
    static const struct {
        const char *table, *column, *row;
        int most;
    } name[] = {
        { "run", "experiment", "id 2", 1 << 20 },        { "run", "settings", "id 2", 16 << 20 },
        { "sequence", "category", "id 2", 1 << 20 },     { "environment", "processor", "id 2", 1 << 20 },
        { "pair", "experiment", "id 2", 1 << 20 },       { "run", "sampling", "id 2", 16 << 20 },
        { "step_rule", "rule", "sequence 2", 16 << 20 },
    };
    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
        struct error err = { "" };
        struct store *s = sample_store_small();
        sample_facts_query(
            s,
            "INSERT INTO environment (id, run, since, processor, arithmetic, revision) VALUES (2, 1, '', '', '', '')");
        sample_facts_query(s, "PRAGMA ignore_check_constraints = 1"); // as others' programs may
        sample_facts_query(s, "INSERT INTO step_rule VALUES (2, 0, '', 1, NULL, NULL)");
        for (int over = 0; over < 2; over++) {
            char *sql =
                xformat("UPDATE %s SET %s = 'a' || char(0) || printf('%%.*c', %d, 'x') WHERE %.*s = 2", name[i].table,
                        name[i].column, name[i].most - 2 + over, (int)strcspn(name[i].row, " "), name[i].row);
            sample_facts_query(s, sql);
            free(sql);
            store_close(s);
            s = store_open(sample_store_path(), &err);
            if (s != NULL)
                sample_facts_query(s, "PRAGMA ignore_check_constraints = 1");
            assert_int_equal(s == NULL, over);
        }
        char *sentence =
            xformat("%s: table %s, row %s, column %s: expected at most %d bytes, found %d", sample_store_path(),
                    name[i].table, name[i].row, name[i].column, name[i].most, name[i].most + 1);
        assert_string_equal(err.text, sentence);
        free(sentence);
        test_directory_remove();
    }
}

// What this program would refuse to open it does not store.
TEST(what_is_too_long_is_not_stored)
{
    struct error err;
    char *text = xmalloc((16 << 20) + 2);
    memset(text, 'x', (16 << 20) + 1);
    text[(16 << 20) + 1] = '\0';
    for (int over = 0; over < 2; over++) {
        assert_int_equal(schema_fits(&(struct shown_settings){ .sampling = text + 1 - over }, &err), !over);
        assert_int_equal(schema_fits(&(struct shown_settings){ .experiment = text + (15 << 20) + 1 - over }, &err),
                         !over);
    }
    assert_string_equal(err.text, "the experiment's name: expected at most 1048576 bytes, found 1048577");
    free(text);
}

TEST(what_is_not_ours_stays_and_is_not_run)
{
    struct error err;
    int64_t pair;
    struct store *s = sample_store_small();
    sample_facts_query(s, "CREATE TABLE notes (text TEXT)");
    sample_facts_query(s, "CREATE VIEW my_steps AS SELECT * FROM step");
    sample_facts_query(s, "CREATE TRIGGER more AFTER INSERT ON pair BEGIN INSERT INTO notes " ENDLESS "x FROM n; END");
    store_close(s);
    s = sample_store(NULL);
    assert_ok(store_new_pair(s, "x", &pair, &err), err);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM notes"), 0);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM my_steps"),
                     sample_facts_query(s, "SELECT count(*) FROM step"));
    store_close(s);
}

// A view that is not exactly ours is made again: one that lacks its last condition, too.
TEST(a_view_that_is_shorter_is_made_again)
{
    static const char whole[] = "SELECT sql LIKE '% HAVING %' FROM sqlite_schema WHERE name = 'acceptance'";
    struct error err;
    struct store *s = sample_store(NULL);
    struct query *q = query_open(s, "SELECT sql FROM sqlite_schema WHERE name = 'acceptance'");
    assert_true(query_next(q));
    char *sql = xstrdup(query_text(q, 0)), *last = strstr(sql, " HAVING ");
    assert_ok(query_close(q, &err), err);
    assert_non_null(last);
    *last = '\0';
    sample_facts_query(s, "DROP VIEW acceptance");
    sample_facts_query(s, sql);
    assert_int_equal(sample_facts_query(s, whole), 0);
    store_close(s);
    s = sample_store(NULL);
    sample_facts_hold(s, whole);
    store_close(s);
    free(sql);
}

TEST(a_query_without_end_is_given_up)
{
    struct error err = { "" }, ignored;
    struct store *s = sample_store(NULL);
    static const char *const smaller[] = { "PRAGMA journal_mode = DELETE", "PRAGMA page_size = 512", "VACUUM" };
    for (int i = 0; i < 3; i++)
        (void)query_perform(query_open(s, smaller[i]), &ignored); // the log goes, as if somebody had removed it
    struct query *q = query_open(s, ENDLESS "count(*) FROM n");
    assert_false(query_next(q));
    assert_false(query_close(q, &err));
    assert_non_null(strstr(err.text, sample_store_path()));
    assert_non_null(strstr(err.text, ": a query was given up, as it took more than any on a database of "));
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run"), 0); // others go on
    store_close(s);
}

TEST(a_query_is_interrupted)
{
    const pid_t child = fork();
    if (child == 0) {
        struct error err = { "" };
        struct store *s = sample_store(NULL);
        interrupt_catch();
        raise(SIGINT);
        int64_t pair;
        const bool written = store_new_pair(s, "x", &pair, &err); // what is decoded is stored
        struct query *q = query_open(s, ENDLESS "count(*) FROM n");
        const bool stopped = !query_next(q) && !query_close(q, &err) && strcmp(err.text, "interrupted") == 0;
        store_close(s);
        _exit(written && stopped ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

RUN_EACH_TEST(NULL, test_directory_tear_down)
