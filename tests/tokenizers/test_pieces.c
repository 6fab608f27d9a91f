// test_pieces.c - SentencePiece's models in three forms: ids equal those of sentencepiece and of Hugging Face's tokenizers
// (tests/cases/pieces, written by make_small.py), and damaged files are refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/tokenizers/base64.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/files/mapped.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "models/tokenizers/tokenizer.h"

static struct error err;
static const char *const names[] = { "bpe_bytes", "bpe_spaces", "unigram", "unigram_identity" };
static const char *const forms[] = { "model", "gguf", "json" };

static char *written(const char *name, const void *data, size_t n)
{
    char *path = test_path(name);
    FILE *f = fopen(path, "wbe");
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    return path;
}

static void expect_ids(const char *what, const char *text, const struct json *expected, const struct ids *got)
{
    bool same = json_count(expected) == got->n;
    for (size_t i = 0; i < got->n && same; i++)
        same = json_int(json_at(expected, i)) == got->id[i];
    if (!same)
        fail_msg("%s: \"%s\": other ids", what, text);
}

static void check_form(const char *name, const char *form)
{
    char *path = xformat("%s/pieces/%s.%s", CASES, name, form), *lines = xformat("%s/pieces/%s.jsonl", CASES, name);
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_ok(t != NULL, err);
    FILE *f = fopen(lines, "re");
    assert_non_null(f);
    char *line = NULL;
    size_t capacity = 0;
    int texts = 0;
    const bool is_json = strcmp(form, "json") == 0;
    for (ssize_t n; (n = getline(&line, &capacity, f)) > 0; texts++) {
        struct json *j = json_parse(line, (size_t)n, "golden", &err);
        const struct json *text = json_get(j, "text"), *decoded = json_get(j, is_json ? "decoded" : "model_decoded");
        struct ids ids = { 0 };
        assert_ok(tokenizer_encode(t, json_text(text), json_text_length(text), false, &ids, &err), err);
        expect_ids(path, json_text(text), json_get(j, is_json ? "json" : "model"), &ids);
        struct text out = { 0 };
        struct decoding state = { 0 };
        text_puts(&out, "");
        tokenizer_decode(t, ids.id, ids.n, true, &state, &out);
        tokenizer_decode_end(&state, &out);
        assert_string_equal(out.s, json_text(decoded));
        // One token at a time gives the same text.
        struct text steps = { 0 };
        state = (struct decoding){ 0 };
        text_puts(&steps, "");
        for (size_t i = 0; i < ids.n; i++)
            tokenizer_decode(t, &ids.id[i], 1, true, &state, &steps);
        tokenizer_decode_end(&state, &steps);
        assert_string_equal(out.s, steps.s);
        free(out.s);
        free(steps.s);
        free(ids.id);
        json_free(j);
    }
    assert_int_equal(texts, 60);
    fclose(f);
    free(line);
    tokenizer_close(t);
    free(path);
    free(lines);
}

static void ids_equal_those_of_the_libraries(void **state)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        for (size_t k = 0; k < sizeof(forms) / sizeof(*forms); k++)
            check_form(names[i], forms[k]);
}

// Models that no trainer makes (make_odd_pieces.py): unused pieces, characters without a token, user-defined pieces that overlap others.
static void odd_models_are_read_as_sentencepiece_reads_them(void **state)
{
    char *lines = xformat("%s/pieces/odd.jsonl", CASES), *line = NULL;
    FILE *f = fopen(lines, "re");
    assert_non_null(f);
    size_t capacity = 0;
    int models = 0;
    for (ssize_t n; (n = getline(&line, &capacity, f)) > 0; models++) {
        struct json *j = json_parse(line, (size_t)n, "odd", &err);
        const struct json *base64 = json_get(j, "model"), *encode = json_get(j, "encode"),
                          *decode = json_get(j, "decode");
        size_t bytes;
        void *model = base64_decode(json_text(base64), json_text_length(base64), &bytes);
        char *path = written("odd.model", model, bytes);
        struct tokenizer *t = tokenizer_open(path, &err);
        assert_ok(t != NULL, err);
        for (size_t i = 0; i < json_count(encode); i++) {
            const struct json *text = json_at(json_at(encode, i), 0);
            struct ids ids = { 0 };
            assert_ok(tokenizer_encode(t, json_text(text), json_text_length(text), false, &ids, &err), err);
            expect_ids(path, json_text(text), json_at(json_at(encode, i), 1), &ids);
            free(ids.id);
        }
        for (size_t i = 0; i < json_count(decode); i++) {
            const struct json *ids = json_at(json_at(decode, i), 0);
            struct text out = { 0 };
            struct decoding decoding = { 0 };
            text_puts(&out, "");
            for (size_t k = 0; k < json_count(ids); k++)
                tokenizer_decode(t, &(int32_t){ (int32_t)json_int(json_at(ids, k)) }, 1, true, &decoding, &out);
            assert_string_equal(out.s, json_text(json_at(json_at(decode, i), 1)));
            free(out.s);
        }
        tokenizer_close(t);
        free(path);
        free(model);
        json_free(j);
    }
    assert_int_equal(models, 40);
    fclose(f);
    free(line);
    free(lines);
}

// Special tokens are text unless they are asked for.
static void control_tokens_match_where_special_tokens_do(void **state)
{
    char *path = xformat("%s/pieces/bpe_bytes.model", CASES);
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_ok(t != NULL, err);
    const int32_t bos = tokenizer_id(t, "<s>");
    assert_true(bos >= 0 && tokenizer_is_special(t, bos));
    for (int special = 0; special < 2; special++) {
        struct ids ids = { 0 };
        assert_true(tokenizer_encode(t, "<s>the<s>", 9, special, &ids, &err));
        assert_int_equal(ids.id[0] == bos && ids.id[ids.n - 1] == bos, special);
        free(ids.id);
    }
    tokenizer_close(t);
    free(path);
}

// A file cut anywhere, and with any byte changed, opens or is one sentence.
static void damaged_models_do_no_harm(void **state)
{
    char *path = xformat("%s/pieces/unigram.model", CASES), *made = test_path("damaged.model");
    struct mapping file;
    assert_ok(file_map(path, &file, &err), err);
    uint8_t *copy = xmalloc(file.n);
    int refused = 0;
    for (size_t i = 1; i < file.n; i += 1 + file.n / 400) {
        for (int change = 0; change < 2; change++) {
            memcpy(copy, file.at, file.n);
            copy[i] ^= change ? 0x55 : 0;
            free(written("damaged.model", copy, change ? file.n : i));
            struct tokenizer *t = tokenizer_open(made, &err);
            refused += t == NULL;
            if (t == NULL)
                assert_true(strstr(err.text, "damaged.model") != NULL && strchr(err.text, '\n') == NULL);
            struct ids ids = { 0 };
            struct error ignored;
            if (t != NULL)
                tokenizer_encode(t, "I'm the \xC3\xA9", 10, true, &ids, &ignored);
            free(ids.id);
            tokenizer_close(t);
        }
    }
    assert_true(refused > 200);
    file_unmap(&file);
    free(copy);
    free(made);
    free(path);
}

static void expect_refused(const char *name, const char *content, const char *message)
{
    char *path = written(name, content, strlen(content));
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_null(t);
    if (strstr(err.text, message) == NULL || strstr(err.text, name) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", err.text, message);
    free(path);
}

static void damaged_ranks_are_refused_by_line(void **state)
{
    expect_refused("three.tiktoken", "IQ== 0\nIg== 1\nIw== 2\n",
                   "a tiktoken file with 3 ranks is not known (Llama 3's has 128000");
    struct text lines = { 0 };
    for (int i = 0; i < 128000; i++)
        text_printf(&lines,
                    i == 4   ? "!!!! 4\n"
                    : i == 7 ? "AAAA seven\n"
                             : "%c%c%c%c %d\n",
                    'A' + i % 26, 'A' + i / 26 % 26, 'A' + i / 676 % 26, 'A' + i / 17576 % 26, i);
    expect_refused("bad.model", lines.s, "line 5: expected a token in base64");
    memcpy(strstr(lines.s, "!!!!"), "AAAB", 4);
    expect_refused("bad.model", lines.s, "bad.model: line 8: expected a token in base64 and its rank, 7");
    free(lines.s);
    expect_refused("tekken.json", "{\"config\": {\"default_num_special_tokens\": 1}}",
                   "expected vocab, a list, and in config pattern");
    expect_refused(
        "tekken.json",
        "{\"config\": {\"default_num_special_tokens\": 1, \"default_vocab_size\": 3, \"pattern\": \"a\"}, \"vocab\": [{\"rank\": 0, "
        "\"token_bytes\": \"AA==\"}, {\"rank\": 5, \"token_bytes\": \"AQ==\"}]}",
        "token 1 of vocab: expected rank 1 and token_bytes");
    expect_refused(
        "tekken.json",
        "{\"config\": {\"default_num_special_tokens\": 1, \"default_vocab_size\": 2, \"pattern\": \"a\"}, \"vocab\": [{\"rank\": 0, "
        "\"token_bytes\": \"AA==\"}]}",
        "the byte 0x01 has no token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_those_of_the_libraries),
        cmocka_unit_test(odd_models_are_read_as_sentencepiece_reads_them),
        cmocka_unit_test(control_tokens_match_where_special_tokens_do),
        cmocka_unit_test(damaged_models_do_no_harm),
        cmocka_unit_test(damaged_ranks_are_refused_by_line),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
