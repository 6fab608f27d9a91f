// test_torch.c - PyTorch checkpoints give the tensors that torch.load gives; everything else in them is ignored.
//
// tests/cases/torch has files written by torch.save; damaged files are in tests/formats/test_torch_damaged.c.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/safetensors.h"
#include "formats/shards.h"
#include "tests/formats/torch_archive.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/shards_find.h"
#include "tests/support/small_model.h"

#define FOLDER CASES "/torch"

static struct error err;

static struct shards *opened(const char *path)
{
    struct shards *t = shards_open(path, &err);
    assert_ok(t != NULL, err);
    return t;
}

static struct json *golden(const char *key, struct json **all)
{
    *all = json_read(FOLDER "/golden.json", &err);
    assert_non_null(*all);
    struct json *part = json_get(*all, key);
    assert_true(json_count(part) > 0);
    return part;
}

static void assert_hex(const void *bytes, size_t n, const char *hex)
{
    assert_int_equal(strlen(hex), 2 * n);
    for (size_t i = 0; i < n; i++) {
        char digits[3];
        snprintf(digits, sizeof(digits), "%02x", ((const uint8_t *)bytes)[i]);
        assert_memory_equal(digits, hex + 2 * i, 2);
    }
}

static void assert_tensors(const struct shards *t, const struct json *expected)
{
    size_t i = 0;
    assert_int_equal(shards_count(t), json_count(expected));
    for (void *at = json_first(expected); at != NULL; at = json_next(expected, at), i++) { // sorted, like ours
        const struct safetensor *s = shards_at(t, i);
        const struct json *shape = json_get(json_value(at), "shape");
        assert_string_equal(s->name, json_key(at));
        assert_ptr_equal(shards_find(t, s->name), s);
        assert_string_equal(s->dtype, json_text(json_get(json_value(at), "dtype")));
        assert_int_equal(s->dims, json_count(shape));
        for (int d = 0; d < s->dims; d++)
            assert_int_equal(s->dim[d], json_int(json_at(shape, (size_t)d)));
        assert_hex(s->data, s->bytes, json_text(json_get(json_value(at), "hex")));
    }
    assert_null(shards_at(t, i));
    assert_null(shards_find(t, "there is no such tensor"));
}

static void every_tensor_is_the_one_that_torch_loads(void **state)
{
    struct json *all, *read = golden("read", &all);
    for (void *at = json_first(read); at != NULL; at = json_next(read, at)) {
        char *path = xformat(FOLDER "/%s", json_key(at));
        struct shards *t = opened(path);
        assert_tensors(t, json_value(at));
        print_message("%s: %zu tensors\n", json_key(at), shards_count(t));
        shards_close(t);
        free(path);
    }
    json_free(all);
}

static void anything_but_a_dictionary_of_plain_tensors_is_refused(void **state)
{
    struct json *all, *refused = golden("refused", &all);
    for (void *at = json_first(refused); at != NULL; at = json_next(refused, at)) {
        char *path = xformat(FOLDER "/%s", json_key(at));
        assert_null(shards_open(path, &err));
        assert_error_mentions(&err, path, json_text(json_value(at)));
        free(path);
    }
    json_free(all);
}

static void tensors_that_share_a_storage_share_its_bytes(void **state)
{
    struct shards *t = opened(FOLDER "/shared.pt");
    const uint8_t *all = shards_find(t, "all")->data;
    assert_ptr_equal(shards_find(t, "again")->data, all);
    assert_ptr_equal(shards_find(t, "tail")->data, all + 4 * 12);
    assert_ptr_equal(shards_find(t, "one")->data, all + 4 * 23);
    assert_ptr_not_equal(shards_find(t, "other")->data, all);
    shards_close(t);
}

static void a_folder_is_opened_by_its_index_or_its_file(void **state)
{
    struct shards *t = opened(FOLDER "/sharded");
    assert_int_equal(shards_files(t), 2);
    assert_string_equal(shards_file(t, 1), FOLDER "/sharded/pytorch_model-00002-of-00002.bin");
    assert_int_equal(shards_find(t, "b")->file, 1);
    assert_int_equal(shards_find(t, "c")->file, 0);
    assert_null(shards_find(t, "unlisted"));
    assert_null(shards_file(t, 2));
    shards_close(t);

    char *folder = test_path("single"), *file = xformat("%s/pytorch_model.bin", folder);
    struct text bytes = checkpoint_bytes(FOLDER "/model.pt");
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_null(shards_open(folder, &err));
    assert_error_mentions(&err, folder,
                          "expected model.safetensors, pytorch_model.bin or an index of either, found none");
    file_write_bytes(file, bytes.s, bytes.n);
    t = opened(folder);
    assert_int_equal(shards_count(t), 1);
    assert_string_equal(shards_file(t, 0), file);
    shards_close(t);
    free(bytes.s);
    free(file);
    free(folder);
}

static void a_checkpoint_written_as_safetensors_is_the_same(void **state)
{
    static const char *const files[] = { "module.pt", "dtypes.pt", "shared.pt", "shapes.pt" };
    for (size_t k = 0; k < sizeof(files) / sizeof(*files); k++) {
        char *from = xformat(FOLDER "/%s", files[k]), *to = test_path("converted.safetensors");
        struct shards *t = opened(from);
        assert_true(safetensors_write(to, shards_at(t, 0), shards_count(t), NULL, NULL, NULL, &err));
        struct shards *s = shards_open(to, &err);
        assert_non_null(s);
        assert_int_equal(shards_count(s), shards_count(t));
        for (size_t i = 0; i < shards_count(t); i++) {
            const struct safetensor *a = shards_at(t, i), *b = shards_at(s, i);
            assert_string_equal(a->name, b->name);
            assert_string_equal(a->dtype, b->dtype);
            assert_true(a->dims == b->dims && memcmp(a->dim, b->dim, sizeof(a->dim)) == 0 && a->bytes == b->bytes);
            assert_memory_equal(a->data, b->data, a->bytes);
        }
        shards_close(s);
        shards_close(t);
        free(from);
        free(to);
    }
}

// {"t": 6 numbers in a storage of `elements`}
static struct text pickle_of(int64_t elements, int64_t offset)
{
    struct text p = { 0 };
    text_add(&p, "\x80\x02}", 3);
    pickled_text(&p, "t");
    pickled_tensor(&p, &(struct pickled_tensor){ .elements = elements, .offset = offset, .dims = 2, .dim = { 2, 3 } });
    text_add(&p, "s.", 2);
    return p;
}

static void zip64_is_supported(void **state)
{
    char *path = test_path("zip64.pt");
    struct text p = pickle_of(6, 0);
    for (int zip64 = 0; zip64 < 2; zip64++) {
        struct archive a = archive_of(&p, 24);
        zip64 ? archive_end64(&a) : archive_end(&a);
        file_write_bytes(path, a.bytes.s, a.bytes.n);
        struct shards *t = opened(path);
        assert_int_equal(shards_find(t, "t")->bytes, 24);
        shards_close(t);
        archive_free(&a);
    }
    free(p.s);
    free(path);
}

// Writes a finished archive with a hole of `gap` zero bytes, which take no disk space, inserted at byte `at`.
static void write_sparse(const char *path, const struct archive *a, size_t at, off_t gap)
{
    int f = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(f >= 0);
    assert_int_equal(pwrite(f, a->bytes.s, at, 0), at);
    size_t rest = a->bytes.n - at;
    assert_int_equal(pwrite(f, a->bytes.s + at, rest, (off_t)at + gap), rest);
    assert_int_equal(close(f), 0);
}

static long pages_touched(void)
{
    struct rusage r;
    assert_int_equal(getrusage(RUSAGE_SELF, &r), 0);
    return r.ru_minflt + r.ru_majflt;
}

// A storage of six gigabytes with ZIP64 everywhere; the tensor lies at its end.
static void gigabytes_are_opened_without_being_read(void **state)
{
    enum { OF_STORAGE = 2 }; // index of the entry
    const int64_t gap = (int64_t)6 << 30;
    char *path = test_path("large.pt");
    struct text p = pickle_of(6 + gap / 4, gap / 4);
    struct archive a = archive_of(&p, 24);
    archive_end64(&a);
    size_t extra = 46 + strlen(a.entry[OF_STORAGE].name) + 10; // from a central header to its ZIP64 numbers
    archive_put(&a, a.entry[OF_STORAGE].central + extra, 24 + (uint64_t)gap, 8);
    archive_put(&a, a.entry[OF_STORAGE].central + extra + 8, 24 + (uint64_t)gap, 8);
    for (int i = OF_STORAGE + 1; i < a.n; i++)
        archive_put(&a, a.entry[i].central + 46 + strlen(a.entry[i].name) + 10 + 16, a.entry[i].local + (uint64_t)gap,
                    8);
    archive_put(&a, a.end64 + 48, a.directory + (uint64_t)gap, 8);
    archive_put(&a, a.locator + 8, a.end64 + (uint64_t)gap, 8);
    write_sparse(path, &a, a.entry[OF_STORAGE].data, gap);

    long before = pages_touched();
    struct shards *t = opened(path);
    long touched = pages_touched() - before;
    print_message("%ld pages of %lld were touched\n", touched, (long long)gap / 4096);
    assert_true(touched < 1000);
    const struct safetensor *s = shards_find(t, "t");
    assert_int_equal(s->bytes, 24);
    for (size_t i = 0; i < s->bytes; i++)
        assert_int_equal(((const uint8_t *)s->data)[i], 0);
    shards_close(t);
    archive_free(&a);
    free(p.s);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_the_one_that_torch_loads),
        cmocka_unit_test(anything_but_a_dictionary_of_plain_tensors_is_refused),
        cmocka_unit_test(tensors_that_share_a_storage_share_its_bytes),
        cmocka_unit_test(a_folder_is_opened_by_its_index_or_its_file),
        cmocka_unit_test(a_checkpoint_written_as_safetensors_is_the_same),
        cmocka_unit_test(zip64_is_supported),
        cmocka_unit_test(gigabytes_are_opened_without_being_read),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
