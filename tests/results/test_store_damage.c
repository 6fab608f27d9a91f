// test_store_damage.c - killed processes, full disks and damaged files: what is stored stays, and all else is reported.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "results/query.h"
#include "results/report.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

static void check_integrity(const char *after)
{
    struct store *s = sample_store(NULL);
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
    struct store *s = store_open(sample_store_path(), &err);
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

TEST(a_killed_process_leaves_complete_sequences)
{
    double sequences = 0;
    long patience = 1; // on a busy machine
    srand(1);
    for (unsigned round = 0; round < 24; round++) {
        if (round == 12)
            unlink(sample_store_path()); // from here on also while the database is being created
        pid_t child = fork();
        if (child == 0)
            run_forever(round);
        long wait_us = round < 12 ? patience * (2000 + rand() % 150000) : rand() % 12000;
        nanosleep(&(struct timespec){ .tv_sec = wait_us / 1000000, .tv_nsec = 1000 * (wait_us % 1000000) }, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        check_integrity("a kill");
        struct store *s = sample_store(NULL);
        double now = sample_facts_query(s, "SELECT count(*) FROM sequence");
        assert_true(now >= sequences || round == 12);
        if (now == sequences && patience < 64)
            patience *= 2;
        sequences = now;
        store_close(s);
        if (round == 11)
            assert_true(sequences > 4);
        if (round >= 12) {
            unlink(sample_store_path());
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

TEST(a_full_disk_is_reported_and_stored_sequences_stay)
{
    struct error err;
    struct store *s = sample_store(NULL);
    char *pages = xformat("PRAGMA max_page_count = %.0f", sample_facts_query(s, "PRAGMA page_count") + 40);
    sample_facts_query(s, pages);
    free(pages);
    int stored = store_until_full(s, &err);
    assert_non_null(strstr(err.text, "no space left on the disk"));
    assert_non_null(strstr(err.text, sample_store_path()));
    assert_true(stored > 5);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence"), stored);
    store_close(s);
    check_integrity("a full disk");
}

TEST(a_file_size_limit_is_reported_and_stored_sequences_stay)
{
    struct error err;
    struct store *s = sample_store(NULL);
    char *log = xformat("%s-wal", sample_store_path()); // where a new database is, views and all
    struct stat st;
    assert_int_equal(stat(log, &st), 0);
    file_size_limit(st.st_size + 300000);
    free(log);
    int stored = store_until_full(s, &err);
    file_size_limit(-1);
    assert_non_null(strstr(err.text, "could not be read or written: ")); // SQLite does not always keep errno
    assert_non_null(strstr(err.text, sample_store_path()));
    assert_true(stored > 5);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence"), stored);
    int64_t pair;
    assert_true(store_new_pair(s, "synthetic", &pair, &err)); // works again without the limit
    store_close(s);
    check_integrity("a file size limit");
}

// A damaged file is refused or reported on; every failure has a message.
TEST(a_damaged_database_does_not_crash)
{
    size_t n;
    struct store *s = sample_store_small();
    store_close(s);
    struct error problem;
    char *whole = file_text(sample_store_path(), &n, &problem), *damaged = xmalloc(n);
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
        file_write_bytes(sample_store_path(), damaged, length);
        s = store_open(sample_store_path(), &err);
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
        char *side_files[] = { xformat("%s-wal", sample_store_path()), xformat("%s-shm", sample_store_path()) };
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
TEST(a_run_not_found_by_its_names_is_reported_as_damage)
{
    struct error err = { "" };
    struct store *s = sample_store_small();
    assert_true(query_perform(query_open(s, "UPDATE run SET peers = peers || char(0) || 'x'"), &err));
    FILE *out = fopen("/dev/null", "w");
    for (int format = 0; format < REPORT_FORMATS; format++) {
        err.text[0] = '\0';
        assert_false(report_write(s, &(struct report_options){ .format = (enum report_format)format }, out, &err));
        assert_non_null(strstr(err.text, "the database is damaged"));
        assert_non_null(strstr(err.text, sample_store_path()));
    }
    fclose(out);
    store_close(s);
}

// The view `acceptance` counts depths up to the largest: an impossible one must not make it run forever.
TEST(an_impossible_depth_does_not_hang_a_report)
{
    struct error err = { "" };
    struct store *s = sample_store_small();
    assert_true(query_perform(query_open(s, "PRAGMA ignore_check_constraints = 1"), &err));
    assert_true(query_perform(query_open(s, "UPDATE step SET depth = 9223372036854775807"), &err));
    FILE *out = fopen("/dev/null", "w");
    alarm(120); // ends the program
    for (int format = 0; format < REPORT_FORMATS; format++)
        report_write(s, &(struct report_options){ .format = (enum report_format)format }, out, &err);
    alarm(0);
    fclose(out);
    store_close(s);
}

RUN_EACH_TEST(NULL, test_directory_tear_down)
