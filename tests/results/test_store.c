// test_store.c - the database as a file: which files are opened, permissions, several processes.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

static void expect_refused(const char *name, const char *because)
{
    struct error err = { "" };
    struct store *s = store_open(name, &err);
    if (s != NULL)
        fail_msg("%s was opened", name);
    if (strstr(err.text, because) == NULL || strstr(err.text, name) == NULL)
        fail_msg("\"%s\" lacks %s or %s", err.text, name, because);
}

// ---- opening ----

TEST(a_new_or_empty_file_becomes_a_database)
{
    for (int empty = 0; empty < 2; empty++) {
        if (empty)
            file_write_bytes(sample_store_path(), "", 0);
        struct store *s = sample_store(NULL);
        assert_false(store_read_only(s));
        sample_facts_hold(s, "SELECT user_version = 16 FROM pragma_user_version");
        sample_facts_hold(s, "SELECT application_id = 0x5350434C FROM pragma_application_id");
        sample_facts_hold(s, "SELECT journal_mode = 'wal' FROM pragma_journal_mode");
        sample_facts_hold(s, "SELECT foreign_keys FROM pragma_foreign_keys");
        store_close(s);
        store_close(sample_store_small());
        s = sample_store(NULL);
        assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run"), SAMPLE_RUNS);
        store_close(s);
        unlink(sample_store_path());
    }
    store_close(NULL);
}

TEST(names_with_uri_characters_are_file_names)
{
    struct error err;
    char *strange = xformat("%s/file:a?b#c%%41.db", test_directory());
    struct store *s = store_open(strange, &err);
    assert_non_null(s);
    store_close(s);
    assert_int_equal(access(strange, F_OK), 0);
    free(strange);
}

TEST(files_that_are_no_speclab_database_are_refused)
{
    char *missing = xformat("%s/nowhere/results.db", test_directory()), *text = xformat("%s/text.db", test_directory());
    char *pipe = xformat("%s/pipe", test_directory());
    expect_refused(test_directory(), "is a folder");
    expect_refused(missing, "there is no folder");
    file_write_bytes(text, "hello", 5);
    expect_refused(text, "not an SQLite database");
    char *long_text = xcalloc(1, 100000);
    memset(long_text, 'x', 100000);
    file_write_bytes(text, long_text, 100000);
    expect_refused(text, "not an SQLite database");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    expect_refused(pipe, "not a regular file");

    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(symlink(pipe, pipe), 0);
    expect_refused(pipe, "could not be opened: ");

    struct store *s = sample_store(NULL);
    sample_facts_query(s, "PRAGMA application_id = 77");
    store_close(s);
    expect_refused(sample_store_path(), "another program");
    free(long_text);
    free(missing);
    free(text);
    free(pipe);
}

TEST(changed_views_are_recreated)
{
    struct store *s = sample_store(NULL);
    sample_facts_query(s, "DROP VIEW speed");
    sample_facts_query(s, "DROP VIEW run_summary");
    sample_facts_query(s, "CREATE VIEW run_summary AS SELECT 1 AS one");
    sample_facts_query(s, "CREATE VIEW my_own AS SELECT 42 AS answer");
    store_close(s);
    s = sample_store(NULL);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM speed"), 0);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run_summary WHERE drafter IS NULL"), 0);
    assert_int_equal(sample_facts_query(s, "SELECT answer FROM my_own"), 42);
    double version = sample_facts_query(s, "SELECT schema_version FROM pragma_schema_version");
    store_close(s);
    s = sample_store(NULL); // the views are current: no change
    assert_int_equal(sample_facts_query(s, "SELECT schema_version FROM pragma_schema_version"), version);
    store_close(s);
}

// Writes PRAGMA user_version into the file's header (offset 60, big-endian): store_open would refuse the file.
static void write_version(int version)
{
    const unsigned char bytes[] = { 0, 0, 0, (unsigned char)version };
    FILE *f = fopen(sample_store_path(), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 60, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, sizeof(bytes), f), sizeof(bytes));
    assert_int_equal(fclose(f), 0);
}

TEST(another_schema_version_is_refused)
{
    static const int versions[] = { 0, 1, 14, 17, 99 };
    struct store *s = sample_store_small();
    store_close(s);
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        struct error err;
        write_version(versions[i]);
        assert_null(store_open(sample_store_path(), &err));
        char *found = xformat("%s: expected schema version 16, found %d: ", sample_store_path(), versions[i]);
        assert_int_equal(strncmp(err.text, found, strlen(found)), 0);
        free(found);
    }
    write_version(16);
    s = sample_store(NULL);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run"), SAMPLE_RUNS);
    store_close(s);
}

// The sample as version 15 has it: without drafter_options, and with settings that have the options of these names among others.
static void write_version_15(void)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "CREATE TABLE kept (id INTEGER, options TEXT) STRICT");
    sample_facts_query(s, "INSERT INTO kept SELECT id, drafter_options FROM run");
    sample_facts_query(s, "UPDATE run SET settings = json_set(settings, '$.cells', json_object('drafter', json_patch("
                          "json_object('kind', drafter_kind, 'okens', 1, 'shortest', 2), drafter_options)))");
    sample_facts_query(s, "UPDATE run SET settings = '{\"cells\": {\"drafter\": \"none\"}}' WHERE drafter = 'none'");
    sample_facts_query(s, "ALTER TABLE run DROP COLUMN drafter_options");
    store_close(s);
    write_version(15);
}

static void expect_raised(struct store *s)
{
    assert_int_equal(
        sample_facts_query(s,
                           "SELECT count(*) FROM kept JOIN run USING (id) WHERE json(options) = json(drafter_options)"),
        SAMPLE_RUNS);
    assert_int_equal(sample_facts_query(s, "SELECT count(DISTINCT options) FROM kept"), 3);
    assert_int_equal(sample_facts_query(s, "SELECT user_version FROM pragma_user_version"), 16);
}

// One that cannot be written to gets them in a copy, and each other the first time.
TEST(a_database_of_version_15_gets_the_options_of_its_drafters)
{
    struct error err;
    write_version_15();
    assert_int_equal(chmod(sample_store_path(), 0400), 0);
    for (int i = 0; i < 3; i++) {
        struct store *s = store_open(sample_store_path(), &err);
        assert_ok(s != NULL, err);
        assert_true(i == 0 || !store_read_only(s)); // the first one is, but for root
        expect_raised(s);
        store_close(s);
        assert_int_equal(chmod(sample_store_path(), 0600), 0);
    }
}

TEST(a_database_without_a_version_is_another_programs)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "PRAGMA application_id = 0"); // tables alone
    store_close(s);
    write_version(0);
    expect_refused(sample_store_path(), "another program");
    assert_int_equal(unlink(sample_store_path()), 0);
    s = sample_store(NULL);
    sample_facts_query(s, "PRAGMA application_id = 77"); // an id alone
    sample_facts_query(s, "PRAGMA writable_schema = 1");
    sample_facts_query(s, "DELETE FROM sqlite_master");
    store_close(s);
    write_version(0);
    expect_refused(sample_store_path(), "another program");
}

TEST(every_view_begins_with_its_definition)
{
    struct store *s = sample_store(NULL);
    assert_true(sample_facts_query(s, "SELECT count(*) FROM sqlite_master WHERE type = 'view'") >= 15);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sqlite_master WHERE type = 'view'"
                                           " AND sql NOT LIKE 'CREATE VIEW ' || name || ' AS' || char(10) || '-- %'"),
                     0);
    store_close(s);
}

TEST(impossible_facts_are_refused)
{
    struct error err;
    struct store *s = sample_store_small();
    static const char *const wrong[] = {
        "UPDATE step SET accepted = depth + 1", "UPDATE step SET tokens = accepted + 2",
        "UPDATE step SET propose_ns = -1",      "UPDATE sequence SET new_tokens = 10000",
        "UPDATE sequence SET run = 999",        "UPDATE run SET batch = 0",
        "UPDATE run SET seed = 'many'",         "UPDATE trial SET accepted = 2",
        "UPDATE sequence SET tokens = 'x'",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct query *q = query_open(s, wrong[i]);
        assert_false(query_next(q));
        if (query_close(q, &err))
            fail_msg("%s was accepted", wrong[i]);
    }
    store_close(s);
}

// ---- permissions and concurrency ----

// A database that can be read: its runs are counted by our views, reported, and neither stored nor locked.
static bool is_read_only(struct store *s, struct error *err)
{
    int64_t pair;
    FILE *out = fopen("/dev/null", "w");
    struct query *q = query_open(s, "SELECT count(*), count(speedup) >= 1 AND max(speedup) < 1000 FROM run_summary");
    const bool counted = query_next(q) && query_int(q, 0) == SAMPLE_RUNS && query_int(q, 1) == 1;
    const bool read = query_close(q, err) && counted && report_write(s, &(struct report_options){ 0 }, out, err);
    fclose(out);
    return read && store_read_only(s) && !store_new_pair(s, "x", &pair, err) &&
           strstr(err->text, "read-only") != NULL && !store_lock(s, "x", err) &&
           strstr(err->text, "could not be locked") != NULL;
}

// Opens the database as an unprivileged user, since root ignores permissions. refused: words of the message; NULL: it is read.
static void expect_unprivileged(const char *refused)
{
    const pid_t child = fork();
    if (child == 0) {
        struct error err = { "" };
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(2);
        struct store *s = store_open(sample_store_path(), &err);
        const bool as_expected = refused == NULL ? s != NULL && is_read_only(s, &err)
                                                 : s == NULL && strstr(err.text, sample_store_path()) != NULL &&
                                                       strstr(err.text, refused) != NULL;
        if (!as_expected)
            fprintf(stderr, "expected %s, found \"%s\"\n", refused != NULL ? refused : "a database to read", err.text);
        store_close(s);
        _exit(as_expected ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void permissions(mode_t folder, mode_t file)
{
    assert_int_equal(chmod(test_directory(), 0777), 0);
    assert_int_equal(chmod(sample_store_path(), file), 0);
    assert_int_equal(chmod(test_directory(), folder), 0);
}

// A view of its own that says what ours does not: the program does not read it.
TEST(a_read_only_file_is_read_by_our_views)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "DROP VIEW run_summary");
    sample_facts_query(s, "CREATE VIEW run_summary AS SELECT id AS run, *, 1000 AS speedup FROM run");
    store_close(s);
    permissions(0555, 0444);
    expect_unprivileged(NULL);
    permissions(0777, 0444);
    expect_unprivileged(NULL);
    permissions(0777, 0);
    expect_unprivileged("Permission denied");
    permissions(0777, 0644);
}

// In a folder where SQLite can make no file: without a log of changes the file is complete.
TEST(a_read_only_file_with_changes_beside_it_is_refused)
{
    char *wal = xformat("%s-wal", sample_store_path());
    store_close(sample_store_small());
    file_write_bytes(wal, "", 0);
    permissions(0555, 0444);
    expect_unprivileged(NULL);
    permissions(0777, 0444);
    file_write_bytes(wal, "x", 1);
    permissions(0555, 0444);
    expect_unprivileged("");
    permissions(0777, 0666); // may be written, but not in this folder
    assert_int_equal(unlink(wal), 0);
    permissions(0555, 0666);
    expect_unprivileged("");
    permissions(0777, 0666);
    write_version(7);
    permissions(0555, 0444);
    expect_unprivileged("expected schema version 16");
    permissions(0777, 0644);
    free(wal);
}

TEST(a_database_is_not_created_without_permission)
{
    chmod(test_directory(), 0555);
    expect_unprivileged("Permission denied");
    chmod(test_directory(), 0755);
    file_write_bytes(sample_store_path(), "", 0);
    permissions(0755, 0444);
    expect_unprivileged("");
    permissions(0777, 0644);
}

TEST(a_busy_database_is_waited_for_and_then_reported)
{
    struct error err;
    int64_t pair;
    struct store *one = sample_store(NULL), *other = sample_store(NULL);
    sample_facts_query(one, "BEGIN IMMEDIATE");
    assert_false(store_new_pair(other, "x", &pair, &err));
    assert_non_null(strstr(err.text, "another process has kept the database busy for 5 seconds"));
    assert_non_null(strstr(err.text, sample_store_path()));
    assert_true(isfinite(sample_facts_query(other, "SELECT count(*) FROM run_summary"))); // readers do not wait
    sample_facts_query(one, "COMMIT");
    assert_true(store_new_pair(other, "x", &pair, &err));
    store_close(one);
    store_close(other);
}

static bool another_may_lock(const char *experiment)
{
    pid_t child = fork();
    if (child == 0) {
        struct error why;
        struct store *s = store_open(sample_store_path(), &why);
        bool locked = s != NULL && store_lock(s, experiment, &why);
        if (!locked)
            fprintf(stderr, "%s\n", why.text);
        bool names_both =
            locked || (strstr(why.text, sample_store_path()) != NULL && strstr(why.text, experiment) != NULL);
        store_close(s);
        _exit(!names_both ? 2 : !locked);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

TEST(an_experiment_is_run_by_one_process)
{
    struct error err;
    struct store *s = sample_store(NULL);
    assert_true(another_may_lock("x")); // the lock ended with its process
    assert_true(store_lock(s, "x", &err));
    assert_true(store_lock(s, "x", &err));
    assert_false(another_may_lock("x"));
    assert_true(another_may_lock("y"));
    int64_t pair;
    assert_true(store_new_pair(s, "x", &pair, &err));
    store_close(s);
    assert_true(another_may_lock("x"));
}

RUN_EACH_TEST(NULL, test_directory_tear_down)
