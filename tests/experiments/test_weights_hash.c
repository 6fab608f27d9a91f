// test_weights_hash.c - the hash of a large checkpoint is cached until a file changes.
#include "tests/support/tests.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/memory.h"
#include "models/weights.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

enum { LARGE = 80 << 20 };

// A sparse file: a header, then zeros.
static void write_hollow(const char *path, const char *head, off_t bytes)
{
    const uint64_t n = strlen(head);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0 && write(fd, &n, 8) == 8 && write(fd, head, n) == (ssize_t)n);
    assert_int_equal(ftruncate(fd, 8 + (off_t)n + bytes), 0);
    assert_int_equal(close(fd), 0);
}

#define TENSOR(name, count, from, to) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" count "],\"data_offsets\":[" from "," to "]}"

static void write_large(const char *path)
{
    write_hollow(path, "{" TENSOR("a", "20971520", "0", "83886080") "}", LARGE);
}

static struct hash hash_now(const char *path)
{
    struct error err = { "" };
    struct weights *w = weights_open_files(path, NULL, &err);
    assert_ok(w != NULL, err);
    struct hash h = weights_hash(w);
    weights_close(w);
    return h;
}

// Number of cached hashes; one: the path of one of them.
static int cached_hashes(char *one)
{
    glob_t found;
    char *pattern = test_path("cache/speclab/weights/*");
    const int n = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    if (n > 0)
        snprintf(one, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    free(pattern);
    return n;
}

// Where hashes are cached: `cache` in the test's directory, or nowhere.
static void cache_into(bool writable)
{
    char *cache = test_path(writable ? "cache" : "large.safetensors/none");
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
}

static int make(void **state)
{
    char *path = test_path("large.safetensors");
    write_large(path);
    free(path);
    cache_into(true);
    return 0;
}

// Sets the file's times as if nothing had written to the model for a while.
static void age_file(const char *path)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += 100;
    const struct timespec times[2] = { now, now };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

TEST(a_hash_is_cached_until_the_file_changes)
{
    char *path = test_path("large.safetensors"), place[PATH_MAX];
    static const char fake[] = "0123456789abcdef0123456789abcdef";
    struct hash fake_hash;
    assert_true(hash_read(fake, 32, &fake_hash));
    const struct hash first = hash_now(path);
    assert_true(hash_equal(hash_now(path), first));
    assert_int_equal(cached_hashes(place), 1);
    file_write_bytes(place, fake, 32);
    age_file(place); // the cached hash is used
    assert_true(hash_equal(hash_now(path), fake_hash));
    file_write_bytes(place, fake, 31); // unless it is not a hash
    age_file(place);
    assert_true(hash_equal(hash_now(path), first));
    assert_true(hash_equal(hash_now(path), first));

    // One changed byte, with the old time restored: another hash.
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    file_flip(path, 5000003, 1);
    const struct timespec times[2] = { st.st_atim, st.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    const struct hash second = hash_now(path);
    assert_false(hash_equal(first, second));
    assert_int_equal(cached_hashes(place), 2);
    file_flip(path, 5000003, 1);
    assert_true(hash_equal(hash_now(path), first));

    cache_into(false); // Without a writable cache nothing is cached.
    assert_true(hash_equal(hash_now(path), first));
    free(path);
}

// A file's times do not change for a second write within one tick, or through a mapping whose page was dirty already.
TEST(a_hash_of_a_file_just_written_is_not_cached)
{
    char *path = test_path("large.safetensors");
    int fd = open(path, O_RDWR);
    unsigned char *at = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    at[5000003] = 1;
    const struct hash first = hash_now(path);
    at[5000003] = 2;
    assert_false(hash_equal(hash_now(path), first));
    munmap(at, LARGE);
    close(fd);
    free(path);
}

// Two shards have a tensor of the same name and differ in one byte of it: the index selects one of them.
TEST(a_hash_is_of_the_tensors_that_the_index_names)
{
    static const char index[] =
        "{\"weight_map\":{\"a\":\"1.safetensors\",\"x\":\"%d.safetensors\",\"y\":\"2.safetensors\"}}";
    char *folder = test_path("sharded"), *one = test_path("sharded/1.safetensors"),
         *two = test_path("sharded/2.safetensors"), *map = test_path("sharded/model.safetensors.index.json"),
         place[PATH_MAX];
    struct hash of[2];
    while (cached_hashes(place) > 0)
        assert_int_equal(unlink(place), 0);
    assert_int_equal(mkdir(folder, 0777), 0);
    write_hollow(one, "{" TENSOR("a", "1", "0", "4") "," TENSOR("x", "20971520", "4", "83886084") "}", LARGE + 4);
    write_hollow(two, "{" TENSOR("x", "20971520", "0", "83886080") "," TENSOR("y", "1", "83886080", "83886084") "}",
                 LARGE + 4);
    file_flip(two, 5000003, 1);
    for (int i = 0; i < 2; i++) {
        char *text = xformat(index, i + 1);
        file_write_bytes(map, text, strlen(text));
        of[i] = hash_now(folder);
        free(text);
        assert_int_equal(cached_hashes(place), i + 1);
        age_file(place);
    }
    assert_false(hash_equal(of[0], of[1]));
    free(folder);
    free(one);
    free(two);
    free(map);
}

// A second call does not read gigabytes again, whether the hash can be cached or not.
TEST(an_opened_file_is_hashed_once)
{
    struct error err = { "" };
    char *path = test_path("large.safetensors");
    cache_into(false);
    struct weights *w = weights_open_files(path, NULL, &err);
    assert_non_null(w);
    const struct hash first = weights_hash(w);
    file_flip(path, 5000003, 1);
    assert_true(hash_equal(weights_hash(w), first));
    weights_close(w);
    assert_false(hash_equal(hash_now(path), first));
    free(path);
}

RUN_EACH_TEST(make, test_directory_tear_down)
