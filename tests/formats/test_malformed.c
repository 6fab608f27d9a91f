// test_malformed.c - checkpoints with one fault each are refused with an error that names the file and the fault.
//
// tests/models/test_family_*.c have faults in the configuration, tests/formats/test_damaged.c truncated files and
// random changes.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "tests/formats/gguf_write.h"
#include "models/formats/shards.h"
#include "models/weights.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/formats/shards_find.h"
#include "tests/support/small_model.h"

static struct error err;

// GGUF files, byte by byte.

static struct text bytes; // the file being built

static void raw(const void *p, size_t n)
{
    text_add(&bytes, p, n);
}

static void u32(uint32_t v)
{
    raw(&v, sizeof(v));
}

static void u64(uint64_t v)
{
    raw(&v, sizeof(v));
}

static void string(const char *s)
{
    u64(strlen(s));
    raw(s, strlen(s));
}

static uint64_t number(void)
{
    return strtoull(strtok(NULL, " "), NULL, 0);
}

// Words of a script: the header "GGUF VERSION TENSORS KEYS", a "key NAME TYPE", a number "u8 N", "u32 N", "u64 N", a "text S", a
// "tensor NAME TYPE OFFSET DIMENSIONS N N ..", and padding to the alignment and "zeros N". In a name ~ is a space.
static void build(const char *script)
{
    char *all = xstrdup(script);
    bytes.n = 0;
    for (char *word = strtok(all, " "); word != NULL; word = strtok(NULL, " ")) {
        if (strcmp(word, "GGUF") == 0) {
            raw(word, 4);
            u32((uint32_t)number());
            u64(number());
            u64(number());
        } else if (strcmp(word, "key") == 0 || strcmp(word, "tensor") == 0 || strcmp(word, "text") == 0) {
            char *name = strtok(NULL, " ");
            for (char *at = name; (at = strchr(at, '~')) != NULL;)
                *at = ' ';
            string(strcmp(name, "-") == 0 ? "" : name);
            const uint32_t type = *word == 't' && word[2] == 'x' ? 0 : (uint32_t)number();
            if (*word == 'k')
                u32(type);
            if (word[2] != 'n')
                continue;
            const uint64_t offset = number(), dims = number();
            u32((uint32_t)dims);
            for (uint64_t d = 0; d < dims; d++)
                u64(number());
            u32(type);
            u64(offset);
        } else if (strcmp(word, "zeros") == 0) {
            while (bytes.n % 32 != 0)
                raw("", 1);
            for (uint64_t n = number(); n > 0; n--)
                raw("", 1);
        } else {
            const uint64_t v = number();
            raw(&v, strcmp(word, "u64") == 0 ? 8 : strcmp(word, "u32") == 0 ? 4 : 1);
        }
    }
    free(all);
}

TEST(a_gguf_file_with_one_fault_is_refused)
{
    // types of keys: 4 u32, 7 bool, 8 text, 9 list, 10 u64; of tensors: 0 f32, 8 q8_0
    static const struct {
        const char *script, *words;
    } faults[] = {
        { "", "empty" },
        { "u8 71 u8 71 u8 85", "ends too early: the header" },
        { "text and~so~on zeros 0", "expected a GGUF file" },
        { "GGUF 1 0 0", "expected GGUF version 2 or 3, found 1" },
        { "GGUF 0x03000000 0 0", "big-endian" },
        { "GGUF 3 0 0x1000000000000000", "1152921504606846976 metadata keys" },
        { "GGUF 3 0xffffffffffffffff 0", "18446744073709551615 tensors" },
        { "GGUF 3 0 1 zeros 8 text -", "metadata key 0: expected a name" },
        { "GGUF 3 0 1 key - 4 zeros 32", "metadata key 0: expected a name" },
        { "GGUF 3 0 1 u64 0xfffffffffffffffc zeros 32", "metadata key 0 needs 18446744073709551612 bytes" },
        { "GGUF 3 0 1 key a 13 zeros 32", "metadata key 0 (a): expected a type from 0 to 12, found 13" },
        { "GGUF 3 0 1 key a 8 u64 0x8000000000000000 zeros 32", "metadata key 0 (a) needs" },
        { "GGUF 3 0 1 key a 7 u8 2", "expected 0 or 1" },
        { "GGUF 3 0 1 key a 9 u32 9 u64 1 zeros 32", "arrays inside arrays" },
        { "GGUF 3 0 1 key a 9 u32 13 u64 1 zeros 32", "expected an array of a type from 0 to 12" },
        { "GGUF 3 0 1 key a 9 u32 4 u64 0x4000000000000000 zeros 32", "expected an array that fits" },
        { "GGUF 3 0 1 key a 9 u32 10 u64 5 zeros 0", "metadata key 0 (a) needs 40 bytes" },
        { "GGUF 3 0 1 key a 9 u32 8 u64 0xffffffffffffffff zeros 64", "metadata key 0 (a) needs" },
        { "GGUF 3 0 3 key a 4 u32 0 key b 4 u32 0 key a 4 u32 0 zeros 0", "two metadata keys named a" },
        { "GGUF 3 0 1 key a\nspeclab:~b\033[2J\x7f 13 zeros 32", // in one line
          "metadata key 0 (a?speclab: b?[2J?): expected a type" },
        { "GGUF 3 2 0 tensor t\nu 0 0 1 8 tensor t\nu 0 32 1 8 zeros 64", "two tensors named t?u" },
        { "GGUF 3 0 1 key general.alignment 4 u32 3", "general.alignment: expected a power of two, found 3" },
        { "GGUF 3 0 1 key general.alignment 4 u32 0", "general.alignment: expected a power of two, found 0" },
        { "GGUF 3 0 1 key general.alignment 8 text 32", "general.alignment: expected an integer" },
        { "GGUF 3 0 1 key split.count 2 u8 3 u8 0", "one of the 3 parts of a split model" },
        { "GGUF 3 1 0 tensor t 0 0 5 1 1 1 1 1 zeros 32", "expected 1 to 4 dimensions, found 5" },
        { "GGUF 3 1 0 tensor t 0 0 0 zeros 32", "expected 1 to 4 dimensions, found 0" },
        { "GGUF 3 1 0 tensor t 0 0 2 4 0 zeros 32", "dimension 1 is 0" },
        { "GGUF 3 1 0 tensor t 0 0 2 0x10000000000 0x10000000000 zeros 32", "too large for any file" },
        { "GGUF 3 1 0 tensor t 0 0 1 0xffffffffffffffff zeros 32", "too large for any file" },
        { "GGUF 3 1 0 tensor t 0 0 1 0x4000000000000000 zeros 32", "too large for any file" },
        { "GGUF 3 1 0 tensor t 8 0 2 40 2 zeros 256",
          "rows of 40 elements are not a multiple of the block size of q8_0" },
        { "GGUF 3 1 0 tensor t 0x80000000 0 1 4 zeros 32", "there is no tensor type 2147483648" },
        { "GGUF 3 1 0 tensor t 0 8 1 4 zeros 64", "offset 8 is not a multiple of the alignment 32" },
        { "GGUF 3 1 0 tensor t 0 1024 1 4 zeros 64", "tensor 0 (t) has 16 bytes at offset 1024" },
        { "GGUF 3 1 0 tensor t 0 0xffffffffffffffe0 1 4 zeros 64", "tensor 0 (t) has 16 bytes at offset" },
        { "GGUF 3 1 0 tensor t 0 0 1 16 zeros 63", "there are 63 bytes of tensors" },
        { "GGUF 3 1 0 tensor t 0 0 1 4", "there are 0 bytes of tensors" },
        { "GGUF 3 2 0 tensor t 0 0 1 8 tensor t 0 32 1 8 zeros 64", "two tensors named t" },
        { "GGUF 3 2 0 tensor t 0 0 1 16 tensor u 0 32 1 8 zeros 96", "tensor 1 (u) overlaps tensor 0" },
        { "GGUF 3 2 0 tensor t 0 0 1 16 tensor u 20 32 1 32 zeros 96", "tensor 1 (u) overlaps tensor 0" },
    };
    char *path = test_path("fault.gguf");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        build(faults[i].script);
        file_write_bytes(path, bytes.s, bytes.n);
        assert_null(gguf_open(path, &err));
        assert_error_mentions(&err, path, faults[i].words);
    }
    const struct {
        const char *path, *words;
    } others[] = { { test_directory(), "expected a file, found a directory" },
                   { "/nonexistent.gguf", "No such file" },
                   { "/dev/null", "expected a file, found a device" } };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        assert_null(gguf_open(others[i].path, &err));
        assert_error_mentions(&err, others[i].path, others[i].words);
    }
    free(path);
}

TEST(a_missing_tensor_is_named_in_its_formats_terms)
{
    static const char *const name[][2] = { { "blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight" },
                                           { "output_norm.weight", "model.norm.weight" } };
    for (int i = 0; i < 2; i++) {
        char *path = test_path("missing.gguf"), *words = xformat("there is no tensor %s", name[i][0]);
        small_write_gguf(path, &small_minimal);
        struct text all = checkpoint_bytes(path);
        char *at = memmem(all.s, all.n, name[i][0], strlen(name[i][0]));
        assert_non_null(at);
        *at = 'x';
        file_write_bytes(path, all.s, all.n);
        struct model_config c;
        struct tensor t;
        assert_true(config_read(path, &c, &err));
        struct weights *w = weights_open(&c, &err);
        assert_non_null(w);
        assert_false(weights_get(w, name[i][1], 8, 8, &t, &err));
        assert_error_mentions(&err, path, words);
        weights_close(w);
        config_free(&c);
        free(all.s);
        free(words);
        free(path);
    }
}

// The types of these tensors are 21 and 77 in the file.
TEST(an_unknown_type_is_refused_when_the_tensor_is_loaded)
{
    static const struct {
        const char *stored, *name, *words;
        int64_t rows;
        char type;
    } cases[] = { { "output_norm.weight", "model.norm.weight", "IQ3_S (21)", 1, 21 },
                  { "blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", "unknown type (77)", 8, 77 } };
    for (int i = 0; i < 2; i++) {
        char *path = test_path("type.gguf");
        small_write_gguf(path, &small_minimal);
        struct text all = checkpoint_bytes(path);
        char *at = memmem(all.s, all.n, cases[i].stored, strlen(cases[i].stored));
        assert_non_null(at);
        at += strlen(cases[i].stored);
        at[4 + *at * 8] = cases[i].type; // behind the number of dimensions and the dimensions
        file_write_bytes(path, all.s, all.n);
        struct model_config c;
        assert_true(config_read(path, &c, &err));
        struct weights *w = weights_open(&c, &err);
        struct tensor to;
        assert_ok(w != NULL && weights_get(w, "model.embed_tokens.weight", 270, 8, &to, &err), err);
        assert_false(weights_get(w, cases[i].name, cases[i].rows, 8, &to, &err));
        assert_error_mentions(&err, path, cases[i].words);
        weights_hash(w);
        weights_close(w);
        config_free(&c);
        free(all.s);
        free(path);
    }
}

// safetensors: a header as text, and a number of bytes of data.

static void write_safetensors(const char *path, uint64_t length, const char *header, size_t data)
{
    bytes.n = 0;
    u64(length);
    raw(header, strlen(header));
    while (data-- != 0)
        raw("", 1);
    file_write_bytes(path, bytes.s, bytes.n);
}

TEST(a_safetensors_file_with_one_fault_is_refused)
{
#define T(name, dtype, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"
    static const struct {
        const char *header;
        size_t data;
        const char *words;
    } faults[] = {
        { "[]", 0, "does not begin with '{'" },
        { " {}", 0, "does not begin with '{'" },
        { "{", 0, "not valid JSON" },
        { "{} x", 0, "not valid JSON" },
        { "{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "duplicate" },
        { "{\"a\":\"\xff\"}", 0, "not valid JSON" },
        { "{\"a\":7}", 0, "tensor a: expected dtype, shape and two data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: expected dtype, shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two data_offsets" },
        { "{" T("a", "F33", "[1]", 0, 4) "}", 4, "unknown dtype \"F33\"" },
        { "{" T("a", "F32", "[-1]", 0, 4) "}", 4, "dimension 0 of its shape is not a size" },
        { "{" T("a", "F32", "[1.5]", 0, 4) "}", 4, "dimension 0 of its shape is not a size" },
        { "{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "at most 8 dimensions" },
        { "{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "too large for any file" },
        { "{" T("a", "F4", "[3]", 0, 1) "}", 1, "not whole bytes" },
        { "{" T("a", "F32", "[2]", 0, 4) "}", 4, "its shape needs 8 bytes, its data_offsets span 4" },
        { "{" T("a", "F32", "[1]", 4, 0) "}", 4, "not a region" },
        { "{" T("a", "F32", "[1]", -4, 0) "}", 4, "not a region" },
        { "{" T("a", "F32", "[1]", 0.0, 4) "}", 4, "not a region" },
        { "{" T("a", "F32", "[2]", 0, 8) "}", 4, "its data end at byte 8" },
        { "{" T("a", "F32", "[1]", 9223372036854775803, 9223372036854775807) "}", 4, "its data end at byte" },
        { "{" T("a", "F32", "[1]", 4, 8) "}", 8, "does not begin where" },
        { "{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12, "does not begin where" },
        { "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 4, 8) "}", 8, "overlaps" },
        { "{" T("a", "F32", "[1]", 0, 4) "}", 5, "the tensors end at byte 4 of the data, and the file has 5" },
        { "{\"__metadata__\":7}", 0, "__metadata__: expected an object" },
        { "{\"__metadata__\":{\"a\":7}}", 0, "__metadata__: expected a text for a" },
    };
#undef T
    char *path = test_path("fault.safetensors");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        write_safetensors(path, strlen(faults[i].header), faults[i].header, faults[i].data);
        assert_null(shards_open(path, &err));
        assert_error_mentions(&err, path, faults[i].words);
    }
    static const struct {
        uint64_t length;
        const char *words;
    } lengths[] = { { 3, "a header of 3 bytes does not fit" },
                    { 100000001, "100000000 are allowed" },
                    { ~0ULL, "would have 18446744073709551615 bytes" },
                    { 0, "does not begin with '{'" } };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        write_safetensors(path, lengths[i].length, "{}", 0);
        assert_null(shards_open(path, &err));
        assert_error_mentions(&err, path, lengths[i].words);
    }
    file_write_bytes(path, "1234", 4);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "only 4 bytes");

    // A file without tensors is valid; nesting that would exhaust the stack is refused.
    write_safetensors(path, 8, "{}      ", 0);
    struct shards *s = shards_open(path, &err);
    assert_non_null(s);
    assert_int_equal(shards_count(s), 0);
    assert_null(shards_find(s, "a"));
    shards_close(s);
    struct text deep = { 0 };
    text_puts(&deep, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        text_puts(&deep, "[");
    write_safetensors(path, deep.n, deep.s, 0);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "not valid JSON");
    free(deep.s);
    free(path);
}

TEST(an_index_with_one_fault_is_refused)
{
    static const struct {
        const char *index, *words;
    } faults[] = {
        { "{", "not valid JSON" },
        { "{}", "\"weight_map\"" },
        { "{\"weight_map\":[]}", "\"weight_map\"" },
        { "{\"weight_map\":{}}", "\"weight_map\"" },
        { "{\"weight_map\":{\"a\":7}}", "expected the name of a file beside the index" },
        { "{\"weight_map\":{\"a\":\"\"}}", "expected the name of a file beside the index" },
        { "{\"weight_map\":{\"a\":\"..\"}}", "expected the name of a file beside the index" },
        { "{\"weight_map\":{\"a\":\"../a.safetensors\"}}", "expected the name of a file beside the index" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "expected the name of a file beside the index" },
        { "{\"weight_map\":{\"a\":\"x.safetensors\\u0000y\"}}", "expected the name of a file beside the index" },
        { "{\"weight_map\":{\"a\":\"none.safetensors\"}}", "No such file" },
        { "{\"weight_map\":{\"model.norm.weight\":\"model.safetensors\",\"a\":\"model.safetensors\"}}",
          "tensor a should be in" },
    };
    char *directory = test_path("indexed"), *index = xformat("%s/model.safetensors.index.json", directory);
    small_write_hf(directory, &small_minimal);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        file_write_bytes(index, faults[i].index, strlen(faults[i].index));
        assert_null(shards_open(directory, &err));
        assert_error_mentions(&err, directory, faults[i].words);
    }
    unlink(index);
    char *single = xformat("%s/model.safetensors", directory);
    unlink(single);
    assert_null(shards_open(directory, &err));
    assert_error_mentions(&err, directory, "expected model.safetensors or model.safetensors.index.json, found none");
    free(single);
    free(index);
    free(directory);
}

static int forget(void **state)
{
    free(bytes.s);
    return 0;
}

RUN_TESTS(NULL, forget)
