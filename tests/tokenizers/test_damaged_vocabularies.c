// test_damaged_vocabularies.c - files that try to read outside their memory, to make texts without end, or to be something else.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/mapped.h"
#include "tests/support/tests.h"
#include "tests/formats/editable_tokenizer.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "models/tokenizers/normalizer.h"
#include "models/tokenizers/tokenizer.h"

static struct error err;

// ---- maps of characters

enum { UNITS = 256, LEAF = 3 };

static void put_u32(uint8_t *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> 8 * i);
}

// A map from the one byte `source` to the text at `target` of "xy", a zero byte, and "z".
static struct character_map *map_of(unsigned source, uint32_t target)
{
    static const char targets[] = "xy\0z";
    uint8_t data[4 + 4 * UNITS + sizeof(targets)] = { 0 };
    put_u32(data, 4 * UNITS);
    put_u32(data + 4 + 4 * source, source | 1u << 8 | (source ^ LEAF) << 10); // reached from unit 0, whose offset is 0
    put_u32(data + 4 + 4 * LEAF, 1u << 31 | target);
    memcpy(data + 4 + 4 * UNITS, targets, sizeof(targets));
    return character_map_open(data, sizeof(data), &err);
}

static size_t mapped(unsigned source, uint32_t target, const char *text, const char *expected)
{
    struct character_map *m = map_of(source, target);
    const char *to = "";
    assert_ok(m != NULL, err);
    const size_t n = character_map_longest(m, text, strlen(text), &to);
    if (n > 0)
        assert_string_equal(to, expected);
    character_map_close(m);
    return n;
}

TEST(a_map_gives_whole_characters_only)
{
    static const uint8_t not_utf8[] = { 4, 0, 0, 0, 0, 0, 0, 0, 0xC3, 0 };
    assert_int_equal(mapped('a', 0, "ab", "xy"), 1);
    assert_int_equal(mapped('a', 3, "ab", "z"), 1);
    assert_int_equal(mapped('a', 1, "ab", ""), 0);        // a target that begins inside another
    assert_int_equal(mapped('a', 9, "ab", ""), 0);        // or after all of them
    assert_int_equal(mapped(0xC3, 0, "\xC3\xA9", ""), 0); // a source that ends inside a character
    assert_null(character_map_open(not_utf8, sizeof(not_utf8), &err));
    assert_non_null(strstr(err.text, "not UTF-8: byte 0xC3 at offset 0"));
}

// ---- files

static void refused(const char *name, const void *data, size_t n, const char *message)
{
    char *path = test_path(name);
    file_write_bytes(path, data, n);
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_null(t);
    if (strstr(err.text, message) == NULL || strncmp(err.text, path, strlen(path)) != 0)
        fail_msg("\"%s\" does not contain \"%s\"", err.text, message);
    free(path);
}

TEST(a_piece_that_matches_in_texts_is_utf8)
{
    char file[] = "\x0A\x0A\x0A\x01\x61\x15\x00\x00\x80\xBF\x18\x01" // "a", -1, normal
                  "\x0A\x0A\x0A\x01\xC3\x15\x00\x00\x80\xBF\x18\x04" // half a character, user-defined
                  "\x12\x02\x18\x02";                                // BPE
    for (char kind = 4; kind >= 2; kind--) {                         // or control, or unknown
        file[23] = kind;
        refused("cut.model", file, sizeof(file) - 1, "the added token 1 is not UTF-8");
    }
}

// Nothing is read after the last byte of a file that fills its pages.
TEST(a_file_of_whole_pages_may_end_in_a_number)
{
    struct text file = { 0 };
    text_puts(&file, "IQ== 0\n");
    while (file.n < 8190)
        text_puts(&file, "A");
    text_puts(&file, " 1");
    assert_int_equal(file.n, 8192);
    refused("page.tiktoken", file.s, file.n, "");
    free(file.s);
}

TEST(a_normalizer_does_not_make_texts_without_end)
{
    char *with = xmalloc((4 << 20) + 1);
    memset(with, 'b', 4 << 20);
    with[4 << 20] = '\0';
    char *step = xformat("{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"%s\"}", with);
    struct tokenizer *t = editable_tokenizer_with("normalizer", step);
    struct ids ids = { 0 };
    char text[1000];
    memset(text, 'a', sizeof(text));
    assert_false(tokenizer_encode(t, text, sizeof(text), false, &ids, &err));
    assert_string_equal(err.text, "made.json: a normalizer makes a text of more than 268435455 bytes");
    assert_int_equal(ids.n, 0);
    tokenizer_close(t);
    free(step);
    free(with);
}

static struct tokenizer *opened(const char *name, const char *json)
{
    char *path = test_path(name);
    file_write(path, "{}");
    json_file_set(path, json);
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_ok(t != NULL, err);
    free(path);
    return t;
}

// The Unigram model has no token for what it does not know: `tokenizers` fails, too.
TEST(a_text_without_tokens_is_an_error)
{
    struct tokenizer *t =
        opened("lost.json", "{'model': {'type': 'Unigram', 'unk_id': null, 'vocab': [['a', -1], ['b', -1]]}}");
    struct ids ids = { 0 };
    assert_true(tokenizer_encode(t, "abba", 4, false, &ids, &err));
    assert_false(tokenizer_encode(t, "a lost b", 8, false, &ids, &err));
    assert_int_equal(ids.n, 4);
    assert_non_null(strstr(err.text, "a character has no token, and the model has no unk_id"));
    tokenizer_close(t);
    free(ids.id);
}

// Where a text begins is decided before it is normalized: `tokenizers` gives "a" here, and " a" in the other text.
TEST(a_deleted_beginning_is_no_beginning)
{
    struct tokenizer *t =
        opened("first.json",
               "{'normalizer': {'type': 'Strip', 'strip_left': true, 'strip_right': true}, 'pre_tokenizer': {'type': "
               "'Metaspace', 'replacement': '\u2581', 'prepend_scheme': 'first', 'split': true}, 'model': {'type': "
               "'BPE', 'vocab': {'a': 0, '\u2581': 1, '\u2581a': 2}, 'merges': [['\u2581', 'a']]}}");
    struct ids ids = { 0 };
    assert_true(tokenizer_encode(t, " a", 2, false, &ids, &err) && tokenizer_encode(t, "a", 1, false, &ids, &err));
    assert_int_equal(ids.n, 2);
    assert_true(ids.id[0] == 0 && ids.id[1] == 2);
    tokenizer_close(t);
    free(ids.id);
}

// ---- tokens that transformers adds to a tokenizer.model

TEST(tokens_that_the_model_lacks_are_not_ignored)
{
    static const struct {
        const char *file, *content, *message; // NULL: opens
    } cases[] = {
        { "added_tokens.json", "{\"<s>\": 1}", NULL },
        { "added_tokens.json", "{\"<|im_end|>\": 70000}", "does not have this token with id 70000" },
        { "added_tokens.json", "{\"<s>\": 5}", "\"<s>\": " },
        { "added_tokens.json", "{", "added_tokens.json" },
        { "tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": {\"content\": \"<s>\"}}}", NULL },
        { "tokenizer_config.json", "{\"added_tokens_decoder\": {\"99999\": {\"content\": \"[X]\"}}}", "\"[X]\": " },
        { "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"pad_token\": null}", NULL },
        { "tokenizer_config.json", "{\"pad_token\": {\"content\": \"[PAD]\"}}", "pad_token: \"[PAD]\": " },
        { "tokenizer_config.json", "{\"extra_special_tokens\": [\"<s>\", \"[X]\"]}", "does not have this token;" },
        { "special_tokens_map.json", "{\"additional_special_tokens\": [\"<|im_end|>\"]}", "does not have this token;" },
    };
    char *folder = test_path("slow"), *model = xformat("%s/tokenizer.model", folder);
    struct mapping from;
    assert_ok(file_map(CASES "/pieces/bpe_bytes.model", &from, &err), err);
    assert_int_equal(mkdir(folder, 0700), 0);
    file_write_bytes(model, from.at, from.n);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *path = xformat("%s/%s", folder, cases[i].file);
        file_write(path, cases[i].content);
        struct tokenizer *t = tokenizer_open(folder, &err);
        if (cases[i].message == NULL)
            assert_ok(t != NULL, err);
        else {
            assert_null(t);
            assert_non_null(strstr(err.text, cases[i].message));
            assert_non_null(strstr(err.text, folder));
        }
        tokenizer_close(t);
        assert_int_equal(remove(path), 0);
        free(path);
    }
    file_unmap(&from);
    free(model);
    free(folder);
}

RUN_TESTS(NULL, test_directory_tear_down)
