// test_store.c - the database as a file: which files are opened, killed processes, full disks, damage.
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

static void expect_refused(const char *name, const char *because)
{
    struct error err = { "" };
    struct store *s = store_open(name, &err);
    if (s != NULL)
        fail_msg("%s was opened", name);
    if (strstr(err.text, because) == NULL || strstr(err.text, name) == NULL)
        fail_msg("\"%s\" lacks %s or %s", err.text, name, because);
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

// ---- opening ----

static void a_new_database_is_created_and_reopened(void **state)
{
    (void)state;
    struct store *s = opened();
    assert_false(store_read_only(s));
    assert_int_equal(sample_facts_query(s, "SELECT user_version FROM pragma_user_version"), 8);
    assert_int_equal(sample_facts_query(s, "SELECT application_id FROM pragma_application_id"), 0x5350434C);
    assert_int_equal(sample_facts_query(s, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
    assert_int_equal(sample_facts_query(s, "SELECT foreign_keys FROM pragma_foreign_keys"), 1);
    store_some(s);
    store_close(s);
    s = opened();
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run"), SAMPLE_RUNS);
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

static void names_with_uri_characters_are_file_names(void **state)
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

static void files_that_are_no_speclab_database_are_refused(void **state)
{
    (void)state;
    char *missing = xformat("%s/nowhere/results.db", folder), *text = xformat("%s/text.db", folder);
    char *pipe = xformat("%s/pipe", folder);
    expect_refused(folder, "is a folder");
    expect_refused(missing, "there is no folder");
    file_write_bytes(text, "hello", 5);
    expect_refused(text, "not an SQLite database");
    char *long_text = xcalloc(1, 100000);
    memset(long_text, 'x', 100000);
    file_write_bytes(text, long_text, 100000);
    expect_refused(text, "not an SQLite database");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    expect_refused(pipe, "not a regular file");

    struct store *s = opened();
    sample_facts_query(s, "PRAGMA application_id = 77");
    store_close(s);
    expect_refused(path, "another program");
    free(long_text);
    free(missing);
    free(text);
    free(pipe);
}

static void changed_views_are_recreated(void **state)
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
    s = opened(); // the views are current: no change
    assert_int_equal(sample_facts_query(s, "SELECT schema_version FROM pragma_schema_version"), version);
    store_close(s);
}

// Writes PRAGMA user_version into the file's header (offset 60, big-endian): store_open would refuse the file.
static void write_version(int version)
{
    const unsigned char bytes[] = { 0, 0, 0, (unsigned char)version };
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 60, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, sizeof(bytes), f), sizeof(bytes));
    assert_int_equal(fclose(f), 0);
}

static void another_schema_version_is_refused(void **state)
{
    (void)state;
    static const int versions[] = { 0, 1, 7, 9, 99 };
    struct store *s = opened();
    store_some(s);
    store_close(s);
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        struct error err;
        write_version(versions[i]);
        assert_null(store_open(path, &err));
        char *expected =
            xformat("%s: expected schema version 8, found %d: run again into a new file (--db)", path, versions[i]);
        assert_string_equal(err.text, expected);
        free(expected);
    }
    write_version(8);
    s = opened();
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM run"), SAMPLE_RUNS);
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

static void impossible_facts_are_refused(void **state)
{
    (void)state;
    struct error err;
    struct store *s = opened();
    store_some(s);
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

// Runs body as an unprivileged user: the tests may run as root, who ignores permissions.
static void run_unprivileged(void (*body)(void))
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

static void check(bool ok, const char *what, const struct error *err)
{
    if (ok)
        return;
    fprintf(stderr, "failed: %s (%s)\n", what, err->text);
    _exit(1);
}

static void read_but_not_write(void)
{
    struct error err = { "" };
    struct store *s = store_open(path, &err);
    check(s != NULL, "opened", &err);
    check(store_read_only(s), "read-only", &err);
    struct query *q = query_open(s, "SELECT count(*) FROM run_summary");
    check(query_next(q) && query_int(q, 0) == SAMPLE_RUNS, "runs counted", &err);
    check(query_close(q, &err), "queried", &err);
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
    run_unprivileged(read_but_not_write);
    chmod(folder, 0777);
    run_unprivileged(read_but_not_write);
    chmod(path, 0);
    run_unprivileged(cannot_be_opened);
    chmod(path, 0644);
}

static void a_database_is_not_created_without_permission(void **state)
{
    (void)state;
    chmod(folder, 0555);
    run_unprivileged(cannot_be_opened);
    chmod(folder, 0755);
    file_write_bytes(path, "", 0);
    chmod(path, 0444);
    run_unprivileged(cannot_be_opened);
}

static void a_busy_database_is_waited_for_and_then_reported(void **state)
{
    (void)state;
    struct error err;
    int64_t pair;
    struct store *one = opened(), *other = opened();
    sample_facts_query(one, "BEGIN IMMEDIATE");
    assert_false(store_new_pair(other, "x", &pair, &err));
    assert_non_null(strstr(err.text, "another process has kept the database busy for 5 seconds"));
    assert_non_null(strstr(err.text, path));
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
        struct store *s = store_open(path, &why);
        bool locked = s != NULL && store_lock(s, experiment, &why);
        if (!locked)
            fprintf(stderr, "%s\n", why.text);
        bool names_both = locked || (strstr(why.text, path) != NULL && strstr(why.text, experiment) != NULL);
        store_close(s);
        _exit(!names_both ? 2 : !locked);
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

// ---- kills, full disks, damage ----

static void check_integrity(const char *after)
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

// Stores one sequence after another until the process is killed.
static void run_forever(unsigned seed)
{
    struct error err;
    struct store *s = store_open(path, &err);
    struct sample_facts *m = sample_facts_create(seed, 4, 1, 1);
    for (int64_t repeat = 0; s != NULL; repeat++) {
        int64_t id, pair;
        if (!store_new_pair(s, "synthetic", &pair, &err))
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

static void a_killed_process_leaves_complete_sequences(void **state)
{
    (void)state;
    double sequences = 0;
    srand(1);
    for (unsigned round = 0; round < 24; round++) {
        if (round == 12)
            unlink(path); // from here on also while the database is being created
        pid_t child = fork();
        if (child == 0)
            run_forever(round);
        long wait_us = round < 12 ? 2000 + rand() % 150000 : rand() % 12000;
        nanosleep(&(struct timespec){ .tv_nsec = 1000 * wait_us }, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        check_integrity("a kill");
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

// Stores until it fails. Returns the number of stored sequences; err: the failure.
static int store_until_full(struct store *s, struct error *err)
{
    struct sample_facts *m = sample_facts_create(2, 4, 1, 1);
    int64_t run, pair = 0;
    int stored = 0;
    for (int repeat = 0;; repeat++)
        for (int i = 0; i < m->n; i++) {
            struct sequence_row row = m->sequence[i].row;
            row.repeat = repeat;
            if ((i == 0 && !store_new_pair(s, "synthetic", &pair, err)) ||
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

static void a_full_disk_is_reported_and_stored_sequences_stay(void **state)
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
    check_integrity("a full disk");
}

static void a_file_size_limit_is_reported_and_stored_sequences_stay(void **state)
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
    assert_non_null(strstr(err.text, "could not be read or written: ")); // SQLite does not always keep errno
    assert_non_null(strstr(err.text, path));
    assert_true(stored > 5);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence"), stored);
    int64_t pair;
    assert_true(store_new_pair(s, "synthetic", &pair, &err)); // works again without the limit
    store_close(s);
    check_integrity("a file size limit");
}

// A damaged file is refused or reported on; every failure has a message.
static void a_damaged_database_does_not_crash(void **state)
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
        bool ok = s != NULL && report_write(s, &(struct report_options){ .format = round % 3 }, out, &err);
        struct stored_turn turn = { 0 };
        for (int turns = 0; s != NULL && turns < 4; turns++) {
            struct error ignored;
            if (store_turn(s, 1 + turns, 0, 0, 0, &turn, &ignored))
                free(turn.token);
        }
        store_close(s);
        if (!ok) {
            refused++;
            assert_true(strlen(err.text) > 10);
        }
        char *side_files[] = { xformat("%s-wal", path), xformat("%s-shm", path) };
        for (int i = 0; i < 2; i++) {
            unlink(side_files[i]);
            free(side_files[i]);
        }
    }
    assert_true(refused > 20);
    fclose(out);
    free(whole);
    free(damaged);
}

// A run that is listed but not found by its experiment and peers: the text continues after a NUL, or an index disagrees with
// its table.
static void a_run_not_found_by_its_names_is_reported_as_damage(void **state)
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

// The view `acceptance` counts depths up to the largest: an impossible one must not make it run forever.
static void an_impossible_depth_does_not_hang_a_report(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = opened();
    store_some(s);
    assert_true(query_perform(query_open(s, "PRAGMA ignore_check_constraints = 1"), &err));
    assert_true(query_perform(query_open(s, "UPDATE step SET depth = 9223372036854775807"), &err));
    FILE *out = fopen("/dev/null", "w");
    alarm(120); // ends the program
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
        TEST(a_new_database_is_created_and_reopened),
        TEST(an_empty_file_becomes_a_database),
        TEST(names_with_uri_characters_are_file_names),
        TEST(files_that_are_no_speclab_database_are_refused),
        TEST(changed_views_are_recreated),
        TEST(another_schema_version_is_refused),
        TEST(every_view_begins_with_its_definition),
        TEST(impossible_facts_are_refused),
        TEST(a_read_only_file_is_read),
        TEST(a_database_is_not_created_without_permission),
        TEST(an_experiment_is_run_by_one_process),
        TEST(a_busy_database_is_waited_for_and_then_reported),
        TEST(a_killed_process_leaves_complete_sequences),
        TEST(a_full_disk_is_reported_and_stored_sequences_stay),
        TEST(a_file_size_limit_is_reported_and_stored_sequences_stay),
        TEST(a_damaged_database_does_not_crash),
        TEST(a_run_not_found_by_its_names_is_reported_as_damage),
        TEST(an_impossible_depth_does_not_hang_a_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
