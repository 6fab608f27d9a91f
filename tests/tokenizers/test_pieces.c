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
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "models/tokenizers/tokenizer.h"

static struct error err;
static const char *const names[] = { "bpe_bytes", "bpe_spaces", "unigram", "unigram_identity" };
static const char *const forms[] = { "model", "gguf", "json" };

static void expect_ids(const char *what, const char *text, const struct json *expected, const struct ids *got)
{
    bool same = json_count(expected) == got->n;
    for (size_t i = 0; i < got->n && same; i++)
        same = json_int(json_at(expected, i)) == got->id[i];
    if (!same)
        fail_msg("%s: \"%s\": other ids", what, text);
}

// Encodes a text and checks its ids.
static void check_ids(const struct tokenizer *t, const char *what, const struct json *text, const struct json *expected)
{
    struct ids ids = { 0 };
    assert_ok(tokenizer_encode(t, json_text(text), json_text_length(text), false, &ids, &err), err);
    expect_ids(what, json_text(text), expected, &ids);
    free(ids.id);
}

// Decodes ids, all at once or one by one.
static void check_text(const struct tokenizer *t, const struct json *ids, const struct json *expected, size_t step)
{
    struct text out = { 0 };
    struct decoding state = { 0 };
    int32_t id[1024];
    const size_t n = json_count(ids);
    assert_true(n <= 1024);
    text_puts(&out, "");
    for (size_t i = 0; i < n; i++)
        id[i] = (int32_t)json_int(json_at(ids, i));
    for (size_t i = 0; i < n; i += step)
        tokenizer_decode(t, id + i, step < n ? step : n, true, &state, &out);
    tokenizer_decode_end(&state, &out);
    assert_string_equal(out.s, json_text(expected));
    free(out.s);
}

// Calls f with each line of a file of tests/cases/pieces. Returns their number.
static int each_line(const char *name, void (*f)(void *self, const struct json *line), void *self)
{
    char *path = xformat("%s/pieces/%s.jsonl", CASES, name), *line = NULL;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t capacity = 0;
    int lines = 0;
    for (ssize_t n; (n = getline(&line, &capacity, file)) > 0; lines++) {
        struct json *j = json_parse(line, (size_t)n, name, &err);
        assert_ok(j != NULL, err);
        f(self, j);
        json_free(j);
    }
    fclose(file);
    free(line);
    free(path);
    return lines;
}

struct form {
    struct tokenizer *tokenizer;
    const char *path;
    bool json;
};

static void check_line(void *self, const struct json *j)
{
    const struct form *f = self;
    const struct json *ids = json_get(j, f->json ? "json" : "model"),
                      *decoded = json_get(j, f->json ? "decoded" : "model_decoded");
    check_ids(f->tokenizer, f->path, json_get(j, "text"), ids);
    check_text(f->tokenizer, ids, decoded, SIZE_MAX);
    check_text(f->tokenizer, ids, decoded, 1);
}

TEST(ids_equal_those_of_the_libraries)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        for (size_t k = 0; k < sizeof(forms) / sizeof(*forms); k++) {
            char *path = xformat("%s/pieces/%s.%s", CASES, names[i], forms[k]);
            struct form f = { tokenizer_open(path, &err), path, strcmp(forms[k], "json") == 0 };
            assert_ok(f.tokenizer != NULL, err);
            assert_int_equal(each_line(names[i], check_line, &f), 60);
            tokenizer_close(f.tokenizer);
            free(path);
        }
}

static void check_odd_model(void *unused, const struct json *j)
{
    const struct json *base64 = json_get(j, "model"), *encode = json_get(j, "encode"), *decode = json_get(j, "decode");
    size_t bytes;
    void *model = base64_decode(json_text(base64), json_text_length(base64), &bytes);
    char *path = test_path("odd.model");
    file_write_bytes(path, model, bytes);
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_ok(t != NULL, err);
    for (size_t i = 0; i < json_count(encode); i++)
        check_ids(t, path, json_at(json_at(encode, i), 0), json_at(json_at(encode, i), 1));
    for (size_t i = 0; i < json_count(decode); i++)
        check_text(t, json_at(json_at(decode, i), 0), json_at(json_at(decode, i), 1), 1);
    tokenizer_close(t);
    free(path);
    free(model);
}

// Models that no trainer makes (make_odd_pieces.py): unused pieces, characters without a token, user-defined pieces that overlap others.
TEST(odd_models_are_read_as_sentencepiece_reads_them)
{
    assert_int_equal(each_line("odd", check_odd_model, NULL), 40);
}

// Special tokens are text unless they are asked for.
TEST(control_tokens_match_where_special_tokens_do)
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
TEST(damaged_models_do_no_harm)
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
            file_write_bytes(made, copy, change ? file.n : i);
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
    char *path = test_path(name);
    file_write(path, content);
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_null(t);
    if (strstr(err.text, message) == NULL || strstr(err.text, name) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", err.text, message);
    free(path);
}

TEST(damaged_ranks_are_refused_by_line)
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
}

TEST(a_tekken_file_that_contradicts_itself_is_refused)
{
#define TWO(RANK, BYTES) "[{'rank': 0, 'token_bytes': 'YQ=='}, {'rank': " RANK ", 'token_bytes': '" BYTES "'}]"
    static const struct {
        const char *size, *rest, *words;
    } cases[] = {
        { "null", "}", "expected vocab, a list, and in config pattern" },
        { "3", ", 'vocab': " TWO("5", "AQ==") "}", "token 1 of vocab: expected rank 1 and token_bytes" },
        { "3", ", 'vocab': " TWO("1", "YQ==") "}", "token 1: the same token as id 1" },
        { "2", ", 'vocab': " TWO("1", "Yg==") "}", "the byte 0x00 has no token" },
        { "3",
          ", 'vocab': " TWO(
              "1", "Yg==") ", 'special_tokens': [{'rank': 0, 'token_str': '<s>'}, {'rank': 1, 'token_str': '</s>'}]}",
          "expected 1 special_tokens" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *quoted =
            xformat("{'config': {'default_num_special_tokens': 1, 'default_vocab_size': %s, 'pattern': '.'}%s",
                    cases[i].size, cases[i].rest);
        struct json *j = json_of(quoted);
        char *text = json_write(j);
        expect_refused("tekken.json", text, cases[i].words);
        json_free(j);
        free(text);
        free(quoted);
    }
}

RUN_TESTS(NULL, test_directory_tear_down)
