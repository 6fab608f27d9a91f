// test_malformed.c - checkpoints with one fault each are refused with a sentence that names the file and what is wrong.
//
// tests/test_damaged.c has those that were cut or changed at random.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/gguf.h"
#include "models/safetensors.h"
#include "models/weights.h"
#include "tests/check.h"
#include "tests/checkpoint.h"
#include "tests/tiny.h"

static struct error err;

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

// The last error is a sentence about this path with these words in it.
static void assert_says(const char *path, const char *words)
{
    print_message("%s\n", err.text);
    if (strstr(err.text, path) == NULL || strstr(err.text, words) == NULL)
        fail_msg("expected a sentence about %s with \"%s\"", path, words);
}

// GGUF files, byte by byte.

static struct text bytes; // the file being made

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

static void zeros(size_t n) // up to the alignment, and then n bytes
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
static void two_keys(void) { start(3, 0, 3); key("a", GGUF_U32); u32(0); key("b", GGUF_U32); u32(0); key("a", GGUF_U32); u32(0); zeros(0); }
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
static void overlap_unknown(void) { start(3, 2, 0); tensor("t", DIM(16), 0, 0); tensor("u", DIM(32), 20, 32); zeros(96); }
// clang-format on

static void a_gguf_file_with_one_fault_is_refused(void **state)
{
    (void)state;
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
        { part_of_block, "rows of 40 elements are not whole blocks of q8_0" },
        { type_huge, "there is no tensor type 2147483648" },
        { offset_8, "offset 8 is not a multiple of the alignment 32" },
        { offset_beyond, "tensor 0 (t) has 16 bytes at offset 1024" },
        { offset_endless, "tensor 0 (t) has 16 bytes at offset" },
        { data_short, "there are 63 bytes of tensors" },
        { no_data, "there are 0 bytes of tensors" },
        { two_names, "two tensors named t" },
        { overlap, "tensor 1 (u) lies on top of tensor 0" },
        { overlap_unknown, "tensor 1 (u) lies on top of tensor 0" },
    };
    char *path = tiny_path("fault.gguf");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        bytes.n = 0;
        faults[i].make();
        write_bytes(path, bytes.s, bytes.n);
        assert_null(gguf_open(path, &err));
        assert_says(path, faults[i].words);
    }
    bytes.n = 0;
    write_bytes(path, "", 0);
    assert_null(gguf_open(path, &err));
    assert_says(path, "empty");
    assert_null(gguf_open(tiny_directory(), &err));
    assert_says(tiny_directory(), "expected a file, found a directory");
    assert_null(gguf_open("/nonexistent.gguf", &err));
    assert_says("/nonexistent.gguf", "No such file");
    assert_null(gguf_open("/dev/null", &err));
    assert_says("/dev/null", "expected a file, found a device");
    free(path);
}

static void a_missing_tensor_is_named_as_its_file_would_name_it(void **state)
{
    (void)state;
    static const char *const name[][2] = { { "blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight" },
                                           { "output_norm.weight", "model.norm.weight" } };
    for (int i = 0; i < 2; i++) {
        char *path = tiny_path("missing.gguf"), *words = xformat("there is no tensor %s", name[i][0]);
        tiny_write_gguf(path, &tiny_small);
        struct text all = checkpoint_bytes(path);
        char *at = memmem(all.s, all.n, name[i][0], strlen(name[i][0]));
        assert_non_null(at);
        *at = 'x';
        write_bytes(path, all.s, all.n);
        struct model_config c;
        struct tensor t;
        assert_true(config_read(path, &c, &err));
        struct weights *w = weights_open(&c, &err);
        assert_non_null(w);
        assert_false(weights_get(w, name[i][1], 8, 8, &t, &err));
        assert_says(path, words);
        weights_close(w);
        config_free(&c);
        free(all.s);
        free(words);
        free(path);
    }
}

static void a_type_we_do_not_know_is_refused_when_it_is_asked_for(void **state)
{
    (void)state;
    char *path = tiny_path("iq4.gguf"), *from = tiny_path("iq4-from.gguf");
    tiny_write_gguf(from, &tiny_small);
    struct gguf *g = gguf_open(from, &err);
    struct gguf_writer *w = gguf_write_begin(path, &err);
    for (size_t i = 0; i < gguf_values(g); i++)
        gguf_write_copy(w, gguf_value_at(g, i));
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char *name = xstrndup(t->name.s, t->name.n);
        bool norm = strcmp(name, "output_norm.weight") == 0, up = strcmp(name, "blk.0.ffn_up.weight") == 0;
        gguf_write_tensor(w, name, t->dims, t->dim, norm ? 20 : up ? 77 : t->ggml_type, t->tensor.data, t->bytes);
        free(name);
    }
    assert_true(gguf_write_end(w, &err));
    gguf_close(g);
    struct model_config c;
    assert_true(config_read(path, &c, &err));
    struct weights *weights = weights_open(&c, &err);
    struct tensor to;
    assert_true(weights_get(weights, "model.embed_tokens.weight", 270, 8, &to, &err));
    assert_false(weights_get(weights, "model.norm.weight", 1, 8, &to, &err));
    assert_says(path, "IQ4_NL (20)");
    assert_false(weights_get(weights, "model.layers.0.mlp.up_proj.weight", 8, 8, &to, &err));
    assert_says(path, "unknown type (77)");
    weights_hash(weights);
    weights_close(weights);
    config_free(&c);
    free(path);
    free(from);
}

// safetensors: a header as text, and so many bytes of data.

static void write_safetensors(const char *path, uint64_t length, const char *header, size_t data)
{
    bytes.n = 0;
    u64(length);
    raw(header, strlen(header));
    while (data-- != 0)
        raw("", 1);
    write_bytes(path, bytes.s, bytes.n);
}

static void a_safetensors_file_with_one_fault_is_refused(void **state)
{
    (void)state;
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
        { "{" T("a", "F33", "[1]", 0, 4) "}", 4, "there is no dtype \"F33\"" },
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
    char *path = tiny_path("fault.safetensors");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        write_safetensors(path, strlen(faults[i].header), faults[i].header, faults[i].data);
        assert_null(safetensors_open(path, &err));
        assert_says(path, faults[i].words);
    }
    write_safetensors(path, 3, "{}", 0);
    assert_null(safetensors_open(path, &err));
    assert_says(path, "a header of 3 bytes does not fit");
    write_safetensors(path, 100000001, "{}", 0);
    assert_null(safetensors_open(path, &err));
    assert_says(path, "100000000 are allowed");
    write_safetensors(path, ~0ULL, "{}", 0);
    assert_null(safetensors_open(path, &err));
    assert_says(path, "would have 18446744073709551615 bytes");
    write_safetensors(path, 0, "", 0);
    assert_null(safetensors_open(path, &err));
    assert_says(path, "does not begin with '{'");
    write_bytes(path, "1234", 4);
    assert_null(safetensors_open(path, &err));
    assert_says(path, "only 4 bytes");

    // A file without tensors is a file; nesting that would exhaust the stack is not.
    write_safetensors(path, 8, "{}      ", 0);
    struct safetensors *s = safetensors_open(path, &err);
    assert_non_null(s);
    assert_int_equal(safetensors_count(s), 0);
    assert_null(safetensors_find(s, "a"));
    safetensors_close(s);
    struct text deep = { 0 };
    text_puts(&deep, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        text_puts(&deep, "[");
    write_safetensors(path, deep.n, deep.s, 0);
    assert_null(safetensors_open(path, &err));
    assert_says(path, "not valid JSON");
    free(deep.s);
    free(path);
}

static void an_index_with_one_fault_is_refused(void **state)
{
    (void)state;
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
    char *directory = tiny_path("indexed"), *index = xformat("%s/model.safetensors.index.json", directory);
    tiny_write_hf(directory, &tiny_small);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        write_bytes(index, faults[i].index, strlen(faults[i].index));
        assert_null(safetensors_open(directory, &err));
        assert_says(directory, faults[i].words);
    }
    unlink(index);
    char *single = xformat("%s/model.safetensors", directory);
    unlink(single);
    assert_null(safetensors_open(directory, &err));
    assert_says(directory, "neither model.safetensors nor");
    free(single);
    free(index);
    free(directory);
}

// config.json of a good model with one key changed.
static void a_config_that_we_would_have_to_ignore_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value; // JSON; NULL: the key is missing
        const char *words;
    } faults[] = {
        { "model_type", "\"qwen2\"", "model_type: expected \"llama\", found \"qwen2\"" },
        { "model_type", NULL, "model_type: expected \"llama\", found nothing" },
        { "architectures", "[\"LlamaForCausalLMEagle3\"]", "architectures: expected" },
        { "architectures", "\"LlamaForCausalLM\"", "architectures: expected" },
        { "hidden_act", "\"gelu\"", "hidden_act: expected \"silu\", found \"gelu\"" },
        { "mlp_bias", "true", "mlp_bias: expected false, found true" },
        { "sliding_window", "4096", "sliding_window: expected null, found 4096" },
        { "partial_rotary_factor", "0.5", "partial_rotary_factor: expected 1, found 0.5" },
        { "attn_logit_softcapping", "50.0", "attn_logit_softcapping" },
        { "final_logit_softcapping", "30.0", "final_logit_softcapping" },
        { "quantization_config", "{\"quant_method\":\"gptq\"}", "quantization_config" },
        { "num_local_experts", "8", "num_local_experts: expected 0, found 8" },
        { "pretraining_tp", "2", "pretraining_tp: expected 1, found 2" },
        { "rope_interleaved", "true", "rope_interleaved" },
        { "layer_types", "[\"sliding_attention\"]", "layer_types" },
        { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0}",
          "rope_scaling: expected a rope_type of default, linear or llama3" },
        { "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2.0}", "found \"dynamic\"" },
        { "rope_scaling", "{\"type\":\"linear\"}", "rope_scaling.factor: expected a number, found nothing" },
        { "rope_scaling", "{\"type\":\"linear\",\"factor\":0}", "rope_scaling.factor: expected a number above 0" },
        { "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8}", "rope_scaling.low_freq_factor" },
        { "rope_scaling",
          "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":8192}",
          "low_freq_factor < high_freq_factor" },
        { "rope_scaling",
          "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":0}",
          "original_max_position_embeddings" },
        { "rope_scaling", "[]", "rope_scaling: expected an object" },
        { "rope_parameters", "{\"rope_theta\":20000.0}", "rope_theta: expected the same in rope_parameters" },
        { "rope_parameters", "{\"full_attention\":{}}", "one rope for all layers" },
        { "rope_parameters", "{\"partial_rotary_factor\":0.25}", "partial_rotary_factor" },
        { "rope_theta", "0", "rope_theta: expected a number from 1" },
        { "rope_theta", "\"10000\"", "rope_theta: expected a number" },
        { "hidden_size", NULL, "hidden_size: expected an integer from 1 to 16777215, found nothing" },
        { "hidden_size", "-8", "hidden_size" },
        { "hidden_size", "8.5", "hidden_size" },
        { "num_hidden_layers", "1000000", "num_hidden_layers: expected an integer from 1 to 1024" },
        { "vocab_size", "99999999999", "vocab_size" },
        { "vocab_size", "2", "eos_token_id: expected a token id from 0 to 1, found 2" },
        { "num_key_value_heads", "3", "num_key_value_heads: expected a divisor of the 2" },
        { "head_dim", "3", "head_dim: expected an even size" },
        { "head_dim", "16000000", "head_dim: expected an even size" },
        { "num_attention_heads", "0", "num_attention_heads" },
        { "rms_norm_eps", "0", "rms_norm_eps: expected a number between 0 and 1" },
        { "tie_word_embeddings", "1", "tie_word_embeddings: expected true or false" },
        { "eos_token_id", "[2,\"x\"]", "eos_token_id: expected a list of token ids" },
        { "eos_token_id", "\"2\"", "eos_token_id" },
        { "eos_token_id", "[3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "at most 16 ids" },
        { "bos_token_id", "1000000", "bos_token_id" },
    };
    char *directory = tiny_path("config"), *path = xformat("%s/config.json", directory);
    char *tokenizer = xformat("%s/tokenizer_config.json", directory);
    tiny_write_hf(directory, &tiny_small);
    unlink(tokenizer);
    struct text good = checkpoint_bytes(path);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct json *from = json_parse(good.s, good.n, "config", &err), *to = json_new_object();
        for (void *at = json_first(from); at != NULL; at = json_next(from, at))
            if (strcmp(json_key(at), faults[i].key) != 0) {
                char *value = json_write(json_value(at));
                json_set(to, json_key(at), json_parse(value, strlen(value), "value", &err));
                free(value);
            }
        if (faults[i].value != NULL)
            json_set(to, faults[i].key, json_parse(faults[i].value, strlen(faults[i].value), "value", &err));
        char *text = json_write(to);
        write_bytes(path, text, strlen(text));
        free(text);
        json_free(from);
        json_free(to);
        struct model_config c;
        assert_false(config_read(directory, &c, &err));
        assert_says(directory, faults[i].words);
    }
    struct model_config c;
    write_bytes(path, "[]", 2);
    assert_false(config_read(directory, &c, &err));
    assert_says(path, "expected a JSON object");
    unlink(path);
    assert_false(config_read(directory, &c, &err));
    assert_says(directory, "no config.json");
    char *weights = xformat("%s/model.safetensors", directory);
    assert_false(config_read(weights, &c, &err));
    assert_says(weights, "name the directory");
    free(weights);
    free(tokenizer);
    free(good.s);
    free(path);
    free(directory);
}

// A good GGUF file with one key of its metadata left out, and another put there.
static void metadata_that_we_would_have_to_ignore_are_refused(void **state)
{
    (void)state;
    enum kind { NONE, INT, REAL, TEXT, FALSE_ };
    static const struct {
        const char *key;
        enum kind kind;
        double number;
        const char *text, *words;
    } faults[] = {
        { "general.architecture", NONE, 0, NULL, "general.architecture is missing" },
        { "general.architecture", TEXT, 0, "qwen2", "general.architecture: expected llama, found qwen2" },
        { "general.type", TEXT, 0, "adapter", "general.type: expected model, found adapter" },
        { "llama.block_count", NONE, 0, NULL, "llama.block_count is missing" },
        { "llama.block_count", INT, 0, NULL, "llama.block_count: expected 1 to 1024, found 0" },
        { "llama.block_count", REAL, 1, NULL, "llama.block_count: expected an integer" },
        { "llama.embedding_length", INT, 1 << 24, NULL, "llama.embedding_length: expected 1 to 16777215" },
        { "llama.embedding_length", INT, 16, NULL, "head size 8, found 4" },
        { "llama.embedding_length", INT, 9, NULL, "not a whole multiple of 2 heads" },
        { "llama.attention.head_count", TEXT, 0, "2", "llama.attention.head_count: expected an integer" },
        { "llama.attention.head_count_kv", INT, 3, NULL, "head_count_kv: expected a divisor" },
        { "llama.attention.layer_norm_rms_epsilon", NONE, 0, NULL, "layer_norm_rms_epsilon is missing" },
        { "llama.attention.layer_norm_rms_epsilon", REAL, -1, NULL,
          "layer_norm_rms_epsilon: expected a number between 0 and 1" },
        { "llama.attention.key_length", INT, 6, NULL, "llama.rope.dimension_count: expected" },
        { "llama.attention.value_length", INT, 6, NULL, "llama.attention.value_length: expected the keys' 4, found 6" },
        { "llama.rope.dimension_count", INT, 2, NULL, "partial rope" },
        { "llama.rope.scaling.type", TEXT, 0, "yarn", "llama.rope.scaling.type: expected none or linear, found yarn" },
        { "llama.rope.scaling.factor", REAL, -2, NULL, "llama.rope.scaling.factor: expected a number above 0" },
        { "llama.rope.scaling.attn_factor", REAL, 1.5, NULL, "llama.rope.scaling.attn_factor" },
        { "llama.rope.freq_base", REAL, 0, NULL, "llama.rope.freq_base: expected a number from 1" },
        { "llama.attention.sliding_window", INT, 4096, NULL, "llama.attention.sliding_window: expected 0, found 4096" },
        { "llama.expert_count", INT, 8, NULL, "llama.expert_count: expected 0, found 8" },
        { "llama.attn_logit_softcapping", REAL, 50, NULL, "llama.attn_logit_softcapping" },
        { "llama.final_logit_softcapping", REAL, 30, NULL, "llama.final_logit_softcapping" },
        { "llama.attention.causal", FALSE_, 0, NULL, "llama.attention.causal" },
        { "llama.attention.sliding_window", TEXT, 0, "many", "llama.attention.sliding_window" },
        { "tokenizer.ggml.eos_token_id", INT, 270, NULL,
          "tokenizer.ggml.eos_token_id: expected a token id from 0 to 269, found 270" },
        { "tokenizer.ggml.bos_token_id", INT, 1 << 30, NULL, "tokenizer.ggml.bos_token_id" },
        { "tokenizer.ggml.bos_token_id", TEXT, 0, "<s>", "tokenizer.ggml.bos_token_id: expected an integer" },
        { "tokenizer.ggml.add_bos_token", INT, 1, NULL, "tokenizer.ggml.add_bos_token: expected a bool" },
        { "tokenizer.ggml.tokens", TEXT, 0, "all", "tokenizer.ggml.tokens" },
    };
    char *good = tiny_path("good.gguf"), *bad = tiny_path("bad.gguf");
    tiny_write_gguf(good, &tiny_small);
    struct gguf *g = gguf_open(good, &err);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct gguf_writer *w = gguf_write_begin(bad, &err);
        const char *key_ = faults[i].key;
        for (size_t k = 0; k < gguf_values(g); k++)
            if (gguf_value_at(g, k) != gguf_find(g, key_))
                gguf_write_copy(w, gguf_value_at(g, k));
        if (faults[i].kind == INT)
            gguf_write_int(w, key_, GGUF_U32, (int64_t)faults[i].number);
        else if (faults[i].kind == REAL)
            gguf_write_real(w, key_, (float)faults[i].number);
        else if (faults[i].kind == TEXT)
            gguf_write_text(w, key_, faults[i].text);
        else if (faults[i].kind == FALSE_)
            gguf_write_bool(w, key_, false);
        for (size_t k = 0; k < gguf_tensors(g); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, k);
            char *name = xstrndup(t->name.s, t->name.n);
            gguf_write_tensor(w, name, t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
            free(name);
        }
        assert_true(gguf_write_end(w, &err));
        struct model_config c;
        assert_false(config_read(bad, &c, &err));
        assert_says(bad, faults[i].words);
    }
    gguf_close(g);

    // The table of rope's divisors, too short, of another type, and with a number that cannot divide.
    static const float divisors[] = { 1, 0 };
    static const struct {
        uint64_t n;
        int type;
        const char *words;
    } tables[] = { { 1, 0, "expected 2 numbers of f32" },
                   { 2, 1, "expected 2 numbers of f32" },
                   { 2, 0, "numbers above 0, found 0" } };
    g = gguf_open(good, &err);
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        struct gguf_writer *w = gguf_write_begin(bad, &err);
        for (size_t k = 0; k < gguf_values(g); k++)
            gguf_write_copy(w, gguf_value_at(g, k));
        gguf_write_tensor(w, "rope_freqs.weight", 1, &tables[i].n, tables[i].type, divisors, sizeof(divisors));
        assert_true(gguf_write_end(w, &err));
        struct model_config c;
        assert_false(config_read(bad, &c, &err));
        assert_says(bad, tables[i].words);
    }
    gguf_close(g);
    free(good);
    free(bad);
}

static int forget(void **state)
{
    (void)state;
    free(bytes.s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gguf_file_with_one_fault_is_refused),
        cmocka_unit_test(a_missing_tensor_is_named_as_its_file_would_name_it),
        cmocka_unit_test(a_type_we_do_not_know_is_refused_when_it_is_asked_for),
        cmocka_unit_test(a_safetensors_file_with_one_fault_is_refused),
        cmocka_unit_test(an_index_with_one_fault_is_refused),
        cmocka_unit_test(a_config_that_we_would_have_to_ignore_is_refused),
        cmocka_unit_test(metadata_that_we_would_have_to_ignore_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
