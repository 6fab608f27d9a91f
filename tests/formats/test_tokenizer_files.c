// test_tokenizer_files.c - every setting of a tokenizer in tokenizer.json and GGUF is implemented, or refused by name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/gguf_write.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/readers.h"
#include "tests/support/check.h"
#include "tests/formats/editable_tokenizer.h"
#include "tests/support/small_model.h"

static struct error err;

// ---- supported settings -----------------------------------------------------------------------------------------

static void expect_all(const char *path, const char *value, const char *const (*pairs)[2], size_t n)
{
    struct tokenizer *t = editable_tokenizer_with(path, value);
    for (size_t i = 0; i < n; i++)
        editable_expect(t, pairs[i][0], true, pairs[i][1]);
    tokenizer_close(t);
}

#define EXPECT_ALL(path, value, pairs) expect_all(path, value, pairs, sizeof(pairs) / sizeof(*(pairs)))

static void merges_are_applied_by_rank(void **state)
{
    static const char *const pairs[][2] = {
        { "", "" },
        { "the the", "the| the" },
        { "aaaaa", "aa|aa|a" },
        { "thathen th e", "th|a|the|n| |th| |e" },
    };
    EXPECT_ALL("version", "\"1.0\"", pairs);
    EXPECT_ALL("model.merges", "[[\"t\", \"h\"], [\"th\", \"e\"], [\"Ġ\", \"the\"], [\"a\", \"a\"]]", pairs);
    EXPECT_ALL("model.merges", "[\"#version: 0.2\", \"t h\", \"th e\", \"Ġ the\", \"a a\"]", pairs);
    EXPECT_ALL("model.merges", "[\"a a\", \"a a\", \"t h\", \"th e\", \"Ġ the\"]", pairs);
    static const char *const whole[][2] = { { "the the", "the| the" }, { "aaaaa th", "a|a|a|a|a| |t|h" } };
    struct json *j = editable_json();
    editable_set(j, "model.ignore_merges", "true");
    editable_set(j, "model.merges", "[]");
    struct tokenizer *t = editable_tokenizer(j);
    for (int i = 0; i < 2; i++)
        editable_expect(t, whole[i][0], true, whole[i][1]);
    tokenizer_close(t);
}

static void old_files_that_do_not_name_their_model_are_read(void **state)
{
    static const char *const pairs[][2] = { { "the", "the" } };
    EXPECT_ALL("model.type", "null", pairs);
    EXPECT_ALL("model.continuing_subword_prefix", "\"\"", pairs);
    EXPECT_ALL("model.unk_token", "\"\"", pairs); // GPT-2's; all of its bytes have tokens
    EXPECT_ALL("model.byte_fallback", "true", pairs);
    EXPECT_ALL("model.dropout", "0.0", pairs);
}

static void pre_tokenizers_follow_one_another(void **state)
{
    static const char *const digits[][2] = { { "the 12", "the| |1|2" }, { "aa1aa", "aa|1|aa" } };
    EXPECT_ALL("pre_tokenizer",
               "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": true},"
               "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}]}",
               digits);
    static const char *const prefixed[][2] = { { "the", " the" }, { " the", " the" }, { "", "" } };
    EXPECT_ALL("pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"use_regex\": false}",
               prefixed);
    static const char *const literal[][2] = { { "a.a aa", "a|.|a| |aa" } };
    EXPECT_ALL(
        "pre_tokenizer",
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"String\": \".\"},"
        "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}",
        literal);
    static const char *const removed[][2] = { { "the the", "the|the" }, { "  ", "" } };
    EXPECT_ALL(
        "pre_tokenizer",
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\","
        "\"pattern\": {\"Regex\": \"\\\\S+\"}, \"behavior\": \"Removed\", \"invert\": true}]},"
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}",
        removed);
}

static void a_byte_without_a_token_is_dropped_or_unknown(void **state)
{
    static const char text[] =
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false},"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"?\": 3}, \"merges\": [\"a b\"]}}";
    struct json *j = json_parse(text, strlen(text), "a test's JSON", &err);
    assert_ok(j != NULL, err);
    static const struct {
        const char *unknown, *fuse, *pieces;
    } cases[] = {
        { "null", "false", "ab|ab" }, // without x, a and b are adjacent
        { "\"?\"", "false", "ab|?|?|a|?|b" },
        { "\"?\"", "true", "ab|?|a|?|b" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        editable_set(j, "model.unk_token", cases[i].unknown);
        editable_set(j, "model.fuse_unk", cases[i].fuse);
        struct tokenizer *t = tokenizer_from_json(j, "made.json", &err);
        assert_non_null(t);
        editable_expect(t, "abxxaxb", true, cases[i].pieces);
        tokenizer_close(t);
    }
    editable_set(j, "model.unk_token", "\"!\"");
    assert_null(tokenizer_from_json(j, "made.json", &err));
    assert_non_null(strstr(err.text, "no unk_token"));
    json_free(j);
}

static void added_tokens_match_first(void **state)
{
    static const char *const pairs[][2] = {
        { "a<B>b", "a|<B>|b" },
        { "<B><B>", "<B>|<B>" },
        { "<B>CC", "<B>C|C" },   // the longest
        { "<<<B>C", "<<|<B>C" }, // the leftmost
        { "x <B> the", "x| |<B>| the" },
        { "\u00E9\u00E9", "\u00E9\u00E9" }, // literally, although these are also letters of bytes
        { "\u00E9", "\xC3|\xA9" },
    };
    EXPECT_ALL(
        "added_tokens",
        "[{\"id\": 300, \"content\": \"<B>\"}, {\"id\": 301, \"content\": \"<B>C\", \"special\": true}, {\"id\": 302, \"content\": \"\"},"
        "{\"id\": 303, \"content\": \"<<\", \"single_word\": true}, {\"id\": 303, \"content\": \"<<\"},"
        "{\"id\": 304, \"content\": \"\u00E9\u00E9\"}]",
        pairs);
}

static void added_tokens_strip_white_space_and_respect_words(void **state)
{
    static const char *const left[][2] = { { "a  <B> b", "a|<B>| |b" }, { "\u3000\n<B><B>", "<B>|<B>" } };
    EXPECT_ALL("added_tokens", "[{\"id\": 300, \"content\": \"<B>\", \"lstrip\": true}]", left);
    static const char *const right[][2] = { { "a <B> \t b", "a| |<B>|b" }, { "<B> <B> ", "<B>|<B>" } };
    EXPECT_ALL("added_tokens", "[{\"id\": 300, \"content\": \"<B>\", \"rstrip\": true}]", right);
    static const char *const word[][2] = {
        { "cat cats", "cat| |c|a|t|s" }, { "-cat-", "-|cat|-" },     { "_cat", "_|c|a|t" },
        { "cat1", "c|a|t|1" },           { "cat cat", "cat| |cat" },
    };
    EXPECT_ALL("added_tokens", "[{\"id\": 300, \"content\": \"cat\", \"single_word\": true}]", word);
}

static void normalized_tokens_match_in_normalized_text(void **state)
{
    struct json *j = editable_json();
    editable_set(j, "normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}");
    editable_set(
        j, "added_tokens",
        "[{\"id\": 300, \"content\": \"<e\u0301>\", \"normalized\": true}, {\"id\": 301, \"content\": \"[e\u0301]\", \"normalized\": false}]");
    struct tokenizer *t = editable_tokenizer(j);
    editable_expect(t, "<e\u0301>", true, "<e\u0301>");
    editable_expect(t, "<\u00E9>", true, "<e\u0301>");
    editable_expect(t, "[e\u0301]", true, "[e\u0301]");
    editable_expect(t, "[\u00E9]", true, "[|\xC3|\xA9|]");
    tokenizer_close(t);
}

static void a_special_token_read_as_text_still_hides_overlapping_tokens(void **state)
{
    struct tokenizer *t = editable_tokenizer_with(
        "added_tokens",
        "[{\"id\": 300, \"content\": \"<B>\", \"special\": true}, {\"id\": 301, \"content\": \"B>x\", \"normalized\": false}]");
    editable_expect(t, "<B>x B>x", true, "<B>|x| |B>x");
    editable_expect(t, "<B>x B>x", false, "<|B|>|x| |B>x");
    tokenizer_close(t);
}

// ---- refused settings -------------------------------------------------------------------------------------------

static void refused(struct json *j, const char *error)
{
    struct tokenizer *t = tokenizer_from_json(j, "made.json", &err);
    if (t != NULL)
        fail_msg("opened, expected the error %s", error);
    if (strncmp(err.text, "made.json: ", 11) != 0 || strstr(err.text, error) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", err.text, error);
    assert_null(strchr(err.text, '\n'));
    json_free(j);
}

static void unsupported_settings_are_refused_by_name(void **state)
{
    static const char *const changes[][3] = {
        { "model", "null", "not a tokenizer.json" },
        { "model", "[1]", "not a tokenizer.json" },
        { "model", "{}", "the model without a type is not known" },
        { "model.type", "\"Unigram\"", "the model's vocab is not a list of pieces with scores" },
        { "model.type", "\"WordPiece\"", "the model \"WordPiece\"" },
        { "model.type", "5", "the model without a type" },
        { "model.dropout", "0.1", "dropout" },
        { "model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix" },
        { "model.continuing_subword_prefix", "\"##\"", "continuing_subword_prefix" },
        { "model.ignore_merges", "1", "ignore_merges is not true or false" },
        { "model.vocab", "null", "vocab is not a mapping" },
        { "model.vocab", "[\"a\"]", "vocab is not a mapping" },
        { "model.vocab", "{}", "merge 0 needs the token \"t\", which is not in the vocabulary" },
        { "model.vocab.x", "-1", "the id of \"x\" is not an integer" },
        { "model.vocab.x", "16777216", "the id of \"x\" is not an integer from 0 to 16777215" },
        { "model.vocab.x", "1.5", "the id of \"x\"" },
        { "model.vocab.x", "\"1\"", "the id of \"x\"" },
        { "model.vocab.xx", "97", "id 97 belongs to two tokens" },
        { "model.merges", "null", "merges is not a list" },
        { "model.merges", "{\"t\": \"h\"}", "merges is not a list" },
        { "model.merges", "[\"t h\", \"th\"]", "merge 1 is neither" },
        { "model.merges", "[\"t h e\"]", "merge 0 is neither" },
        { "model.merges", "[[\"t\"]]", "merge 0 is neither" },
        { "model.merges", "[[\"t\", 1]]", "merge 0 is neither" },
        { "model.merges", "[7]", "merge 0 is neither" },
        { "model.merges", "[\"t e\"]", "merge 0 needs the token \"te\"" },
        { "model.merges", "[\"t the the\"]", "merge 0 is neither" },
        { "model.merges", "[\" t\"]", "merge 0 needs the token \"\"" },
        { "model.merges", "[\"t qq\"]", "merge 0 needs the token \"qq\"" },
        { "normalizer", "{\"type\": \"Lowercase\"}", "the normalizer \"Lowercase\" is not known (NFC" },
        { "normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Nmt\"}]}", "the normalizer \"Nmt\"" },
        { "normalizer", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\"}, \"content\": \"x\"}",
          "the pattern of a Replace" },
        { "normalizer", "{\"type\": \"Prepend\"}", "the prepend of a Prepend is not text" },
        { "normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"!\"}",
          "the precompiled_charsmap is not base64" },
        { "normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}",
          "map of characters is damaged" },
        { "normalizer", "{\"type\": \"Sequence\"}", "normalizers of a Sequence is not a list" },
        { "normalizer", "\"NFC\"", "the normalizer without a type" },
        { "pre_tokenizer", "{\"type\": \"BertPreTokenizer\"}",
          "the pre-tokenizer \"BertPreTokenizer\" is not known (ByteLevel" },
        { "pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\"}",
          "the replacement of a Metaspace (only U+2581 is supported): found \"_\"" },
        { "pre_tokenizer", "{\"type\": \"Metaspace\", \"prepend_scheme\": \"last\"}",
          "the prepend_scheme of a Metaspace (always, first, never): found \"last\"" },
        { "pre_tokenizer", "{\"type\": \"Sequence\"}", "pretokenizers of a Sequence is not a list" },
        { "pre_tokenizer", "{\"type\": \"Digits\", \"individual_digits\": 1}",
          "individual_digits is not true or false" },
        { "pre_tokenizer", "{\"type\": \"ByteLevel\", \"use_regex\": \"yes\"}", "use_regex is not true or false" },
        { "pre_tokenizer",
          "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"ByteLevel\"}]}",
          "ByteLevel occurs twice" },
        { "pre_tokenizer", "{\"type\": \"Split\"}", "the pattern of a Split" },
        { "pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\"}}", "the pattern of a Split" },
        { "pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"MergedWithAll\"}",
          "found \"MergedWithAll\"" },
        { "pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\"}",
          "a pattern does not compile" },
        { "pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\w\"}, \"behavior\": \"Isolated\"}",
          "\\w at offset 0 is not supported" },
        { "decoder", "{\"type\": \"WordPiece\"}", "the decoder \"WordPiece\" is not known" },
        { "decoder", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"b\"}",
          "the pattern of a decoder Replace (only U+2581 by a space is supported): found \"a\"" },
        { "decoder", "{\"type\": \"Strip\", \"content\": \" \", \"start\": 2, \"stop\": 0}", "a decoder Strip" },
        { "added_tokens", "{}", "added_tokens is not a list" },
        { "added_tokens", "[7]", "the content of an added token is not text" },
        { "added_tokens", "[{\"id\": 300}]", "the content of an added token is not text" },
        { "added_tokens", "[{\"content\": \"<B>\"}]", "the id of \"<B>\" is not an integer" },
        { "added_tokens", "[{\"id\": -7, \"content\": \"<B>\"}]", "the id of \"<B>\"" },
        { "added_tokens", "[{\"id\": 97, \"content\": \"<B>\"}]", "id 97 belongs to two tokens, \"a\" and \"<B>\"" },
        { "added_tokens", "[{\"id\": 300, \"content\": \"the\"}]", "the token \"the\" has two ids, 257 and 300" },
        { "added_tokens", "[{\"id\": 300, \"content\": \"<B>\"}, {\"id\": 301, \"content\": \"<B>\"}]",
          "the token \"<B>\" has two ids, 300 and 301" },
        { "added_tokens", "[{\"id\": 300, \"content\": \"<B>\", \"lstrip\": 0}]", "lstrip is not true or false" },
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        struct json *j = editable_json();
        editable_set(j, changes[i][0], changes[i][1]);
        refused(j, changes[i][2]);
    }
    struct json *j = editable_json();
    editable_set(j, "normalizer", "{\"type\": \"NFC\"}");
    editable_set(j, "added_tokens",
                 "[{\"id\": 300, \"content\": \"<e\u0301>\"}, {\"id\": 301, \"content\": \"<\u00E9>\"}]");
    refused(j, "the added tokens 300 and 301 are both");
    j = json_parse("[]", 2, "x", &err);
    refused(j, "not a tokenizer.json");
}

static void a_path_without_a_tokenizer_is_named(void **state)
{
    char *file = test_path("broken.json"), *empty = test_path("empty.gguf");
    const char *directory = test_directory();
    FILE *f = fopen(file, "w");
    fputs("{\"model\": ", f);
    fclose(f);
    assert_null(tokenizer_open(file, &err));
    assert_non_null(strstr(err.text, "broken.json:1:"));
    assert_null(tokenizer_open(directory, &err));
    assert_non_null(strstr(err.text, "expected tokenizer.json, tekken.json or tokenizer.model, found none"));
    assert_null(tokenizer_open("/nowhere/at/all", &err));
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    f = fopen(empty, "w");
    fclose(f);
    assert_null(tokenizer_open(empty, &err));
    assert_non_null(strstr(err.text, "empty.gguf"));
    free(file);
    free(empty);
}

// ---- GGUF -------------------------------------------------------------------------------------------------------

enum { A, B, AB, END, USED, COUNT };
static const char *const few[COUNT] = { "a", "b", "ab", "<end>", "<used>" };

struct gguf_fields { // NULL: the valid value; "": the key is missing
    const char *model, *pre, *merge;
    int tokens, kinds; // counts; 0: COUNT; -1: the key is missing
};

static struct tokenizer *opened_gguf(const struct gguf_fields *s)
{
    static const int32_t kind[COUNT] = { 1, 1, 1, 3, 4 };
    char *path = test_path("few.gguf");
    struct gguf_writer *w = gguf_write_begin(path, &err);
    gguf_write_text(w, "general.architecture", "llama");
    if (s->model == NULL || s->model[0] != '\0')
        gguf_write_text(w, "tokenizer.ggml.model", s->model != NULL ? s->model : "gpt2");
    if (s->pre == NULL || s->pre[0] != '\0')
        gguf_write_text(w, "tokenizer.ggml.pre", s->pre != NULL ? s->pre : "gpt-2");
    if (s->tokens >= 0)
        gguf_write_texts(w, "tokenizer.ggml.tokens", few, (size_t)(s->tokens > 0 ? s->tokens : COUNT));
    if (s->kinds >= 0)
        gguf_write_ints(w, "tokenizer.ggml.token_type", kind, (size_t)(s->kinds > 0 ? s->kinds : COUNT));
    const char *merge = s->merge != NULL ? s->merge : "a b";
    if (merge[0] != '\0')
        gguf_write_texts(w, "tokenizer.ggml.merges", &merge, 1);
    assert_ok(gguf_write_end(w, &err), err);
    struct tokenizer *t = tokenizer_open(path, &err);
    free(path);
    return t;
}

static void a_gguf_file_gives_the_same_tokenizer(void **state)
{
    struct tokenizer *t = opened_gguf(&(struct gguf_fields){ 0 });
    assert_ok(t != NULL, err);
    assert_int_equal(tokenizer_size(t), COUNT);
    assert_true(tokenizer_is_special(t, END) && !tokenizer_is_special(t, USED) && !tokenizer_is_special(t, A));
    editable_expect(t, "aab<end>b<used>", true, "a|ab|<end>|b|<used>");
    editable_expect(t, "ab<end><used>", false,
                    "ab|<used>"); // "<end>" is encoded letter by letter, and < has no token here
    tokenizer_close(t);
    t = opened_gguf(&(struct gguf_fields){ .kinds = -1 });
    assert_non_null(t);
    editable_expect(t, "ab<end>b", true, "ab|b");
    tokenizer_close(t);
}

static void an_incomplete_gguf_file_is_refused_by_name(void **state)
{
    static const struct {
        struct gguf_fields gguf_fields;
        const char *error;
    } cases[] = {
        { { .model = "" }, "expected a tokenizer (tokenizer.ggml.model)" },
        { { .model = "llama" }, "tokenizer.ggml.scores does not have one number for each of the 5 tokens" },
        { { .model = "bert" }, "of the kind \"bert\"" },
        { { .pre = "" }, "expected tokenizer.ggml.pre" },
        { { .pre = "default" }, "the pre-tokenizer \"default\" is not known (gpt-2" },
        { { .pre = "tekken2" }, "the pre-tokenizer \"tekken2\"" },
        { { .tokens = -1 }, "tokenizer.ggml.tokens is missing" },
        { { .tokens = 3 }, "tokenizer.ggml.token_type does not have one integer for each of the 3 tokens" },
        { { .kinds = 2 }, "tokenizer.ggml.token_type" },
        { { .merge = "" }, "tokenizer.ggml.merges is missing" },
        { { .merge = "ab" }, "merge 0 is not two tokens" },
        { { .merge = " " }, "merge 0 is not two tokens" },
        { { .merge = " b" }, "merge 0 is not two tokens" },
        { { .merge = "a " }, "merge 0 needs the token \"\"" },
        { { .merge = "b a" }, "merge 0 needs the token \"ba\"" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tokenizer *t = opened_gguf(&cases[i].gguf_fields);
        if (t != NULL || strstr(err.text, cases[i].error) == NULL || strstr(err.text, "few.gguf") == NULL)
            fail_msg("%s: %s", cases[i].error, t != NULL ? "opened" : err.text);
    }
}

static void a_pattern_that_takes_too_long_is_named_with_its_file(void **state)
{
    struct tokenizer *t = editable_tokenizer_with(
        "pre_tokenizer",
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?:a+)+(?:b|c)\"},"
        "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"
        "\"use_regex\": false}]}");
    struct ids ids = { 0 };
    assert_false(tokenizer_encode(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 47, true, &ids, &err));
    char *sentence =
        xformat("%s: the pattern (?:a+)+(?:b|c) failed at byte 0 of a text of 47: match limit exceeded", t->name);
    assert_string_equal(err.text, sentence);
    free(sentence);
    free(ids.id);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_applied_by_rank),
        cmocka_unit_test(old_files_that_do_not_name_their_model_are_read),
        cmocka_unit_test(pre_tokenizers_follow_one_another),
        cmocka_unit_test(a_byte_without_a_token_is_dropped_or_unknown),
        cmocka_unit_test(added_tokens_match_first),
        cmocka_unit_test(added_tokens_strip_white_space_and_respect_words),
        cmocka_unit_test(normalized_tokens_match_in_normalized_text),
        cmocka_unit_test(a_special_token_read_as_text_still_hides_overlapping_tokens),
        cmocka_unit_test(unsupported_settings_are_refused_by_name),
        cmocka_unit_test(a_path_without_a_tokenizer_is_named),
        cmocka_unit_test(a_gguf_file_gives_the_same_tokenizer),
        cmocka_unit_test(an_incomplete_gguf_file_is_refused_by_name),
        cmocka_unit_test(a_pattern_that_takes_too_long_is_named_with_its_file),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
