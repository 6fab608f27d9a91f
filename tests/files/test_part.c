// test_part.c - files being written: two writers of one name do not meet, links are not written through, nothing is left behind.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/part.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

static void assert_content(const char *path, const char *expected)
{
    char bytes[64] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, sizeof(bytes) - 1, f), strlen(expected));
    fclose(f);
    assert_string_equal(bytes, expected);
}

static struct part *begun(struct part *p)
{
    assert_ok(p != NULL, err);
    return p;
}

TEST(two_writers_of_one_name_do_not_meet)
{
    char *path = test_path("both");
    struct part *a = begun(part_begin(path, &err)), *b = begun(part_begin(path, &err));
    part_write(a, "first", 5);
    part_write(b, "the second", 10);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_ok(part_end(a, &err), err);
    assert_content(path, "first");
    assert_ok(part_end(b, &err), err);
    assert_content(path, "the second");
    assert_no_partial_files(path);
    free(path);
}

// Whatever an earlier program or another user has left under the names that this process tries.
TEST(a_name_that_is_taken_is_not_written_to)
{
    char *path = test_path("new"), *kept = test_path("kept");
    file_write(kept, "not ours");
    for (size_t i = 0; i < 3; i++) {
        char *name = i == 0 ? xformat("%s.part", path) : xformat("%s.%ld-%zu.part", path, (long)getpid(), i - 1);
        assert_int_equal(symlink(i == 2 ? "/nonexistent/folder" : kept, name), 0);
        free(name);
    }
    assert_ok(part_file(path, "ours", 4, &err), err);
    assert_content(path, "ours");
    assert_content(kept, "not ours");
    struct stat st;
    assert_true(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
    free(path);
    free(kept);
}

TEST(a_link_leads_to_the_file_that_is_replaced)
{
    char *path = test_path("link"), *file = test_path("behind"), *next = test_path("next");
    assert_int_equal(symlink("next", path), 0);
    assert_int_equal(symlink(file, next), 0);
    assert_ok(part_file(path, "before", 6, &err), err); // there is none yet
    assert_content(file, "before");
    free(next);
    assert_ok(part_file(path, "after", 5, &err), err);
    struct stat st;
    assert_true(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    assert_content(file, "after");
    struct part *own = begun(part_begin_own(path, &err)); // a file of the program's own: the link itself is replaced
    part_write(own, "own", 3);
    assert_ok(part_end(own, &err), err);
    assert_true(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
    assert_content(path, "own");
    assert_content(file, "after");
    free(path);
    free(file);
}

TEST(a_device_is_written_in_place)
{
    struct stat before, after;
    assert_int_equal(stat("/dev/null", &before), 0);
    assert_ok(part_file("/dev/null", "nothing", 7, &err), err);
    assert_int_equal(stat("/dev/null", &after), 0);
    assert_true(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
    assert_false(part_file("/dev/full", "nothing", 7, &err));
    assert_string_equal(err.text, "/dev/full: cannot be written: No space left on device");
}

TEST(what_fails_leaves_nothing)
{
    char *path = test_path("large"), *folder = test_path("large/inside");
    file_write(path, "before");
    static const char zeros[1000];
    file_size_limit(500);
    assert_false(part_file(path, zeros, sizeof(zeros), &err));
    file_size_limit(-1);
    assert_content(path, "before");
    assert_null(part_begin(folder, &err)); // in a folder that is a file
    assert_no_partial_files(path);
    free(path);
    free(folder);
}

RUN_TESTS(NULL, test_directory_tear_down)
