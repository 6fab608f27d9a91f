// test_quantize.c - quantized models: blocks equal gguf-py's, and everything else is unchanged.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "kernels/backend.h"
#include "formats/gguf.h"
#include "commands/checkpoint/quantize.h"
#include "tokenizers/tokenizer.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/model_runner.h"
#include "tests/support/small_model.h"

static struct error err;
static const enum type targets[] = { Q8_0, Q4_0, BF16 };
enum { TARGETS = sizeof(targets) / sizeof(*targets) };

static size_t bytes_of_hex(const char *hex, void *to)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++)
        sscanf(hex + 2 * i, "%2hhx", (unsigned char *)to + i);
    return n;
}

static void same_bytes(const uint8_t *got, const uint8_t *expected, size_t n, const char *type, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != expected[i])
            fail_msg("%s, %s: byte %zu is %02x, not %02x", type, what, i, got[i], expected[i]);
}

static void blocks_are_byte_for_byte_those_of_gguf_py(void **state)
{
    static const struct {
        const char *key;
        enum type type;
    } types[] = { { "Q8_0", Q8_0 }, { "Q4_0", Q4_0 }, { "BF16", BF16 }, { "MXFP4", MXFP4 } };
    struct json *j = golden_json("quantized.json"), *list = json_get(j, "blocks");
    assert_true(json_count(list) > 20);
    for (size_t i = 0; i < json_count(list); i++)
        for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
            const struct json *block = json_at(list, i);
            float x[32];
            uint8_t expected[64], got[64];
            assert_int_equal(bytes_of_hex(json_text(json_get(block, "x")), x), sizeof(x));
            size_t n = bytes_of_hex(json_text(json_get(block, types[t].key)), expected);
            assert_int_equal(n, type_row_bytes(types[t].type, 32));
            assert_true(quantize_floats(types[t].type, x, 32, got));
            same_bytes(got, expected, n, types[t].key, json_text(json_get(block, "what")));
        }
    json_free(j);
}

static void bf16_keeps_infinities_and_nans(void **state)
{
    struct json *j = golden_json("quantized.json");
    const struct json *odd = json_at(json_get(j, "odd"), 0);
    float x[32];
    uint8_t expected[64], got[64];
    bytes_of_hex(json_text(json_get(odd, "x")), x);
    size_t n = bytes_of_hex(json_text(json_get(odd, "BF16")), expected);
    assert_int_equal(n, 64);
    assert_false(quantize_floats(BF16, x, 32, got)); // and reports them
    same_bytes(got, expected, n, "BF16", "odd numbers");
    json_free(j);
}

static void numbers_outside_the_range_of_a_type_are_reported(void **state)
{
    static const float odd[] = { INFINITY, -INFINITY, NAN, 3.4e38f };
    uint8_t to[256];
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        float x[64] = { 1, -2 };
        x[37] = odd[i];
        assert_false(quantize_floats(Q8_0, x, 64, to)); // 3.4e38 / 127 exceeds the largest half
        assert_false(quantize_floats(Q4_0, x, 64, to));
        assert_false(quantize_floats(BF16, x, 64, to)); // 3.4e38 rounds up to infinity
        assert_true(quantize_floats(F32, x, 64, to) == (i == 3));
    }
    // The scale is so small that its reciprocal is infinite: zeros, since the scale is zero as a half anyway.
    float x[32] = { 1e-40f, -1e-40f };
    assert_true(quantize_floats(Q8_0, x, 32, to));
    for (int i = 0; i < 34; i++)
        assert_int_equal(to[i], 0);
}

static void quantize(const char *from, enum type type, const char *to, struct quantize_summary *done)
{
    assert_ok(quantize_model(from, type, to, one_cpu, NULL, done, &err), err);
}

static bool is_matrix(const char *name)
{
    return strstr(name, "norm") == NULL && strstr(name, ".bias") == NULL && strstr(name, "rope") == NULL;
}

static float *expanded(struct tensor t)
{
    float *x = xmalloc((size_t)(t.rows * t.width) * sizeof(*x));
    int32_t *row = xcalloc((size_t)t.rows, sizeof(*row));
    for (int32_t i = 0; i < t.rows; i++)
        row[i] = i;
    one_cpu->take(one_cpu, tensor_of(x, F32, t.rows, t.width), t, row);
    free(row);
    return x;
}

// Every matrix of `made` equals that of `from` in this type if its row length allows; everything else has the same bytes.
static void agrees(const char *made, const char *from, enum type type)
{
    struct checkpoint a = checkpoint_open(from), b = checkpoint_open(made);
    const char *name, *stored;
    int64_t rows, width;
    size_t bytes, n = 0;
    for (; weights_list(a.weights, n, &name, &stored, &rows, &width, &bytes); n++) {
        struct tensor x = checkpoint_tensor(&a, name, rows, width), y = checkpoint_tensor(&b, name, rows, width);
        enum type wanted = is_matrix(name) && width % type_facts[type].block == 0 ? type : x.type;
        assert_int_equal(y.type, wanted);
        if (wanted == x.type) {
            assert_memory_equal(x.data, y.data, bytes);
            continue;
        }
        float *v = expanded(x);
        uint8_t *row = xmalloc(type_row_bytes(type, width));
        for (int64_t r = 0; r < rows; r++) {
            assert_true(quantize_floats(type, v + r * width, width, row));
            assert_memory_equal(row, tensor_rows(y, r, 1).data, type_row_bytes(type, width));
        }
        free(row);
        free(v);
    }
    assert_false(weights_list(b.weights, n, &name, &stored, &rows, &width, &bytes));
    assert_non_null(b.config.quantized);
    checkpoint_close(&a);
    checkpoint_close(&b);
}

static void a_gguf_file_of_any_type_is_converted(void **state)
{
    for (int source = 0; source < TYPES && type_facts[source].ggml >= 0; source++)
        for (int t = 0; t < TARGETS; t++) {
            struct small_model tiny = small_blocks;
            tiny.type = (enum type)source;
            tiny.tied = source % 2 == 0;
            tiny.bias = source % 3 == 0;
            char *from = xformat("%s/from_%s.gguf", test_directory(), type_facts[source].name),
                 *to = xformat("%s/%s_to_%s.gguf", test_directory(), type_facts[source].name,
                               type_facts[targets[t]].name);
            struct quantize_summary done;
            small_write_gguf(from, &tiny);
            quantize(from, targets[t], to, &done);
            agrees(to, from, targets[t]);
            int matrices = 2 * 7 + (tiny.tied ? 1 : 2), odd = targets[t] == BF16 ? 0 : 2;
            // tiny stores rows that are not a multiple of its type's block size as F32: rows of 64 and 80 in k-quants.
            assert_int_equal(done.changed + done.same, matrices - odd);
            assert_int_equal(done.unchanged, odd);
            assert_true(odd == 0 ? done.unchanged_names == NULL
                                 : strcmp(done.unchanged_names, "blk.0.ffn_down.weight, blk.1.ffn_down.weight") == 0);
            free(done.unchanged_names);
            free(from);
            free(to);
        }
}

static void metadata_of_a_gguf_file_are_kept(void **state)
{
    static const int numbers[] = { [Q8_0] = 7, [Q4_0] = 2, [BF16] = 32 }; // llama.cpp's enum llama_ftype
    char *from = test_path("from_f32.gguf");
    struct gguf *a = gguf_open(from, &err);
    assert_non_null(a);
    for (int t = 0; t < TARGETS; t++) {
        char *to = xformat("%s/f32_to_%s.gguf", test_directory(), type_facts[targets[t]].name);
        struct gguf *b = gguf_open(to, &err);
        struct gguf_string mark;
        int64_t number;
        assert_int_equal(gguf_values(b), gguf_values(a) + 2);
        for (size_t i = 0; i < gguf_values(a); i++) {
            const struct gguf_value *x = gguf_value_at(a, i), *y = gguf_value_at(b, i);
            assert_true(x->key.n == y->key.n && memcmp(x->key.s, y->key.s, x->key.n) == 0 && x->type == y->type);
            assert_true(x->raw_bytes == y->raw_bytes && memcmp(x->raw, y->raw, x->raw_bytes) == 0);
        }
        assert_true(gguf_int(b, "general.file_type", &number) && number == numbers[targets[t]]);
        assert_true(gguf_text(b, "speclab.quantised_from", &mark));
        assert_true(mark.n == 19 && memcmp(mark.s, "from_f32.gguf (f32)", 19) == 0);
        gguf_close(b);
        free(to);
    }
    gguf_close(a);
    free(from);
}

static void a_model_quantized_twice_names_both_sources(void **state)
{
    char *from = test_path("f32_to_q4_0.gguf"), *to = test_path("twice.gguf");
    struct quantize_summary done;
    quantize(from, Q8_0, to, &done);
    free(done.unchanged_names);
    agrees(to, from, Q8_0);
    struct checkpoint c = checkpoint_open(to);
    assert_string_equal(c.config.quantized, "f32_to_q4_0.gguf (q4_0), made from from_f32.gguf (f32)");
    checkpoint_close(&c);
    free(from);
    free(to);
}

static struct ids ids_of(const char *path, const char *text)
{
    struct ids ids = { 0 };
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_ok(t != NULL && tokenizer_encode(t, text, strlen(text), true, &ids, &err), err);
    tokenizer_close(t);
    return ids;
}

static void same_ids(const char *a, const char *b, const char *text)
{
    struct ids x = ids_of(a, text), y = ids_of(b, text);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.id, y.id, x.n * sizeof(*x.id));
    free(x.id);
    free(y.id);
}

static void a_directory_is_converted_to_bf16(void **state)
{
    static const enum type sources[] = { F32, F16, BF16 };
    for (int i = 0; i < 3; i++) {
        struct small_model t = small_blocks;
        t.type = sources[i];
        t.new_spelling = i == 1;
        t.shards = 1 + i;
        t.bias = i == 2;
        char *from = xformat("%s/hf_%d", test_directory(), i), *to = xformat("%s/hf_%d_bf16", test_directory(), i);
        char *path = xformat("%s/config.json", to);
        struct quantize_summary done;
        small_write_hf(from, &t);
        quantize(from, BF16, to, &done);
        assert_int_equal(done.unchanged, 0);
        agrees(to, from, BF16);
        struct json *j = json_read(path, &err);
        assert_string_equal(json_text(json_get(j, t.new_spelling ? "dtype" : "torch_dtype")), "bfloat16");
        assert_null(json_get(j, t.new_spelling ? "torch_dtype" : "dtype"));
        json_free(j);
        same_ids(from, to, "<|im_start|>the inning and Ünïcode 123<|im_end|>");
        free(path);
        free(from);
        free(to);
    }
}

static void same_config(const struct model_config *a, const struct model_config *b)
{
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->hidden, b->hidden);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->context, b->context);
    assert_true(a->norm_eps == b->norm_eps && a->rope.theta == b->rope.theta && a->rope.factor == b->rope.factor);
    assert_int_equal(a->tied, b->tied);
    assert_int_equal(a->attention_bias, b->attention_bias);
    assert_int_equal(a->rope.scaling, b->rope.scaling);
    assert_int_equal(a->n_end, b->n_end);
    assert_memory_equal(a->end, b->end, (size_t)a->n_end * sizeof(*a->end));
    assert_int_equal(a->add_bos, b->add_bos);
}

// tests/support/small_model.c writes both formats as llama.cpp's converter would: the converted directory must equal the
// GGUF file.
static void a_directory_is_converted_as_by_llama_cpp(void **state)
{
    struct small_model shapes[5] = { small_blocks, small_blocks, small_blocks, small_blocks, small_blocks };
    shapes[1].tied = shapes[1].bias = true;
    shapes[1].shards = 3;
    shapes[2].rope = ROPE_LLAMA3;
    shapes[2].factor = 8;
    shapes[2].low = 1;
    shapes[2].high = 4;
    shapes[2].original = 64;
    shapes[2].head_dim = 24;
    shapes[3].rope = ROPE_LINEAR;
    shapes[3].factor = 4;
    shapes[3].kv_heads = 4;
    shapes[4].kv_heads = 1;
    shapes[4].new_spelling = true;
    shapes[4].theta = 500000;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < TARGETS; k++) {
            char *hf = xformat("%s/shape_%d", test_directory(), i), *gguf = xformat("%s.gguf", hf);
            char *of_hf = xformat("%s_hf_%d.gguf", hf, k), *of_gguf = xformat("%s_gguf_%d.gguf", hf, k);
            struct quantize_summary x, y;
            if (k == 0) {
                small_write_hf(hf, &shapes[i]);
                small_write_gguf(gguf, &shapes[i]);
            }
            quantize(hf, targets[k], of_hf, &x);
            quantize(gguf, targets[k], of_gguf, &y);
            assert_int_equal(x.changed, y.changed);
            assert_int_equal(x.after, y.after);
            struct checkpoint a = checkpoint_open(of_hf), b = checkpoint_open(of_gguf);
            same_config(&a.config, &b.config);
            assert_string_equal(a.config.chat_template, b.config.chat_template);
            const char *name, *type;
            int64_t rows, width;
            size_t bytes, n = 0;
            for (; weights_list(a.weights, n, &name, &type, &rows, &width, &bytes); n++) {
                struct tensor s = checkpoint_tensor(&a, name, rows, width),
                              t = checkpoint_tensor(&b, name, rows, width);
                assert_int_equal(s.type, t.type);
                assert_memory_equal(s.data, t.data, bytes);
            }
            assert_false(weights_list(b.weights, n, &name, &type, &rows, &width, &bytes));
            checkpoint_close(&a);
            checkpoint_close(&b);
            same_ids(of_hf, of_gguf, "<|im_start|>the inning and Ünïcode 123<|im_end|> \n\n\t x");
            free(x.unchanged_names);
            free(y.unchanged_names);
            free(hf);
            free(gguf);
            free(of_hf);
            free(of_gguf);
        }
}

// llama-bpe: pieces that are tokens skip merging, special tokens are outside the model's vocabulary.
static void a_tokenizer_gives_the_same_ids_from_the_gguf_file(void **state)
{
    char *directory = test_path("l3"), *made = test_path("l3.gguf"), *tokens = xformat("%s/tokenizer.json", directory);
    struct tokenizer *t = tokenizer_open(CASES "/tokenizer_l3/tokenizer.json", &err);
    assert_non_null(t);
    struct small_model tiny = { .width = 32, .hidden = 32, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 16 };
    tiny.vocab = tokenizer_size(t) + 5; // rows without a token
    small_write_hf(directory, &tiny);
    struct text copied = checkpoint_bytes(CASES "/tokenizer_l3/tokenizer.json");
    file_write_bytes(tokens, copied.s, copied.n);
    free(copied.s);
    struct quantize_summary done;
    quantize(directory, Q8_0, made, &done);

    struct tokenizer *from_file = tokenizer_open(made, &err);
    assert_ok(from_file != NULL, err);
    assert_int_equal(tokenizer_size(from_file), tokenizer_size(t)); // padding rows stay padding
    FILE *f = fopen(CASES "/tokenizer_l3.jsonl", "r");
    assert_non_null(f);
    char *line = NULL;
    size_t capacity = 0;
    int lines = 0;
    for (ssize_t n; (n = getline(&line, &capacity, f)) > 0; lines++)
        for (int special = 0; special < 2; special++) {
            struct json *j = json_parse(line, (size_t)n, "line", &err);
            const struct json *text = json_get(j, "text");
            struct ids a = { 0 }, b = { 0 };
            assert_true(tokenizer_encode(t, json_text(text), json_text_length(text), special == 1, &a, &err) &&
                        tokenizer_encode(from_file, json_text(text), json_text_length(text), special == 1, &b, &err));
            assert_int_equal(a.n, b.n);
            assert_true(a.n == 0 || memcmp(a.id, b.id, a.n * sizeof(*a.id)) == 0);
            free(a.id);
            free(b.id);
            json_free(j);
        }
    assert_true(lines > 200);
    free(line);
    fclose(f);
    tokenizer_close(from_file);
    tokenizer_close(t);
    free(tokens);
    free(directory);
    free(made);
}

static void logits_stay_close(void **state)
{
    static const int32_t token[] = { 1, 20, 100, 270, 7, 66, 2, 35 };
    enum { N = sizeof(token) / sizeof(*token) };
    static const char *const names[] = { "from_f32.gguf", "f32_to_bf16.gguf", "f32_to_q8_0.gguf", "f32_to_q4_0.gguf" };
    static const float most[] = { 0, 0.03f, 0.03f, 0.3f };
    float *reference = NULL;
    for (int i = 0; i < 4; i++) {
        char *path = test_path(names[i]);
        struct runner r = runner_open(path, 1, NULL, 1);
        const float *logits = runner_pass(&r, N, token, NULL, NULL);
        size_t n = (size_t)N * (size_t)r.vocab;
        if (i == 0) {
            reference = xmalloc(n * sizeof(*reference));
            memcpy(reference, logits, n * sizeof(*reference));
        }
        float distance = 0, largest = 0;
        for (size_t k = 0; k < n; k++) {
            distance = fmaxf(distance, fabsf(logits[k] - reference[k]));
            largest = fmaxf(largest, fabsf(reference[k]));
        }
        print_message("%s: %.5f\n", names[i], (double)(distance / largest));
        assert_true(distance <= most[i] * largest && (i == 0 || distance > 0));
        runner_close(&r);
        free(path);
    }
    free(reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_byte_for_byte_those_of_gguf_py),
        cmocka_unit_test(bf16_keeps_infinities_and_nans),
        cmocka_unit_test(numbers_outside_the_range_of_a_type_are_reported),
        cmocka_unit_test(a_gguf_file_of_any_type_is_converted),
        cmocka_unit_test(metadata_of_a_gguf_file_are_kept),
        cmocka_unit_test(a_model_quantized_twice_names_both_sources),
        cmocka_unit_test(a_directory_is_converted_to_bf16),
        cmocka_unit_test(a_directory_is_converted_as_by_llama_cpp),
        cmocka_unit_test(a_tokenizer_gives_the_same_ids_from_the_gguf_file),
        cmocka_unit_test(logits_stay_close),
    };
    return cmocka_run_group_tests(tests, cpu_set_up, cpu_tear_down);
}
