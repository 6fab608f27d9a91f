// test_quantize_command.c - errors of `speclab quantize` are one sentence, and the command reports its result.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "commands/checkpoint/quantize.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/model_runner.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

static struct error err;

static void refused(const char *from, enum type type, const char *to, const char *with)
{
    struct quantize_summary done;
    char *part = xformat("%s.part", to);
    bool existed = access(to, F_OK) == 0, ok = quantize_model(from, type, to, one_cpu, NULL, &done, &err);
    free(done.unchanged_names);
    if (ok)
        fail_msg("%s to %s was not refused", from, to);
    print_message("%s\n", err.text);
    expect_contains(err.text, with);
    assert_true((access(to, F_OK) == 0) == existed);
    assert_int_not_equal(access(part, F_OK), 0);
    free(part);
}

// Writes a model directory with the first `old` in one of its files replaced by `new`.
static char *edited(const char *directory, const char *file, const char *old, const char *new)
{
    struct small_model t = small_blocks;
    char *to = test_path(directory), *path = xformat("%s/%s", to, file);
    small_write_hf(to, &t);
    struct text whole = checkpoint_bytes(path);
    text_add(&whole, "", 1);
    char *at = strstr(whole.s, old);
    assert_non_null(at);
    char *text = xformat("%.*s%s%s", (int)(at - whole.s), whole.s, new, at + strlen(old));
    file_write(path, text);
    free(text);
    free(whole.s);
    free(path);
    return to;
}

static void impossible_conversions_are_one_sentence(void **state)
{
    char *gguf = test_path("from_f32.gguf"), *hf = test_path("hf_0"), *to = test_path("none.gguf"),
         *directory = test_path("none"), *existing = test_path("f32_to_bf16.gguf");
    refused(gguf, Q8_0, directory, "the model is a GGUF file");
    refused(hf, Q8_0, directory, "cannot store q8_0");
    refused(hf, Q4_0, directory, "cannot store q4_0");
    refused(gguf, Q8_0, gguf, "onto itself");
    refused(hf, BF16, hf, "onto itself");
    refused(gguf, Q8_0, existing, "not overwritten");
    refused(gguf, Q8_0, "/nonexistent/folder/x.gguf", "/nonexistent/folder/x.gguf");
    refused("/nonexistent.gguf", Q8_0, to, "/nonexistent.gguf");
    static const struct {
        const char *file, *old, *new, *with;
    } edits[] = {
        { "tokenizer.json", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", "normalizes" },
        { "tokenizer.json", "\"individual_digits\":true", "\"individual_digits\":false", "pre_tokenizer" },
        { "tokenizer.json", "\"add_prefix_space\":false", "\"add_prefix_space\":true", "pre_tokenizer" },
        { "tokenizer.json", "\"lstrip\":false", "\"lstrip\":true", "lstrip" },
        { "tokenizer.json", "\"normalized\":false", "\"normalized\":true", "normalized" },
        { "tokenizer.json", "\"ignore_merges\":false", "\"ignore_merges\":true", "pre_tokenizer" },
        { "tokenizer.json", "\"ByteLevel\"", "\"Metaspace\"", "byte-level" },
        { "tokenizer.json", "{\"id\":0", "{\"id\":999,\"content\":\"<x>\",\"special\":true},{\"id\":0",
          "rows for them" },
        { "config.json", "\"eos_token_id\":2", "\"eos_token_id\":[2, 9, 10, 11, 12]", "end a text" },
        { "config.json", "\"num_hidden_layers\":2", "\"num_hidden_layers\":3", "layers.2" },
        { "config.json", "\"num_hidden_layers\":2", "\"num_hidden_layers\":1",
          "num_hidden_layers is 1, but the file has tensors of 2 layers" },
        { "config.json", "\"intermediate_size\":80", "\"intermediate_size\":81", "expected 81 rows of 256" },
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(*edits); i++) {
        char name[16];
        snprintf(name, sizeof(name), "edited_%zu", i);
        char *from = edited(name, edits[i].file, edits[i].old, edits[i].new);
        refused(from, Q8_0, to, edits[i].with);
        free(from);
    }
    free(gguf);
    free(hf);
    free(to);
    free(directory);
    free(existing);
}

static void a_value_that_is_not_finite_is_named(void **state)
{
    const float nan_value = NAN;
    char *hf = test_path("broken"), *weights = xformat("%s/model.safetensors", hf), *to = test_path("none.gguf"),
         *directory = test_path("none");
    small_write_hf(hf, &small_blocks);
    FILE *f = fopen(weights, "r+b"); // the last tensor is the last norm, before it the v projection of layer 1
    assert_non_null(f);
    fseek(f, -(long)((256 + 3) * sizeof(nan_value)), SEEK_END);
    fwrite(&nan_value, sizeof(nan_value), 1, f);
    fclose(f);
    refused(hf, Q8_0, to, "tensor blk.1.attn_v.weight: row 31 holds a number that is not finite");
    refused(hf, BF16, directory, "tensor model.layers.1.self_attn.v_proj.weight: row 31");
    free(hf);
    free(weights);
    free(to);
    free(directory);
}

// A limit on the size of files simulates a disk that fills up halfway.
static void a_full_disk_leaves_no_files(void **state)
{
    for (int gguf = 0; gguf < 2; gguf++) {
        char *from = test_path(gguf ? "from_f32.gguf" : "hf_0"), *to = test_path(gguf ? "none.gguf" : "none");
        file_size_limit(100000);
        refused(from, BF16, to, "File too large");
        file_size_limit(-1);
        free(from);
        free(to);
    }
}

static void errors_are_one_sentence(void **state)
{
    if (!child_is_present())
        skip();
    static const struct mistake mistakes[] = {
        { 2, "quantize", "missing argument" },
        { 2, "quantize %s", "--type TYPE is needed" },
        { 2, "quantize %s --type q8_0", "--out PATH is needed" },
        { 2, "quantize %s --type q8_0 --out ''", "--out PATH is needed" },
        { 2, "quantize %s --type q4_1 --out x.gguf", "expected q8_0, q4_0 or bf16, found \"q4_1\"" },
        { 2, "quantize %s --type Q8 --out x.gguf", "found \"Q8\"" },
        { 2, "quantize %s --tpye q8_0 --out x.gguf", "unknown option" },
        { 2, "quantize %s other --type q8_0 --out x.gguf", "unexpected argument \"other\"" },
        { 2, "quantize %s --type q8_0 --out x", "expected an output name that ends with .gguf" },
        { 2, "quantize %s --type", "requires a value" },
        { 1, "quantize %s --type q8_0 --out /nonexistent/x.gguf", "/nonexistent/x.gguf" },
        { 1, "quantize no-such-model --type q8_0 --out x.gguf", "no-such-model" },
        { 1, "quantize /dev/null --type q8_0 --out x.gguf", "/dev/null" },
    };
    char *gguf = test_path("from_f32.gguf"), *hf = test_path("hf_0");
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), gguf);
    char *words = xformat("quantize %s --type q8_0 --out x", hf);
    child_expect_error(2, "cannot store q8_0", words);
    free(words);
    words = xformat("quantize %s --type q8_0 --out %s", gguf, gguf);
    child_expect_error(1, "onto itself", words);
    free(words);
    free(gguf);
    free(hf);
}

static void help_is_on_stdout(void **state)
{
    if (!child_is_present())
        skip();
    static const char *const commands[] = { "quantize", "inflate" };
    for (size_t i = 0; i < 2; i++) {
        struct child_result s = child_run("%s --help", commands[i]);
        child_expect_success(&s, commands[i]);
        assert_non_null(strstr(s.out, "Usage: speclab "));
        assert_non_null(strstr(s.out, "Examples:"));
        assert_string_equal(s.err, "");
        child_result_free(&s);
    }
}

static void quantize_and_inspect_report_the_result(void **state)
{
    if (!child_is_present())
        skip();
    char *gguf = test_path("from_f32.gguf"), *to = test_path("quantized.gguf");
    struct child_result s = child_run("quantize %s --type q4_0 --out %s", gguf, to);
    child_expect_success(&s, "quantize");
    print_message("%s", s.out);
    assert_non_null(strstr(s.out, "quantized.gguf: 0.3 MB, from 1.2 MB"));
    assert_non_null(strstr(s.out, "13 matrices are q4_0 now"));
    assert_non_null(strstr(s.out, "blk.0.ffn_down.weight, blk.1.ffn_down.weight\n"));
    assert_string_equal(s.err, "");
    child_result_free(&s);
    s = child_run("inspect --no-probe %s", to);
    assert_non_null(strstr(s.out, "quantized   from from_f32.gguf (f32)"));
    child_result_free(&s);
    s = child_run("inspect --no-probe --json %s", to);
    struct json *j = child_result_json(&s);
    assert_string_equal(json_text(json_get(j, "quantized_from")), "from_f32.gguf (f32)");
    assert_true(json_is_null(json_get(j, "inflated_from")));
    json_free(j);
    child_result_free(&s);
    free(gguf);
    free(to);
}

static int set_up(void **state)
{
    struct small_model t = small_blocks;
    char *hf = test_path("hf_0"), *gguf = test_path("from_f32.gguf"), *made = test_path("f32_to_bf16.gguf");
    struct quantize_summary done;
    small_write_hf(hf, &t);
    t.tied = t.bias = true;
    small_write_gguf(gguf, &t);
    bool ok = cpu_set_up(state) == 0 && quantize_model(gguf, BF16, made, one_cpu, NULL, &done, &err);
    free(hf);
    free(gguf);
    free(made);
    return ok ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_conversions_are_one_sentence),
        cmocka_unit_test(a_value_that_is_not_finite_is_named),
        cmocka_unit_test(a_full_disk_leaves_no_files),
        cmocka_unit_test(errors_are_one_sentence),
        cmocka_unit_test(help_is_on_stdout),
        cmocka_unit_test(quantize_and_inspect_report_the_result),
    };
    return cmocka_run_group_tests(tests, set_up, cpu_tear_down);
}
