// test_torch_damaged.c - a truncated PyTorch checkpoint is refused; one with any byte changed is refused or usable, and
// never crashes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/pickle.h"
#include "formats/torch.h"
#include "formats/zip.h"
#include "tests/formats/torch_archive.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"

static struct error err;

// Reads a checkpoint from a buffer of exact size, so that a sanitizer sees overreads, and every byte of its tensors.
static bool use(const struct text *bytes)
{
    uint8_t *copy = xmalloc(bytes->n);
    memcpy(copy, bytes->s, bytes->n);
    struct mapping file = { copy, bytes->n };
    struct tensor_list tensors = { 0 };
    *err.text = '\0';
    bool ok = torch_read("a file", &file, 0, &tensors, &err);
    if (!ok && strstr(err.text, "a file: ") == NULL)
        fail_msg("expected an error about the file, found \"%s\"", err.text);
    volatile uint8_t sum = 0;
    for (size_t i = 0; ok && i < tensors.n; i++)
        for (size_t k = 0; k < tensors.at[i].bytes; k++)
            sum ^= ((const uint8_t *)tensors.at[i].data)[k];
    tensor_list_free(&tensors);
    free(copy);
    return ok;
}

// Files written by torch, and one with ZIP64 everywhere.
enum { FILES = 4 };
static struct text valid_file(int number)
{
    static const char *const files[] = { CASES "/torch/module.pt", CASES "/torch/protocol5.pt",
                                         CASES "/torch/plain.pt" };
    if (number < FILES - 1)
        return checkpoint_bytes(files[number]);
    struct text p = { 0 };
    text_add(&p, "\x80\x02}", 3);
    pickled_text(&p, "t");
    pickled_tensor(&p, &(struct pickled_tensor){ .elements = 6, .dims = 2, .dim = { 2, 3 } });
    text_add(&p, "s.", 2);
    struct archive a = archive_of(&p, 24);
    archive_end64(&a);
    free(p.s);
    return a.bytes;
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    for (int number = 0; number < FILES; number++) {
        struct text bytes = valid_file(number);
        assert_true(use(&bytes));
        while (bytes.n-- > 1)
            assert_false(use(&bytes));
        free(bytes.s);
    }
}

// The archive of a valid file.
static struct zip archive_in(const struct text *bytes)
{
    struct zip z;
    struct mapping file = { (const uint8_t *)bytes->s, bytes->n };
    assert_true(zip_open("a file", &file, &z, &err));
    return z;
}

static bool has_name(const struct zip_entry *e, const char *name)
{
    size_t n = strlen(name);
    return e->name_n > n && memcmp(e->name + e->name_n - n, name, n) == 0;
}

// Whether a CRC-32 covers the byte, so that a change of it must be detected.
static bool is_checksummed(const struct zip *z, const char *at)
{
    for (size_t i = 0; i < z->n; i++) {
        const struct zip_entry *e = &z->entry[i];
        bool summed = has_name(e, "/data.pkl") || has_name(e, "/version") || has_name(e, "/byteorder");
        if (summed && at >= (const char *)e->at && at < (const char *)e->at + e->n)
            return true;
    }
    return false;
}

// Offsets in an archive's records are relative to its beginning, which is missing here.
static void a_file_without_its_beginning_is_refused(void **state)
{
    for (int number = 0; number < FILES; number++) {
        struct text bytes = valid_file(number);
        for (size_t n = bytes.n - 1; n > 0; n--) {
            uint8_t *end = xmalloc(n);
            memcpy(end, bytes.s + bytes.n - n, n);
            struct zip z;
            assert_false(zip_open("a file", &(struct mapping){ end, n }, &z, &err));
            free(end);
        }
        free(bytes.s);
    }
}

// Changes of a byte: two flipped bits, and boundary values of counts and lengths.
enum { CHANGES = 5 };
static char changed(char c, int how)
{
    return (char)(how == 0 ? c ^ 1 : how == 1 ? c ^ 0x80 : how == 2 ? c + 1 : how == 3 ? 0 : 0xff);
}

static void a_changed_byte_is_refused_or_harmless(void **state)
{
    for (int number = 0; number < FILES; number++) {
        struct text bytes = valid_file(number), good = valid_file(number);
        struct zip z = archive_in(&good);
        int refused = 0, used = 0;
        for (size_t at = 0; at < bytes.n; at++) {
            bool summed = is_checksummed(&z, good.s + at);
            for (int how = 0; how < CHANGES; how++) {
                bytes.s[at] = changed(good.s[at], how);
                bool ok = use(&bytes);
                assert_false(ok && summed && bytes.s[at] != good.s[at]);
                ok ? used++ : refused++;
            }
            bytes.s[at] = good.s[at];
        }
        assert_true(use(&bytes));
        print_message("file %d of %zu bytes: %d refused, %d used\n", number, bytes.n, refused, used);
        zip_close(&z);
        free(bytes.s);
        free(good.s);
    }
}

// The pickle's bytes, and the address of its CRC-32 in the directory, before its name.
static uint8_t *pickle_in(const struct text *bytes, size_t *n, uint8_t **crc)
{
    struct zip z = archive_in(bytes);
    const struct zip_entry *e = NULL;
    for (size_t i = 0; i < z.n; i++)
        e = has_name(&z.entry[i], "/data.pkl") ? &z.entry[i] : e;
    assert_non_null(e);
    uint8_t *at = (uint8_t *)bytes->s + (e->at - (const uint8_t *)bytes->s);
    *n = e->n;
    *crc = (uint8_t *)bytes->s + (e->name - bytes->s) - 46 + 16;
    zip_close(&z);
    return at;
}

// The CRC-32 is corrected, so that the pickle reader must detect the change.
static void a_pickle_with_a_changed_byte_is_refused_or_harmless(void **state)
{
    for (int number = 0; number < FILES; number++) {
        struct text bytes = valid_file(number);
        size_t n;
        uint8_t *crc, *pickle = pickle_in(&bytes, &n, &crc);
        int refused = 0, used = 0;
        for (size_t at = 0; at < n; at++) {
            uint8_t good = pickle[at];
            for (int how = 0; how < CHANGES; how++) {
                pickle[at] = (uint8_t)changed((char)good, how);
                memcpy(crc, &(uint32_t){ zip_crc(pickle, n) }, 4);
                use(&bytes) ? used++ : refused++;
            }
            pickle[at] = good;
        }
        print_message("pickle %d of %zu bytes: %d refused, %d used\n", number, n, refused, used);
        free(bytes.s);
    }
}

static void a_pickle_cut_anywhere_is_refused(void **state)
{
    for (int number = 0; number < FILES; number++) {
        struct text bytes = valid_file(number);
        size_t n;
        uint8_t *crc;
        const uint8_t *pickle = pickle_in(&bytes, &n, &crc);
        while (n-- > 1) {
            uint8_t *cut = xmalloc(n);
            memcpy(cut, pickle, n);
            *err.text = '\0';
            assert_null(pickle_read("a pickle", cut, n, &err));
            assert_non_null(strstr(err.text, "a pickle: "));
            free(cut);
        }
        free(bytes.s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_file_without_its_beginning_is_refused),
        cmocka_unit_test(a_changed_byte_is_refused_or_harmless),
        cmocka_unit_test(a_pickle_with_a_changed_byte_is_refused_or_harmless),
        cmocka_unit_test(a_pickle_cut_anywhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
