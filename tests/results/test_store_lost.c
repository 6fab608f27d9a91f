// test_store_lost.c - a database that is removed, renamed or replaced while it is open: the next transaction fails, and what was stored is saved.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

static struct facts {
    char *folder, *path, *log;
    struct store *s;
    double sequences;
} open_facts(void)
{
    struct error err;
    struct facts f = { test_path("folder"), test_path("folder/x.db"), test_path("folder/x.db-wal"), NULL, 0 };
    assert_int_equal(mkdir(f.folder, 0777), 0);
    f.s = store_open(f.path, &err);
    assert_non_null(f.s);
    struct sample_facts *m = sample_facts_create(5, 2, 1, 1);
    assert_ok(sample_facts_store(m, f.s, &err), err);
    sample_facts_free(m);
    f.sequences = sample_facts_query(f.s, "SELECT count(*) FROM sequence");
    return f;
}

static void free_facts(struct facts *f)
{
    store_close(f->s);
    free(f->folder);
    free(f->path);
    free(f->log);
}

// The transaction, and every later one, fails with the sentence; the saved file has all that was stored, this transaction included.
static void expect_lost(struct facts *f, const char *name, const char *change, const char *saved)
{
    struct error err = { "" };
    int64_t pair;
    char *sentence = xformat("%s: %s while it was being written to; what was stored is in %s", name, change, saved);
    for (int i = 0; i < 3; i++) {
        assert_false(store_new_pair(f->s, "later", &pair, &err));
        assert_string_equal(err.text, sentence);
    }
    struct store *s = store_open_existing(saved, &err);
    assert_non_null(s);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM sequence"), f->sequences);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM pair WHERE experiment = 'later'"), 1);
    assert_int_equal(sample_facts_query(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
                     0);
    store_close(s);
    free(sentence);
}

TEST(a_database_in_its_place_is_written_to)
{
    struct error err;
    int64_t pair;
    struct facts f = open_facts();
    char *other = xformat("%s-link", f.path);
    assert_int_equal(symlink(f.path, other), 0);
    store_close(f.s);
    f.s = store_open(other, &err); // by a link: the log is beside the file
    assert_non_null(f.s);
    assert_ok(store_new_pair(f.s, "x", &pair, &err), err);
    struct store *second = store_open(f.path, &err); // another connection comes and goes
    assert_ok(store_new_pair(second, "x", &pair, &err), err);
    store_close(second);
    assert_ok(store_new_pair(f.s, "x", &pair, &err), err);
    free(other);
    free_facts(&f);
}

TEST(a_removed_database_is_saved_under_a_free_name)
{
    struct facts f = open_facts();
    char *taken = xformat("%s.saved", f.path), *saved = xformat("%s.saved-2", f.path);
    file_write(taken, "somebody's");
    assert_int_equal(unlink(f.path), 0);
    expect_lost(&f, f.path, "was removed or renamed", saved);
    store_close(f.s);
    f.s = NULL;
    assert_int_not_equal(access(f.log, F_OK), 0); // it would be taken for the log of a new file
    free(taken);
    free(saved);
    free_facts(&f);
}

TEST(a_renamed_database_is_saved_and_complete)
{
    struct error err;
    struct facts f = open_facts();
    char *renamed = test_path("folder/y.db"), *saved = xformat("%s.saved", f.path);
    assert_int_equal(rename(f.path, renamed), 0);
    expect_lost(&f, f.path, "was removed or renamed", saved);
    store_close(f.s);
    f.s = store_open_existing(renamed, &err);
    assert_non_null(f.s);
    assert_int_equal(sample_facts_query(f.s, "SELECT count(*) FROM sequence"), f.sequences);
    free(renamed);
    free(saved);
    free_facts(&f);
}

TEST(a_database_whose_folder_is_renamed_is_saved_in_the_current_folder)
{
    struct facts f = open_facts();
    char *renamed = test_path("renamed"), before[4096];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(rename(f.folder, renamed), 0);
    assert_int_equal(chdir(test_directory()), 0);
    expect_lost(&f, f.path, "was removed or renamed", "x.db.saved");
    assert_int_equal(chdir(before), 0);
    free(renamed);
    free_facts(&f);
}

TEST(a_file_moved_over_a_database_stays_as_it_is)
{
    struct error err;
    struct facts f = open_facts();
    char *other = test_path("other.db"), *saved = xformat("%s.saved", f.path);
    struct store *s = store_open(other, &err);
    sample_facts_query(s, "INSERT INTO pair (experiment, started) VALUES ('other', '')");
    store_close(s);
    assert_int_equal(rename(other, f.path), 0);
    expect_lost(&f, f.path, "was replaced by another file", saved);
    store_close(f.s);
    f.s = store_open_existing(f.path, &err); // our log must not be applied to it
    assert_non_null(f.s);
    assert_int_equal(sample_facts_query(f.s, "SELECT count(*) FROM pair"), 1);
    assert_int_equal(sample_facts_query(f.s, "SELECT count(*) FROM sequence"), 0);
    free(other);
    free(saved);
    free_facts(&f);
}

TEST(a_removed_or_replaced_log_is_noticed)
{
    struct facts f = open_facts();
    char *saved = xformat("%s.saved", f.path);
    assert_int_equal(unlink(f.log), 0);
    expect_lost(&f, f.log, "was removed or renamed", saved);
    file_write(f.log, "another's");
    store_close(f.s);
    f.s = NULL;
    assert_int_equal(access(f.log, F_OK), 0); // not removed with ours
    free(saved);
    free_facts(&f);
}

RUN_EACH_TEST(NULL, test_directory_tear_down)
