// test_store.c - the database as a file: what is opened and what is not, runners that are killed, disks that are full.
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/report.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/results/sample_facts.h"

static char folder[64];
static char *path;

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/speclab-store-XXXXXX");
    assert_non_null(mkdtemp(folder));
    path = xformat("%s/results.db", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char *command = xformat("rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    free(command);
    free(path);
    return 0;
}

static struct store *opened(void)
{
    struct error err;
    struct store *s = store_open(path, &err);
    if (s == NULL)
        fail_msg("%s", err.text);
    return s;
}

static void refuses(const char *name, const char *because)
{
    struct error err = { "" };
    struct store *s = store_open(name, &err);
    if (s != NULL)
        fail_msg("%s was opened", name);
    if (strstr(err.text, because) == NULL || strstr(err.text, name) == NULL)
        fail_msg("\"%s\" says neither %s nor %s", err.text, name, because);
}

static char *read_file(const char *name, size_t *n)
{
    struct stat st;
    assert_int_equal(stat(name, &st), 0);
    char *s = xmalloc((size_t)st.st_size + 1);
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    *n = fread(s, 1, (size_t)st.st_size, f);
    fclose(f);
    return s;
}

static void store_some(struct store *s)
{
    struct error err;
    struct sample_facts *m = sample_facts_create(5, 2, 1, 1);
    if (!sample_facts_store(m, s, &err))
        fail_msg("%s", err.text);
    sample_facts_free(m);
}

// ---- what is opened ----

static void a_new_database_is_made_and_opened_again(void **state)
{
    (void)state;
    struct store *s = opened();
    assert_false(store_read_only(s));
    assert_int_equal(sample_facts_query(s, "SELECT user_version FROM pragma_user_version"), 6);
    assert_int_equal(sample_facts_query(s, "SELECT application_id FROM pragma_application_id"), 0x5350434C);
    assert_int_equal(sample_facts_query(s, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
    assert_int_equal(sample_facts_query(s, "SELECT foreign_keys FROM pragma_foreign_keys"), 1);
    store_some(s);
    store_close(s);
    s = opened();
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run"), MADE_RUNS);
    store_close(s);
    store_close(NULL);
}

static void an_empty_file_becomes_a_database(void **state)
{
    (void)state;
    file_write_bytes(path, "", 0);
    struct store *s = opened();
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run"), 0);
    store_close(s);
}

static void names_with_signs_of_a_uri_are_names(void **state)
{
    (void)state;
    struct error err;
    char *strange = xformat("%s/file:a?b#c%%41.db", folder);
    struct store *s = store_open(strange, &err);
    assert_non_null(s);
    store_close(s);
    assert_int_equal(access(strange, F_OK), 0);
    free(strange);
}

static void what_is_no_database_of_ours_is_refused(void **state)
{
    (void)state;
    char *missing = xformat("%s/nowhere/results.db", folder), *text = xformat("%s/text.db", folder);
    char *pipe = xformat("%s/pipe", folder);
    refuses(folder, "is a folder");
    refuses(missing, "there is no folder");
    file_write_bytes(text, "hello", 5);
    refuses(text, "not an SQLite database");
    char *long_text = xcalloc(1, 100000);
    memset(long_text, 'x', 100000);
    file_write_bytes(text, long_text, 100000);
    refuses(text, "not an SQLite database");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    refuses(pipe, "not a regular file");

    struct store *s = opened();
    sample_facts_query(s, "PRAGMA application_id = 77");
    store_close(s);
    refuses(path, "another program");
    unlink(path);
    s = opened();
    sample_facts_query(s, "PRAGMA user_version = 9");
    store_close(s);
    refuses(path, "newer speclab (schema version 9; this one knows 6)");
    free(long_text);
    free(missing);
    free(text);
    free(pipe);
}

static void views_are_put_in_place_again(void **state)
{
    (void)state;
    struct store *s = opened();
    sample_facts_query(s, "DROP VIEW speed");
    sample_facts_query(s, "DROP VIEW run_summary");
    sample_facts_query(s, "CREATE VIEW run_summary AS SELECT 1 AS one");
    sample_facts_query(s, "CREATE VIEW my_own AS SELECT 42 AS answer");
    store_close(s);
    s = opened();
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM speed"), 0);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run_summary WHERE drafter IS NULL"), 0);
    assert_int_equal(sample_facts_query(s, "SELECT answer FROM my_own"), 42);
    double version = sample_facts_query(s, "SELECT schema_version FROM pragma_schema_version");
    store_close(s);
    s = opened(); // nothing to do: nothing is done
    assert_int_equal(sample_facts_query(s, "SELECT schema_version FROM pragma_schema_version"), version);
    store_close(s);
}

// What the first version's tables were, from today's.
static void make_older(struct store *s)
{
    struct error err = { "" };
    char *drop = NULL;
    sample_facts_query(s, "PRAGMA foreign_keys = OFF");
    do {
        struct query *q =
            query_open(s, "SELECT 'DROP ' || type || ' ' || name FROM sqlite_master WHERE type IN ('view', 'table')"
                          " AND name NOT IN ('run', 'pair', 'sequence', 'step', 'trial') LIMIT 1");
        free(drop);
        drop = query_next(q) ? xstrdup(query_text(q, 0)) : NULL;
        assert_true(query_close(q, &err));
        if (drop != NULL)
            sample_facts_query(s, drop);
    } while (drop != NULL);
    sample_facts_query(s, "ALTER TABLE step DROP COLUMN stood");
    sample_facts_query(s, "ALTER TABLE run DROP COLUMN cache");
    sample_facts_query(s, "PRAGMA user_version = 1");
}

static void an_older_database_is_brought_up_to_date(void **state)
{
    (void)state;
    struct store *s = opened();
    static const char columns[] = "SELECT count(*) FROM sqlite_master AS m JOIN pragma_table_info(m.name)";
    double before = sample_facts_query(s, columns);
    store_some(s);
    make_older(s);
    store_close(s);
    s = opened();
    assert_int_equal(sample_facts_query(s, "SELECT user_version FROM pragma_user_version"), 6);
    assert_int_equal(sample_facts_query(s, columns), before);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run_summary WHERE cache = 'f32'"), MADE_RUNS);
    store_close(s);
}

static void every_view_begins_with_its_definition(void **state)
{
    (void)state;
    struct store *s = opened();
    assert_true(sample_facts_query(s, "SELECT count(*) FROM sqlite_master WHERE type = 'view'") >= 15);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sqlite_master WHERE type = 'view'"
                                           " AND sql NOT LIKE 'CREATE VIEW ' || name || ' AS' || char(10) || '-- %'"),
                     0);
    store_close(s);
}

static void facts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct error err;
    struct store *s = opened();
    store_some(s);
    static const char *const wrong[] = {
        "UPDATE step SET accepted = depth + 1", "UPDATE step SET tokens = accepted + 2",
        "UPDATE step SET propose_ns = -1",      "UPDATE sequence SET new_tokens = 10000",
        "UPDATE sequence SET run = 999",        "UPDATE run SET batch = 0",
        "UPDATE run SET seed = 'many'",         "UPDATE trial SET stood = 2",
        "UPDATE sequence SET tokens = 'x'",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct query *q = query_open(s, wrong[i]);
        assert_false(query_next(q));
        if (query_close(q, &err))
            fail_msg("%s was possible", wrong[i]);
    }
    store_close(s);
}

// ---- who may read and write ----

// As a user who may not write: the tests may run as root, whom no permission stops.
static void as_nobody(void (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(2);
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void check(bool is_so, const char *what, const struct error *err)
{
    if (is_so)
        return;
    fprintf(stderr, "not so: %s (%s)\n", what, err->text);
    _exit(1);
}

static void read_but_not_write(void)
{
    struct error err = { "" };
    struct store *s = store_open(path, &err);
    check(s != NULL, "opened", &err);
    check(store_read_only(s), "read-only", &err);
    struct query *q = query_open(s, "SELECT count(*) FROM run_summary");
    check(query_next(q) && query_int(q, 0) == MADE_RUNS, "runs counted", &err);
    check(query_close(q, &err), "asked", &err);
    FILE *out = fopen("/dev/null", "w");
    check(report_write(s, &(struct report_options){ 0 }, out, &err), "reported", &err);
    fclose(out);
    int64_t pair;
    check(!store_new_pair(s, "x", &pair, &err) && strstr(err.text, "read-only") != NULL, "not written", &err);
    store_close(s);
}

static void cannot_be_opened(void)
{
    struct error err = { "" };
    struct store *s = store_open(path, &err);
    check(s == NULL && strstr(err.text, path) != NULL, "refused", &err);
    check(strstr(err.text, "No such file") == NULL, "the reason", &err);
}

static void a_read_only_file_is_read(void **state)
{
    (void)state;
    struct store *s = opened();
    store_some(s);
    store_close(s);
    chmod(path, 0444);
    chmod(folder, 0555);
    as_nobody(read_but_not_write);
    chmod(folder, 0777);
    as_nobody(read_but_not_write);
    chmod(path, 0);
    as_nobody(cannot_be_opened);
    chmod(path, 0644);
}

static void is_too_old(void)
{
    struct error err = { "" };
    struct store *s = store_open(path, &err);
    check(s == NULL && strstr(err.text, "is read-only and has the older schema version 5 (6 is needed)") != NULL,
          "refused as too old", &err);
}

static void an_older_database_that_may_not_be_written_is_refused(void **state)
{
    (void)state;
    struct store *s = opened();
    sample_facts_query(s, "PRAGMA user_version = 5");
    store_close(s);
    chmod(path, 0444);
    chmod(folder, 0555);
    as_nobody(is_too_old);
    chmod(folder, 0777);
    chmod(path, 0644);
}

static void nothing_is_made_where_nothing_may_be(void **state)
{
    (void)state;
    chmod(folder, 0555);
    as_nobody(cannot_be_opened);
    chmod(folder, 0755);
    file_write_bytes(path, "", 0);
    chmod(path, 0444);
    as_nobody(cannot_be_opened);
}

static void a_database_that_another_writes_to_is_waited_for_and_then_named(void **state)
{
    (void)state;
    struct error err;
    int64_t pair;
    struct store *one = opened(), *other = opened();
    sample_facts_query(one, "BEGIN IMMEDIATE");
    assert_false(store_new_pair(other, "x", &pair, &err));
    assert_non_null(strstr(err.text, "another process has kept the database busy for 5 seconds"));
    assert_non_null(strstr(err.text, path));
    assert_true(
        isfinite(sample_facts_query(other, "SELECT count(*) FROM run_summary"))); // who only reads does not wait
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
        struct store *s = store_open(path, &why);
        bool claimed = s != NULL && store_lock(s, experiment, &why);
        if (!claimed)
            fprintf(stderr, "%s\n", why.text);
        bool said = claimed || (strstr(why.text, path) != NULL && strstr(why.text, experiment) != NULL);
        store_close(s);
        _exit(!said ? 2 : !claimed);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

static void an_experiment_is_run_by_one_process(void **state)
{
    (void)state;
    struct error err;
    struct store *s = opened();
    assert_true(another_may_lock("x")); // whose process has gone, and the claim with it
    assert_true(store_lock(s, "x", &err));
    assert_true(store_lock(s, "x", &err));
    assert_false(another_may_lock("x"));
    assert_true(another_may_lock("y"));
    int64_t pair;
    assert_true(store_new_pair(s, "x", &pair, &err));
    store_close(s);
    assert_true(another_may_lock("x"));
}

// ---- accidents ----

static void is_whole(const char *after)
{
    struct store *s = opened();
    struct query *q = query_open(s, "SELECT integrity_check FROM pragma_integrity_check");
    assert_true(query_next(q));
    if (strcmp(query_text(q, 0), "ok") != 0)
        fail_msg("after %s: %s", after, query_text(q, 0));
    struct error err;
    while (query_next(q))
        ;
    assert_true(query_close(q, &err));
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence AS q WHERE steps <>"
                                           " (SELECT count(*) FROM step WHERE sequence = q.id)"),
                     0);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence AS q WHERE new_tokens <>"
                                           " (SELECT sum(tokens) FROM step WHERE sequence = q.id)"),
                     0);
    store_close(s);
}

// A runner that stores one sequence after another until somebody stops it.
static void run_forever(unsigned seed)
{
    struct error err;
    struct store *s = store_open(path, &err);
    struct sample_facts *m = sample_facts_create(seed, 4, 1, 1);
    for (int64_t repeat = 0; s != NULL; repeat++) {
        int64_t id, pair;
        if (!store_new_pair(s, "made-up", &pair, &err))
            break;
        for (int i = 0; i < m->n; i++) {
            struct sequence_row row = m->sequence[i].row;
            row.pair = pair;
            row.repeat = (int)repeat;
            if (!store_run(s, &m->run[m->sequence[i].run], &id, &err) ||
                (!store_sequence(s, id, &row, &err) && strstr(err.text, "UNIQUE") == NULL))
                break;
        }
    }
    fprintf(stderr, "runner: %s\n", err.text);
    _exit(1);
}

static void a_runner_killed_at_any_moment_leaves_whole_sequences(void **state)
{
    (void)state;
    double sequences = 0;
    srand(1);
    for (unsigned round = 0; round < 24; round++) {
        if (round == 12)
            unlink(path); // from here on also while the database is being made
        pid_t child = fork();
        if (child == 0)
            run_forever(round);
        long wait_us = round < 12 ? 2000 + rand() % 150000 : rand() % 12000;
        nanosleep(&(struct timespec){ .tv_nsec = 1000 * wait_us }, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        is_whole("a kill");
        struct store *s = opened();
        double now = sample_facts_query(s, "SELECT count(*) FROM sequence");
        assert_true(now >= sequences || round == 12);
        sequences = now;
        store_close(s);
        if (round == 11)
            assert_true(sequences > 20);
        if (round >= 12) {
            unlink(path);
            sequences = 0;
        }
    }
}

// Stores until it fails; how many went in, and with which words it ended.
static int store_until_full(struct store *s, struct error *err)
{
    struct sample_facts *m = sample_facts_create(2, 4, 1, 1);
    int64_t run, pair = 0;
    int stored = 0;
    for (int repeat = 0;; repeat++)
        for (int i = 0; i < m->n; i++) {
            struct sequence_row row = m->sequence[i].row;
            row.repeat = repeat;
            if ((i == 0 && !store_new_pair(s, "made-up", &pair, err)) ||
                !store_run(s, &m->run[m->sequence[i].run], &run, err)) {
                sample_facts_free(m);
                return stored;
            }
            row.pair = pair;
            if (m->sequence[i].run == NONE && row.prompt == 1 && i % 2 == 1)
                continue; // the one that was run twice
            if (!store_sequence(s, run, &row, err)) {
                if (strstr(err->text, "UNIQUE") != NULL)
                    continue;
                sample_facts_free(m);
                return stored;
            }
            stored++;
        }
}

static void a_full_disk_is_said_and_leaves_what_was_stored(void **state)
{
    (void)state;
    struct error err;
    struct store *s = opened();
    sample_facts_query(s, "PRAGMA max_page_count = 90");
    int stored = store_until_full(s, &err);
    assert_non_null(strstr(err.text, "no space left on the disk"));
    assert_non_null(strstr(err.text, path));
    assert_true(stored > 5);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence"), stored);
    store_close(s);
    is_whole("a full disk");
}

static void a_file_that_may_not_grow_is_said_and_leaves_what_was_stored(void **state)
{
    (void)state;
    struct error err;
    struct rlimit before, tight;
    struct store *s = opened();
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 400000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    int stored = store_until_full(s, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(err.text, "could not be read or written: ")); // SQLite does not always keep the reason
    assert_non_null(strstr(err.text, path));
    assert_true(stored > 5);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence"), stored);
    int64_t pair;
    assert_true(store_new_pair(s, "made-up", &pair, &err)); // there is room again, and it goes on
    store_close(s);
    is_whole("a file that could not grow");
}

// Whatever a damaged file holds, it is refused or reported, in words.
static void a_damaged_database_is_no_reason_to_crash(void **state)
{
    (void)state;
    size_t n;
    struct store *s = opened();
    store_some(s);
    store_close(s);
    char *whole = read_file(path, &n), *damaged = xmalloc(n);
    uint64_t seed = 99;
    int refused = 0;
    FILE *out = fopen("/dev/null", "w");
    for (int round = 0; round < 300; round++) {
        struct error err = { "" };
        size_t length = n;
        memcpy(damaged, whole, n);
        for (int i = 0; i < 1 + round % 40; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            damaged[(seed >> 33) % n] = (char)(seed >> 25);
        }
        if (round % 5 == 4)
            length = (size_t)((seed >> 40) % n);
        file_write_bytes(path, damaged, length);
        s = store_open(path, &err);
        bool well = s != NULL && report_write(s, &(struct report_options){ .format = round % 3 }, out, &err);
        struct stored_turn turn = { 0 };
        for (int turns = 0; s != NULL && turns < 4; turns++) {
            struct error ignored;
            if (store_turn(s, 1 + turns, 0, 0, 0, &turn, &ignored))
                free(turn.token);
        }
        store_close(s);
        if (!well) {
            refused++;
            assert_true(strlen(err.text) > 10);
        }
        char *beside[] = { xformat("%s-wal", path), xformat("%s-shm", path) };
        for (int i = 0; i < 2; i++) {
            unlink(beside[i]);
            free(beside[i]);
        }
    }
    assert_true(refused > 20);
    fclose(out);
    free(whole);
    free(damaged);
}

// A run that is found by its names when they are listed, and not when it is asked for by them: they go on behind a NUL, or an
// index says something else than its table.
static void a_run_that_its_own_names_do_not_find_is_said_to_be_damage(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = opened();
    store_some(s);
    assert_true(query_perform(query_open(s, "UPDATE run SET peers = peers || char(0) || 'x'"), &err));
    FILE *out = fopen("/dev/null", "w");
    for (int format = REPORT_TABLE; format <= REPORT_JSONL; format++) {
        err.text[0] = '\0';
        assert_false(report_write(s, &(struct report_options){ .format = (enum report_format)format }, out, &err));
        assert_non_null(strstr(err.text, "the database is damaged"));
        assert_non_null(strstr(err.text, path));
    }
    fclose(out);
    store_close(s);
}

// Depths are counted up to the deepest: one that no draft can have would be counted up to for ever.
static void a_depth_that_cannot_be_does_not_keep_a_report_from_ending(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = opened();
    store_some(s);
    assert_true(query_perform(query_open(s, "PRAGMA ignore_check_constraints = 1"), &err));
    assert_true(query_perform(query_open(s, "UPDATE step SET depth = 9223372036854775807"), &err));
    FILE *out = fopen("/dev/null", "w");
    alarm(120); // which ends the program
    for (int format = REPORT_TABLE; format <= REPORT_JSONL; format++)
        report_write(s, &(struct report_options){ .format = (enum report_format)format }, out, &err);
    alarm(0);
    fclose(out);
    store_close(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_new_database_is_made_and_opened_again),
        TEST(an_empty_file_becomes_a_database),
        TEST(names_with_signs_of_a_uri_are_names),
        TEST(what_is_no_database_of_ours_is_refused),
        TEST(views_are_put_in_place_again),
        TEST(an_older_database_is_brought_up_to_date),
        TEST(every_view_begins_with_its_definition),
        TEST(facts_that_cannot_be_are_refused),
        TEST(a_read_only_file_is_read),
        TEST(an_older_database_that_may_not_be_written_is_refused),
        TEST(nothing_is_made_where_nothing_may_be),
        TEST(an_experiment_is_run_by_one_process),
        TEST(a_database_that_another_writes_to_is_waited_for_and_then_named),
        TEST(a_runner_killed_at_any_moment_leaves_whole_sequences),
        TEST(a_full_disk_is_said_and_leaves_what_was_stored),
        TEST(a_file_that_may_not_grow_is_said_and_leaves_what_was_stored),
        TEST(a_damaged_database_is_no_reason_to_crash),
        TEST(a_run_that_its_own_names_do_not_find_is_said_to_be_damage),
        TEST(a_depth_that_cannot_be_does_not_keep_a_report_from_ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
