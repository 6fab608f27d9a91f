// test_zip.c - an archive of torch.save with one fault is refused with an error that names the file and the fault; so is an
// index of several files.
//
// The faults are introduced into a valid archive. Pickles with faults are in tests/formats/test_pickle.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/shards.h"
#include "formats/zip.h"
#include "tests/formats/torch_archive.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/shards_find.h"
#include "tests/support/small_model.h"

static struct error err;
static struct archive a; // being damaged

enum { PICKLE, ORDER, STORAGE, VERSION }; // indices of its entries

static struct text pickle(void)
{
    struct text p = { 0 };
    text_add(&p, "\x80\x02}", 3);
    pickled_text(&p, "t");
    pickled_tensor(&p, &(struct pickled_tensor){ .elements = 6, .dims = 2, .dim = { 2, 3 } });
    text_add(&p, "s.", 2);
    return p;
}

static void begin(void)
{
    struct text p = pickle();
    a = archive_of(&p, 24);
    free(p.s);
}

static void central(int entry, size_t at, uint64_t v, size_t n) // a field of an entry in the directory
{
    archive_put(&a, a.entry[entry].central + at, v, n);
}

static void local(int entry, size_t at, uint64_t v, size_t n) // the same in its local header
{
    archive_put(&a, a.entry[entry].local + at, v, n);
}

static void both(int entry, size_t in_local, size_t in_central, uint64_t v, size_t n)
{
    local(entry, in_local, v, n);
    central(entry, in_central, v, n);
}

// Overwrites the beginning of the version's name, which has 15 bytes, in both headers.
static void rename_version(const char *name, size_t n)
{
    memcpy(a.bytes.s + a.entry[VERSION].central + 46, name, n);
    memcpy(a.bytes.s + a.entry[VERSION].local + 30, name, n);
}

static void with(const char *name, const void *bytes, size_t n) // an additional entry
{
    archive_add(&a, name, bytes, n);
    archive_end(&a);
}

static void insert(size_t at, const char *s, size_t n)
{
    text_add(&a.bytes, s, n);
    memmove(a.bytes.s + at + n, a.bytes.s + at, a.bytes.n - n - at);
    memcpy(a.bytes.s + at, s, n);
}

// Replaces an entry's bytes and corrects its CRC-32.
static void replace(int entry, const char *s)
{
    size_t n = strlen(s);
    uint8_t *at = (uint8_t *)a.bytes.s + a.entry[entry].data;
    assert_true(n <= a.entry[entry].n);
    memcpy(at, s, n);
    central(entry, 16, zip_crc(at, n), 4);
    central(entry, 20, n, 4);
    central(entry, 24, n, 4);
}

// clang-format off
static void added_to(void) { archive_end(&a); text_add(&a.bytes, "\n", 1); }
static void padded(void) { archive_end(&a); text_add(&a.bytes, "\0\0\0\0", 4); }
static void half_a_comment(void) { archive_end(&a); archive_put(&a, a.end + 20, 1, 2); }
static void commented(void) { archive_end(&a); archive_put(&a, a.end + 20, 1, 2); text_add(&a.bytes, "x", 1); }
static void headers_alone(void) { a.bytes.n = 10; }
static void second_disk(void) { archive_end(&a); archive_put(&a, a.end + 4, 1, 2); }
static void directory_on_disk_1(void) { archive_end(&a); archive_put(&a, a.end + 6, 1, 2); }
static void other_disks(void) { archive_end(&a); archive_put(&a, a.end + 8, 3, 2); }
static void no_entries(void) { archive_end(&a); archive_put(&a, a.end + 8, 0, 4); }
static void nearly_none(void) { archive_end(&a); archive_put(&a, a.end + 8, 0x00010001, 4); }
static void many_entries(void) { archive_end(&a); archive_put(&a, a.end + 8, 0xfffefffe, 4); }
static void directory_short(void) { archive_end(&a); archive_put(&a, a.end + 12, 40, 4); }
static void directory_far(void) { archive_end(&a); archive_put(&a, a.end + 16, 0xfffffff0, 4); }
static void hidden_bytes(void) { archive_end(&a); archive_put(&a, a.end + 16, a.directory - 1, 4); }
static void wants_zip64(void) { archive_end(&a); archive_put(&a, a.end + 16, 0xffffffff, 4); }
static void locator_elsewhere(void) { archive_end64(&a); archive_put(&a, a.locator + 8, a.end64 + 1, 8); }
static void locator_beyond(void) { archive_end64(&a); archive_put(&a, a.locator + 8, UINT64_MAX, 8); }
static void locator_on_disk_1(void) { archive_end64(&a); archive_put(&a, a.locator + 4, 1, 4); }
static void end64_unsigned(void) { archive_end64(&a); archive_put(&a, a.end64 + 3, 7, 1); }
static void end64_on_disk_1(void) { archive_end64(&a); archive_put(&a, a.end64 + 16, 1, 4); }
static void end64_for_disk_1(void) { archive_end64(&a); archive_put(&a, a.end64 + 20, 1, 4); }
static void places_disagree(void) { archive_end64(&a); archive_put(&a, a.end + 16, a.directory + 1, 4); }
static void sizes_disagree(void) { archive_end64(&a); archive_put(&a, a.end + 12, 100, 4); }
static void around_the_end(void) { archive_end64(&a); archive_put(&a, a.end64 + 48, a.end64 + 64, 8);
                                   archive_put(&a, a.end64 + 40, (uint64_t)-64, 8); }
static void many_entries64(void) { archive_end64(&a); archive_put(&a, a.end64 + 24, 1 << 21, 8);
                                   archive_put(&a, a.end64 + 32, 1 << 21, 8); }
static void locator_disks(void) { archive_end64(&a); archive_put(&a, a.locator + 16, 2, 4); }
static void end64_long(void) { archive_end64(&a); archive_put(&a, a.end64 + 4, UINT64_MAX, 8); }
static void end64_disks(void) { archive_end64(&a); archive_put(&a, a.end64 + 24, 3, 8); }
static void ends_disagree(void) { archive_end64(&a); archive_put(&a, a.end + 8, 0x00030003, 4); }
static void entries_2_63(void) { archive_end64(&a); archive_put(&a, a.end64 + 24, 1ULL << 63, 8);
                                 archive_put(&a, a.end64 + 32, 1ULL << 63, 8); }
static void directory_2_64(void) { archive_end64(&a); archive_put(&a, a.end64 + 48, UINT64_MAX - 10, 8); }
static void not_an_entry(void) { archive_end(&a); central(ORDER, 0, 0, 4); }
static void endless_name(void) { archive_end(&a); central(VERSION, 28, 0xffff, 2); }
static void endless_extra(void) { archive_end(&a); central(VERSION, 30, 0xffff, 2); }
static void endless_comment(void) { archive_end(&a); central(VERSION, 32, 0xffff, 2); }
static void half_an_entry(void) { with("archive/x", "x", 1); insert(a.end, "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 18);
                                  archive_put(&a, a.end + 18 + 8, 0x00060006, 4);
                                  archive_put(&a, a.end + 18 + 12, a.end + 18 - a.directory, 4); }
static void encrypted(void) { archive_end(&a); both(STORAGE, 6, 8, 0x0809, 2); }
static void masked(void) { archive_end(&a); both(STORAGE, 6, 8, 0x2808, 2); }
static void deflated(void) { archive_end(&a); both(STORAGE, 8, 10, 8, 2); }
static void patched(void) { archive_end(&a); both(STORAGE, 6, 8, 0x0828, 2); }
static void packed_with_12(void) { archive_end(&a); both(STORAGE, 8, 10, 12, 2); }
static void on_disk_1(void) { archive_end(&a); central(STORAGE, 34, 1, 2); }
static void absolute(void) { archive_end(&a); rename_version("/", 1); }
static void upwards(void) { archive_end(&a); rename_version("../", 3); }
static void up_within(void) { archive_end(&a); rename_version("a/../", 5); }
static void up_at_the_end(void) { archive_end(&a); rename_version("archive/abcd/..", 15); }
static void backslash(void) { archive_end(&a); rename_version("archive\\", 8); }
static void nul(void) { archive_end(&a); rename_version("archive/version\0" + 15, 1); }
static void no_name(void) { archive_end(&a); central(ORDER, 28, 0, 2); }
static void unequal_sizes(void) { archive_end(&a); central(STORAGE, 24, 25, 4); }
static void longer_than_the_file(void) { archive_end(&a); central(STORAGE, 20, 1 << 20, 4);
                                         central(STORAGE, 24, 1 << 20, 4); }
static void size_of_zip64(void) { archive_end(&a); central(STORAGE, 24, 0xffffffff, 4); }
static void size_2_64(void) { archive_end64(&a); central(STORAGE, 46 + 14 + 10, UINT64_MAX, 8);
                              central(STORAGE, 46 + 14 + 18, UINT64_MAX, 8); }
static void place_2_64(void) { archive_end64(&a); central(STORAGE, 46 + 14 + 26, UINT64_MAX, 8); }
static void short_zip64(void) { archive_end64(&a); central(STORAGE, 46 + 14 + 8, 16, 2); }
static void other_fields(void) { archive_end64(&a); central(STORAGE, 46 + 14 + 6, 2, 2); }
static void field_beyond(void) { archive_end64(&a); central(STORAGE, 46 + 14 + 2, 0xffff, 2); }
static void field_cut(void) { archive_end64(&a); central(STORAGE, 30, 34 - 8, 2); central(STORAGE, 32, 8, 2); }
static void at_the_directory(void) { with("archive/x", "PK\3\4", 4); central(STORAGE, 42, a.directory - 20, 4); }
static void in_the_directory(void) { archive_end(&a); central(STORAGE, 42, a.directory + 5, 4); }
static void no_header(void) { archive_end(&a); central(STORAGE, 42, a.entry[STORAGE].local + 1, 4); }
static void other_name(void) { archive_end(&a); local(STORAGE, 30, 'A', 1); }
static void other_length(void) { archive_end(&a); local(STORAGE, 26, 13, 2); }
static void other_flags(void) { archive_end(&a); local(STORAGE, 6, 0x0800, 2); }
static void other_method(void) { archive_end(&a); local(STORAGE, 8, 8, 2); }
static void other_size(void) { archive_end(&a); local(STORAGE, 18, 23, 4); }
static void other_full_size(void) { archive_end(&a); local(STORAGE, 22, 25, 4); }
static void other_crc(void) { archive_end(&a); local(STORAGE, 14, 1, 4); }
static void open_size(void) { archive_end(&a); both(STORAGE, 6, 8, 0x0800, 2); }
static void local_zip64(void) { archive_end(&a); local(STORAGE, 18, 0xffffffff, 4); }
static void same_header(void) { archive_end(&a); central(ORDER, 42, a.entry[PICKLE].local, 4);
                                central(ORDER, 28, 16, 2); memcpy(a.bytes.s + a.entry[ORDER].central + 46,
                                                                  "archive/data.pkl", 16);
                                central(ORDER, 20, 1, 4); central(ORDER, 24, 1, 4); central(ORDER, 30, 1, 2); }
static void inside_another(void) { uint8_t header[64]; memcpy(header, a.bytes.s + a.entry[STORAGE].local, 64);
                                   header[28] = header[29] = 0; with("archive/data/1", header, 64);
                                   central(STORAGE, 42, a.entry[4].data, 4); central(STORAGE, 20, 8, 4);
                                   central(STORAGE, 24, 8, 4); }
static void twice(void) { with("archive/version", "3", 1); }
static void crc_of_pickle(void) { archive_end(&a); central(PICKLE, 16, 1, 4); }
static void crc_of_version(void) { archive_end(&a); central(VERSION, 16, 1, 4); }
static void crc_of_order(void) { archive_end(&a); central(ORDER, 16, 1, 4); }
static void damaged_pickle(void) { archive_end(&a); a.bytes.s[a.entry[PICKLE].data + 9] ^= 1; }
static void big_endian(void) { archive_end(&a); replace(ORDER, "big"); }
static void native_endian(void) { archive_end(&a); replace(ORDER, "native"); }
static void no_endian(void) { archive_end(&a); replace(ORDER, ""); }
static void version_0(void) { archive_end(&a); replace(VERSION, "0\n"); }
static void version_11(void) { archive_end(&a); replace(VERSION, "11"); }
static void version_x(void) { archive_end(&a); replace(VERSION, "x\n"); }
static void long_version(void) { char s[65]; memset(s, '1', sizeof(s)); a.entry[VERSION].name[14] = 'X';
                                 local(VERSION, 30 + 14, 'X', 1); with("archive/version", s, sizeof(s)); }
static void no_version(void) { archive_end(&a); rename_version("archive/versioX", 15); }
static void no_pickle(void) { archive_end(&a); local(PICKLE, 30 + 15, 'X', 1); central(PICKLE, 46 + 15, 'X', 1); }
static void program(void) { with("archive/constants.pkl", "x", 1); }
// clang-format on

static const struct {
    void (*make)(void);
    const char *words;
} faults[] = {
    { added_to, "expected a ZIP archive's end record in the last 22 bytes" },
    { padded, "expected a ZIP archive's end record in the last 22 bytes" },
    { half_a_comment, "expected a ZIP archive's end record in the last 22 bytes" },
    { commented, "expected a ZIP archive's end record in the last 22 bytes" },
    { headers_alone, "expected a ZIP archive's end record in the last 22 bytes" },
    { second_disk, "expected a ZIP archive in one file, found one that was split" },
    { directory_on_disk_1, "expected a ZIP archive in one file, found one that was split" },
    { other_disks, "expected a ZIP archive in one file, found one that was split" },
    { no_entries, "the ZIP archive is empty" },
    { nearly_none, "bytes more than its entries" },
    { many_entries, "bytes cannot have 65534 entries" },
    { directory_short, "expected the ZIP directory to end at byte" },
    { directory_far, "expected the ZIP directory to end at byte" },
    { hidden_bytes, "expected the ZIP directory to end at byte" },
    { wants_zip64, "no ZIP64 locator precedes it" },
    { locator_elsewhere, "expected its ZIP64 end record at byte" },
    { locator_beyond, "expected its ZIP64 end record at byte 18446744073709551615" },
    { locator_on_disk_1, "expected a ZIP archive in one file, found one that was split" },
    { end64_unsigned, "expected its ZIP64 end record at byte" },
    { end64_on_disk_1, "expected a ZIP archive in one file, found one that was split" },
    { end64_for_disk_1, "expected a ZIP archive in one file, found one that was split" },
    { places_disagree, "its ZIP end record and its ZIP64 end record disagree" },
    { sizes_disagree, "its ZIP end record and its ZIP64 end record disagree" },
    { around_the_end, "found 18446744073709551552 bytes from byte" },
    { many_entries64, "expected a ZIP archive of at most 1048576 entries, found 2097152" },
    { locator_disks, "expected a ZIP archive in one file, found one that was split" },
    { end64_long, "expected its ZIP64 end record at byte" },
    { end64_disks, "expected a ZIP archive in one file, found one that was split" },
    { ends_disagree, "its ZIP end record and its ZIP64 end record disagree" },
    { entries_2_63, "at most 1048576 entries, found 9223372036854775808" },
    { directory_2_64, "bytes from byte 18446744073709551605 on" },
    { not_an_entry, "entry 1 of the ZIP directory is not where it should begin" },
    { endless_name, "entry 3 of the ZIP directory does not end within it" },
    { endless_extra, "entry 3 of the ZIP directory does not end within it" },
    { endless_comment, "entry 3 of the ZIP directory does not end within it" },
    { half_an_entry, "entry 5 of the ZIP directory is not where it should begin" },
    { encrypted, "ZIP entry archive/data/0: it is encrypted" },
    { masked, "ZIP entry archive/data/0: it is encrypted" },
    { deflated, "ZIP entry archive/data/0: it is compressed (deflated), and torch.save stores" },
    { patched, "ZIP entry archive/data/0: it is compressed with a method" },
    { packed_with_12, "ZIP entry archive/data/0: it is compressed with a method" },
    { on_disk_1, "ZIP entry archive/data/0: it lies in another file of a split archive" },
    { absolute, "ZIP entry /rchive/version: expected the name of a file inside the archive" },
    { upwards, "ZIP entry ../hive/version: expected the name of a file inside the archive" },
    { up_within, "ZIP entry a/../ve/version: expected the name of a file inside the archive" },
    { up_at_the_end, "ZIP entry archive/abcd/..: expected the name of a file inside the archive" },
    { backslash, "ZIP entry archive\\version: expected the name of a file inside the archive" },
    { nul, "ZIP entry ?rchive/version: expected the name of a file inside the archive" },
    { no_name, "expected the name of a file inside the archive" },
    { unequal_sizes, "ZIP entry archive/data/0: it is stored, but has 25 bytes in 24" },
    { longer_than_the_file, "ZIP entry archive/data/0: it has 1048576 bytes, and there are" },
    { size_of_zip64, "ZIP entry archive/data/0: its ZIP64 fields are missing" },
    { size_2_64, "ZIP entry archive/data/0: it has 18446744073709551615 bytes, and there are" },
    { place_2_64, "expected its local header at byte 18446744073709551615" },
    { short_zip64, "ZIP entry archive/data/0: its ZIP64 fields are missing" },
    { other_fields, "ZIP entry archive/data/0: its ZIP64 fields are missing" },
    { field_beyond, "ZIP entry archive/data/0: its ZIP64 fields are missing" },
    { field_cut, "ZIP entry archive/data/0: its ZIP64 fields are missing" },
    { at_the_directory, "ZIP entry archive/data/0: expected its local header at byte" },
    { in_the_directory, "ZIP entry archive/data/0: expected its local header at byte" },
    { no_header, "ZIP entry archive/data/0: expected its local header at byte" },
    { other_name, "has another name" },
    { other_length, "has another name" },
    { other_flags, "and the directory disagree" },
    { other_method, "and the directory disagree" },
    { other_size, "and the directory disagree" },
    { other_full_size, "and the directory disagree" },
    { other_crc, "and the directory disagree" },
    { open_size, "and the directory disagree" },
    { local_zip64, "and the directory disagree" },
    { same_header, "ZIP entries archive/data.pkl and archive/data.pkl overlap" },
    { inside_another, "ZIP entries archive/data/1 and archive/data/0 overlap" },
    { twice, "two ZIP entries are named archive/version" },
    { crc_of_pickle, "ZIP entry archive/data.pkl is damaged: expected the CRC-32 00000001, found" },
    { crc_of_version, "ZIP entry archive/version is damaged" },
    { crc_of_order, "ZIP entry archive/byteorder is damaged" },
    { damaged_pickle, "ZIP entry archive/data.pkl is damaged" },
    { big_endian, "expected numbers in little-endian order, found byteorder \"big\"" },
    { native_endian, "found byteorder \"native\"" },
    { no_endian, "expected numbers in little-endian order, found byteorder \"\"" },
    { version_0, "expected version 1 to 10 of torch.save's format, found \"0\"" },
    { version_11, "expected version 1 to 10 of torch.save's format, found \"11\"" },
    { version_x, "expected version 1 to 10 of torch.save's format, found \"x\"" },
    { long_version, "archive/version: expected a word, found 65 bytes" },
    { no_version, "found no entry \"version\"" },
    { no_pickle, "found no data.pkl in its folder archive" },
    { program, "found one of torch.jit.save, which is a program" },
};

static void an_archive_with_one_fault_is_refused(void **state)
{
    char *path = test_path("fault.pt");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        begin();
        faults[i].make();
        file_write_bytes(path, a.bytes.s, a.bytes.n);
        assert_null(shards_open(path, &err));
        assert_error_mentions(&err, path, faults[i].words);
        archive_free(&a);
    }
    free(path);
}

// clang-format off
static void valid(void) { archive_end(&a); }
static void valid64(void) { archive_end64(&a); }
static void crc_of_storage(void) { archive_end(&a); central(STORAGE, 16, 1, 4); }
static void sizes_before(void) { archive_end(&a); both(STORAGE, 6, 8, 0x0800, 2);
                                 local(STORAGE, 14, zip_crc((uint8_t[24]){ 0 }, 24), 4);
                                 local(STORAGE, 18, 24, 4); local(STORAGE, 22, 24, 4); }
static void dots(void) { with("archive/..a/b../...", "x", 1); }
static void folders(void) { with("archive/folder/", "", 0); }
// Without byteorder, and with the version at its former place.
static void older(void) { local(ORDER, 30 + 16, 'X', 1); a.entry[ORDER].name[16] = 'X'; local(VERSION, 30 + 14, 'X', 1);
                          a.entry[VERSION].name[14] = 'X'; with("archive/.data/version", "2\n", 2); }
// clang-format on

static void an_unusual_but_valid_archive_is_read(void **state)
{
    static void (*const make[])(void) = { valid, valid64, crc_of_storage, sizes_before, dots, folders, older };
    char *path = test_path("unusual.pt");
    for (size_t i = 0; i < sizeof(make) / sizeof(*make); i++) {
        begin();
        make[i]();
        file_write_bytes(path, a.bytes.s, a.bytes.n);
        struct shards *t = shards_open(path, &err);
        if (t == NULL)
            fail_msg("number %zu: %s", i, err.text);
        assert_int_equal(shards_find(t, "t")->bytes, 24);
        shards_close(t);
        archive_free(&a);
    }
    free(path);
}

static void other_formats_are_named(void **state)
{
    static const char legacy[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    char tar[512] = "sys_info", *path = test_path("other.bin");
    memcpy(tar + 257, "ustar", 5);
    const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } files[] = {
        { legacy, sizeof(legacy) - 1, "found the format before it; load it with PyTorch where it is trusted" },
        { legacy, 14, "found a bare pickle; load it with PyTorch" },
        { "\x80\x04N.", 4, "found a bare pickle" },
        { tar, sizeof(tar), "found a tar archive, as its first versions wrote; load it with PyTorch" },
        { "GGUF\3\0\0\0", 8, "found a file that begins with \"GGUF????\"" },
        { "version https://git-lfs.github.com/spec/v1\n", 43, "found a file that begins with \"version \"" },
        { "P", 1, "found a file that begins with \"P\"" },
        { "PK\3\4", 4, "expected a ZIP archive's end record" },
        { "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, "found a file that begins with" },
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        file_write_bytes(path, files[i].bytes, files[i].n);
        assert_null(shards_open(path, &err));
        assert_error_mentions(&err, path, files[i].words);
    }
    file_write_bytes(path, "", 0);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "the file is empty");
    assert_null(shards_open("/nonexistent.bin", &err));
    assert_error_mentions(&err, "/nonexistent.bin", "No such file");
    a = (struct archive){ 0 };
    archive_add(&a, "data.pkl", "x", 1);
    archive_end(&a);
    file_write_bytes(path, a.bytes.s, a.bytes.n);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "all of it in a folder, found data.pkl outside");
    archive_free(&a);
    free(path);
}

static void an_index_with_one_fault_is_refused(void **state)
{
#define MAP(members) "{\"weight_map\":{" members "}}"
    static const struct {
        const char *index, *words;
    } wrong[] = {
        { "{", "not valid JSON" },
        { "{}", "expected an object \"weight_map\" with the names of tensors" },
        { "{\"weight_map\":[]}", "expected an object \"weight_map\"" },
        { "{\"weight_map\":[\"a.bin\"]}", "expected an object \"weight_map\"" },
        { MAP(""), "expected an object \"weight_map\"" },
        { MAP("\"t\":7"), "expected the name of a file beside the index" },
        { MAP("\"t\":\"\""), "expected the name of a file beside the index" },
        { MAP("\"t\":\".\""), "expected the name of a file beside the index" },
        { MAP("\"t\":\"..\""), "expected the name of a file beside the index" },
        { MAP("\"t\":\"../a.bin\""), "expected the name of a file beside the index, found \"../a.bin\"" },
        { MAP("\"t\":\"/etc/passwd\""), "expected the name of a file beside the index" },
        { MAP("\"t\":\"a.bin\\u0000y\""), "expected the name of a file beside the index" },
        { MAP("\"t\":\"a.bin\",\"t\":\"a.bin\""), "duplicate" },
        { MAP("\"t\":\"none.bin\""), "none.bin: cannot be opened: No such file" },
        { MAP("\"t\":\"pytorch_model.bin.index.json\""), "found a file that begins with" },
        { MAP("\"t\":\"a.bin\",\"u\":\"a.bin\""), "tensor u should be in" },
        { MAP("\"s\":\"a.bin\",\"t\":\"a.bin\""), "tensor s should be in" },
        { MAP("\"x\":\"b.bin\",\"t\":\"a.bin\""), "b.bin, and is not" },
    };
#undef MAP
    char *folder = test_path("indexed"), *index = xformat("%s/pytorch_model.bin.index.json", folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    begin();
    archive_end(&a);
    for (int i = 0; i < 2; i++) {
        char *path = xformat("%s/%c.bin", folder, 'a' + i);
        file_write_bytes(path, a.bytes.s, a.bytes.n);
        free(path);
    }
    archive_free(&a);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        file_write(index, wrong[i].index);
        assert_null(shards_open(folder, &err));
        assert_error_mentions(&err, folder, wrong[i].words);
    }
    file_write(index, "{\"weight_map\":{\"t\":\"b.bin\"}}");
    struct shards *t = shards_open(folder, &err);
    assert_non_null(t);
    assert_int_equal(shards_files(t), 1);
    shards_close(t);
    shards_close(NULL);
    free(index);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_archive_with_one_fault_is_refused),
        cmocka_unit_test(an_unusual_but_valid_archive_is_read),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(an_index_with_one_fault_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
