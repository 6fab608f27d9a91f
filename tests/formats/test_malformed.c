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
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/shards_find.h"
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

static void start(uint32_t version, uint64_t tensors, uint64_t values)
{
    raw("GGUF", 4);
    u32(version);
    u64(tensors);
    u64(values);
}

static void key(const char *name, uint32_t type)
{
    string(name);
    u32(type);
}

static void tensor(const char *name, int dims, const uint64_t *dim, uint32_t type, uint64_t offset)
{
    string(name);
    u32((uint32_t)dims);
    raw(dim, (size_t)dims * sizeof(*dim));
    u32(type);
    u64(offset);
}

static void zeros(size_t n) // padding to the alignment, then n bytes
{
    while (bytes.n % 32 != 0)
        raw("", 1);
    while (n-- != 0)
        raw("", 1);
}

#define DIM(...) \
    (sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t)), (const uint64_t[]) \
    { \
        __VA_ARGS__ \
    }

// clang-format off
static void not_gguf(void) { raw("GGML\1\0\0\0 and so on", 19); }
static void three_bytes(void) { raw("GGU", 3); }
static void version_1(void) { start(1, 0, 0); }
static void big_endian(void) { start(0x03000000, 0, 0); }
static void many_keys(void) { start(3, 0, 1ULL << 60); }
static void many_tensors(void) { start(3, ~0ULL, 0); }
static void no_key(void) { start(3, 0, 1); zeros(8); string(""); }
static void empty_key(void) { start(3, 0, 1); key("", GGUF_U32); zeros(32); }
static void endless_key(void) { start(3, 0, 1); u64(~0ULL - 3); zeros(32); }
static void type_13(void) { start(3, 0, 1); key("a", 13); zeros(32); }
static void endless_text(void) { start(3, 0, 1); key("a", GGUF_STRING); u64(1ULL << 63); zeros(32); }
static void bool_2(void) { start(3, 0, 1); key("a", GGUF_BOOL); raw("\2", 1); }
static void nested(void) { start(3, 0, 1); key("a", GGUF_ARRAY); u32(GGUF_ARRAY); u64(1); zeros(32); }
static void array_of_13(void) { start(3, 0, 1); key("a", GGUF_ARRAY); u32(13); u64(1); zeros(32); }
static void endless_array(void) { start(3, 0, 1); key("a", GGUF_ARRAY); u32(GGUF_U32); u64(1ULL << 62); zeros(32); }
static void long_array(void) { start(3, 0, 1); key("a", GGUF_ARRAY); u32(GGUF_U64); u64(5); zeros(0); }
static void endless_texts(void) { start(3, 0, 1); key("a", GGUF_ARRAY); u32(GGUF_STRING); u64(~0ULL); zeros(64); }
static void two_keys(void) { start(3, 0, 3); key("a", GGUF_U32); u32(0); key("b", GGUF_U32); u32(0); key("a", GGUF_U32);
                             u32(0); zeros(0); }
static void line_in_key(void) { start(3, 0, 1); key("a\nspeclab: b\033[2J\x7f", 13); zeros(32); }
static void line_in_names(void) { start(3, 2, 0); tensor("t\nu", DIM(8), 0, 0); tensor("t\nu", DIM(8), 0, 32); zeros(64); }
static void alignment_3(void) { start(3, 0, 1); key("general.alignment", GGUF_U32); u32(3); }
static void alignment_0(void) { start(3, 0, 1); key("general.alignment", GGUF_U32); u32(0); }
static void alignment_text(void) { start(3, 0, 1); key("general.alignment", GGUF_STRING); string("32"); }
static void split(void) { start(3, 0, 1); key("split.count", GGUF_U16); raw("\3", 2); }
static void five_dims(void) { start(3, 1, 0); tensor("t", DIM(1, 1, 1, 1, 1), 0, 0); zeros(32); }
static void no_dims(void) { start(3, 1, 0); tensor("t", 0, (const uint64_t[]){ 0 }, 0, 0); zeros(32); }
static void dim_0(void) { start(3, 1, 0); tensor("t", DIM(4, 0), 0, 0); zeros(32); }
static void endless_dims(void) { start(3, 1, 0); tensor("t", DIM(1ULL << 40, 1ULL << 40), 0, 0); zeros(32); }
static void endless_dim(void) { start(3, 1, 0); tensor("t", DIM(~0ULL), 0, 0); zeros(32); }
static void endless_bytes(void) { start(3, 1, 0); tensor("t", DIM(1ULL << 62), 0, 0); zeros(32); }
static void part_of_block(void) { start(3, 1, 0); tensor("t", DIM(40, 2), 8, 0); zeros(256); }
static void type_huge(void) { start(3, 1, 0); tensor("t", DIM(4), 1U << 31, 0); zeros(32); }
static void offset_8(void) { start(3, 1, 0); tensor("t", DIM(4), 0, 8); zeros(64); }
static void offset_beyond(void) { start(3, 1, 0); tensor("t", DIM(4), 0, 1024); zeros(64); }
static void offset_endless(void) { start(3, 1, 0); tensor("t", DIM(4), 0, ~0ULL - 31); zeros(64); }
static void data_short(void) { start(3, 1, 0); tensor("t", DIM(16), 0, 0); zeros(63); }
static void no_data(void) { start(3, 1, 0); tensor("t", DIM(4), 0, 0); }
static void two_names(void) { start(3, 2, 0); tensor("t", DIM(8), 0, 0); tensor("t", DIM(8), 0, 32); zeros(64); }
static void overlap(void) { start(3, 2, 0); tensor("t", DIM(16), 0, 0); tensor("u", DIM(8), 0, 32); zeros(96); }
static void overlap_unknown(void) { start(3, 2, 0); tensor("t", DIM(16), 0, 0); tensor("u", DIM(32), 20, 32);
                                    zeros(96); }
// clang-format on

static void a_gguf_file_with_one_fault_is_refused(void **state)
{
    static const struct {
        void (*make)(void);
        const char *words;
    } faults[] = {
        { not_gguf, "expected a GGUF file" },
        { three_bytes, "ends too early: the header" },
        { version_1, "expected GGUF version 2 or 3, found 1" },
        { big_endian, "big-endian" },
        { many_keys, "1152921504606846976 metadata keys" },
        { many_tensors, "18446744073709551615 tensors" },
        { no_key, "metadata key 0: expected a name" },
        { empty_key, "metadata key 0: expected a name" },
        { endless_key, "metadata key 0 needs 18446744073709551612 bytes" },
        { type_13, "metadata key 0 (a): expected a type from 0 to 12, found 13" },
        { endless_text, "metadata key 0 (a) needs" },
        { bool_2, "expected 0 or 1" },
        { nested, "arrays inside arrays" },
        { array_of_13, "expected an array of a type from 0 to 12" },
        { endless_array, "expected an array that fits" },
        { long_array, "metadata key 0 (a) needs 40 bytes" },
        { endless_texts, "metadata key 0 (a) needs" },
        { two_keys, "two metadata keys named a" },
        { line_in_key, "metadata key 0 (a?speclab: b?[2J?): expected a type" }, // in one line
        { line_in_names, "two tensors named t?u" },
        { alignment_3, "general.alignment: expected a power of two, found 3" },
        { alignment_0, "general.alignment: expected a power of two, found 0" },
        { alignment_text, "general.alignment: expected an integer" },
        { split, "one of the 3 parts of a split model" },
        { five_dims, "expected 1 to 4 dimensions, found 5" },
        { no_dims, "expected 1 to 4 dimensions, found 0" },
        { dim_0, "dimension 1 is 0" },
        { endless_dims, "too large for any file" },
        { endless_dim, "too large for any file" },
        { endless_bytes, "too large for any file" },
        { part_of_block, "rows of 40 elements are not a multiple of the block size of q8_0" },
        { type_huge, "there is no tensor type 2147483648" },
        { offset_8, "offset 8 is not a multiple of the alignment 32" },
        { offset_beyond, "tensor 0 (t) has 16 bytes at offset 1024" },
        { offset_endless, "tensor 0 (t) has 16 bytes at offset" },
        { data_short, "there are 63 bytes of tensors" },
        { no_data, "there are 0 bytes of tensors" },
        { two_names, "two tensors named t" },
        { overlap, "tensor 1 (u) overlaps tensor 0" },
        { overlap_unknown, "tensor 1 (u) overlaps tensor 0" },
    };
    char *path = test_path("fault.gguf");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        bytes.n = 0;
        faults[i].make();
        file_write_bytes(path, bytes.s, bytes.n);
        assert_null(gguf_open(path, &err));
        assert_error_mentions(&err, path, faults[i].words);
    }
    bytes.n = 0;
    file_write_bytes(path, "", 0);
    assert_null(gguf_open(path, &err));
    assert_error_mentions(&err, path, "empty");
    assert_null(gguf_open(test_directory(), &err));
    assert_error_mentions(&err, test_directory(), "expected a file, found a directory");
    assert_null(gguf_open("/nonexistent.gguf", &err));
    assert_error_mentions(&err, "/nonexistent.gguf", "No such file");
    assert_null(gguf_open("/dev/null", &err));
    assert_error_mentions(&err, "/dev/null", "expected a file, found a device");
    free(path);
}

static void a_missing_tensor_is_named_in_its_formats_terms(void **state)
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
static void an_unknown_type_is_refused_when_the_tensor_is_loaded(void **state)
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

static void a_safetensors_file_with_one_fault_is_refused(void **state)
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
    write_safetensors(path, 3, "{}", 0);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "a header of 3 bytes does not fit");
    write_safetensors(path, 100000001, "{}", 0);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "100000000 are allowed");
    write_safetensors(path, ~0ULL, "{}", 0);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "would have 18446744073709551615 bytes");
    write_safetensors(path, 0, "", 0);
    assert_null(shards_open(path, &err));
    assert_error_mentions(&err, path, "does not begin with '{'");
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

static void an_index_with_one_fault_is_refused(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gguf_file_with_one_fault_is_refused),
        cmocka_unit_test(a_missing_tensor_is_named_in_its_formats_terms),
        cmocka_unit_test(an_unknown_type_is_refused_when_the_tensor_is_loaded),
        cmocka_unit_test(a_safetensors_file_with_one_fault_is_refused),
        cmocka_unit_test(an_index_with_one_fault_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
