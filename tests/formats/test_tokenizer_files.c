// test_tokenizer_files.c - every setting of a tokenizer in tokenizer.json and GGUF is implemented, or refused by name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/gguf_edit.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/readers.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/formats/editable_tokenizer.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

// ---- supported settings -----------------------------------------------------------------------------------------

#define BYTES "{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': false}"
#define SPLIT(PATTERN, MORE) "{'type': 'Split', 'pattern': " PATTERN ", " MORE "}"
#define SEQUENCE(OF) "{'type': 'Sequence', 'pretokenizers': [" OF "]}"

static struct tokenizer *changed(const char *changes)
{
    struct json *j = editable_json();
    char *all = xstrdup(changes), *rest = all;
    for (struct fault f; fault_next(&rest, &f);)
        editable_set(j, f.key, f.value);
    free(all);
    return editable_tokenizer(j);
}

TEST(settings_have_their_effect)
{
    static const struct {
        const char *changes;        // PATH=VALUE; ..
        const char *expected[8][2]; // texts and their pieces
    } cases[] = {
        // merges by rank
        { "version='1.0'",
          { { "", "" },
            { "the the", "the| the" },
            { "aaaaa", "aa|aa|a" },
            { "thathen th e", "th|a|the|n| |th| |e" } } },
        { "model.merges=[['t', 'h'], ['th', 'e'], ['Ġ', 'the'], ['a', 'a']]",
          { { "thathen the", "th|a|the|n| the" } } },
        { "model.merges=['#version: 0.2', 't h', 'th e', 'Ġ the', 'a a']", { { "aaaaa the", "aa|aa|a| the" } } },
        { "model.merges=['a a', 'a a', 't h', 'th e', 'Ġ the']", { { "aaaaa the", "aa|aa|a| the" } } },
        { "model.ignore_merges=true; model.merges=[]",
          { { "the the", "the| the" }, { "aaaaa th", "a|a|a|a|a| |t|h" } } },
        // old files do not name their model; GPT-2's unk_token, where all bytes have tokens
        { "model.type=null; model.continuing_subword_prefix=''; model.unk_token=''; model.byte_fallback=true; "
          "model.dropout=0.0",
          { { "the", "the" } } },
        // pre-tokenizers follow one another
        { "pre_tokenizer=" SEQUENCE("{'type': 'Digits', 'individual_digits': true}, {'type': 'ByteLevel', "
                                    "'add_prefix_space': false, 'use_regex': true}"),
          { { "the 12", "the| |1|2" }, { "aa1aa", "aa|1|aa" } } },
        { "pre_tokenizer={'type': 'ByteLevel', 'add_prefix_space': true, 'use_regex': false}",
          { { "the", " the" }, { " the", " the" }, { "", "" } } },
        { "pre_tokenizer=" SEQUENCE(SPLIT("{'String': '.'}", "'behavior': 'Isolated', 'invert': false") ", " BYTES),
          { { "a.a aa", "a|.|a| |aa" } } },
        { "pre_tokenizer=" SEQUENCE(
              SEQUENCE(SPLIT("{'Regex': '\\\\S+'}", "'behavior': 'Removed', 'invert': true")) ", " BYTES),
          { { "the the", "the|the" }, { "  ", "" } } },
        // added tokens: the longest, the leftmost, literally although they are also letters of bytes
        { "added_tokens=[{'id': 300, 'content': '<B>'}, {'id': 301, 'content': '<B>C', 'special': true}, "
          "{'id': 302, 'content': ''}, {'id': 303, 'content': '<<', 'single_word': true}, "
          "{'id': 303, 'content': '<<'}, {'id': 304, 'content': '\u00E9\u00E9'}]",
          { { "a<B>b", "a|<B>|b" },
            { "<B><B>", "<B>|<B>" },
            { "<B>CC", "<B>C|C" },
            { "<<<B>C", "<<|<B>C" },
            { "x <B> the", "x| |<B>| the" },
            { "\u00E9\u00E9", "\u00E9\u00E9" },
            { "\u00E9", "\xC3|\xA9" } } },
        { "added_tokens=[{'id': 300, 'content': '<B>', 'lstrip': true}]",
          { { "a  <B> b", "a|<B>| |b" }, { "\u3000\n<B><B>", "<B>|<B>" } } },
        { "added_tokens=[{'id': 300, 'content': '<B>', 'rstrip': true}]",
          { { "a <B> \t b", "a| |<B>|b" }, { "<B> <B> ", "<B>|<B>" } } },
        { "added_tokens=[{'id': 300, 'content': 'cat', 'single_word': true}]",
          { { "cat cats", "cat| |c|a|t|s" },
            { "-cat-", "-|cat|-" },
            { "_cat", "_|c|a|t" },
            { "cat1", "c|a|t|1" },
            { "cat cat", "cat| |cat" } } },
        // normalized tokens match in normalized text
        { "normalizer={'type': 'Sequence', 'normalizers': [{'type': 'NFC'}]}; added_tokens=[{'id': 300, 'content': "
          "'<e\u0301>', 'normalized': true}, {'id': 301, 'content': '[e\u0301]', 'normalized': false}]",
          { { "<e\u0301>", "<e\u0301>" },
            { "<\u00E9>", "<e\u0301>" },
            { "[e\u0301]", "[e\u0301]" },
            { "[\u00E9]", "[|\xC3|\xA9|]" } } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tokenizer *t = changed(cases[i].changes);
        for (int k = 0; k < 8 && cases[i].expected[k][0] != NULL; k++)
            editable_expect(t, cases[i].expected[k][0], true, cases[i].expected[k][1]);
        tokenizer_close(t);
    }
}

TEST(a_byte_without_a_token_is_dropped_or_unknown)
{
    struct json *j = json_of("{'pre_tokenizer': " BYTES ", 'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1, 'ab': 2, "
                             "'?': 3}, 'merges': ['a b']}}");
    static const struct {
        const char *unknown, *fuse, *pieces;
    } cases[] = {
        { "null", "false", "ab|ab" }, // without x, a and b are adjacent
        { "'?'", "false", "ab|?|?|a|?|b" },
        { "'?'", "true", "ab|?|a|?|b" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        editable_set(j, "model.unk_token", cases[i].unknown);
        editable_set(j, "model.fuse_unk", cases[i].fuse);
        struct tokenizer *t = tokenizer_from_json(j, "made.json", &err);
        assert_non_null(t);
        editable_expect(t, "abxxaxb", true, cases[i].pieces);
        tokenizer_close(t);
    }
    editable_set(j, "model.unk_token", "'!'");
    assert_null(tokenizer_from_json(j, "made.json", &err));
    assert_non_null(strstr(err.text, "no unk_token"));
    json_free(j);
}

TEST(a_special_token_read_as_text_still_hides_overlapping_tokens)
{
    struct tokenizer *t =
        changed("added_tokens=[{'id': 300, 'content': '<B>', 'special': true}, {'id': 301, 'content': "
                "'B>x', 'normalized': false}]");
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

TEST(unsupported_settings_are_refused_by_name)
{
    static const char faults[] =
        "model=null (not a tokenizer.json); model=[1] (not a tokenizer.json); "
        "model={} (the model without a type is not known); "
        "model.type='Unigram' (vocab is not a list of pieces with scores); "
        "model.type='WordPiece' (the model 'WordPiece'); model.type=5 (the model without a type); "
        "model.dropout=0.1 (dropout); model.end_of_word_suffix='</w>' (end_of_word_suffix); "
        "model.continuing_subword_prefix='##' (continuing_subword_prefix); "
        "model.ignore_merges=1 (ignore_merges is not true or false); model.vocab=null (vocab is not a mapping); "
        "model.vocab=['a'] (vocab is not a mapping); "
        "model.vocab={} (merge 0 needs the token 't', which is not in the vocabulary); "
        "model.vocab.x=-1 (the id of 'x' is not an integer); "
        "model.vocab.x=16777216 (the id of 'x' is not an integer from 0 to 16777215); "
        "model.vocab.x=1.5 (the id of 'x'); model.vocab.x='1' (the id of 'x'); "
        "model.vocab.xx=97 (id 97 belongs to two tokens); model.merges=null (merges is not a list); "
        "model.merges={'t': 'h'} (merges is not a list); model.merges=['t h', 'th'] (merge 1 is neither); "
        "model.merges=['t h e'] (merge 0 is neither); model.merges=[['t']] (merge 0 is neither); "
        "model.merges=[['t', 1]] (merge 0 is neither); model.merges=[7] (merge 0 is neither); "
        "model.merges=['t e'] (merge 0 needs the token 'te'); model.merges=['t the the'] (merge 0 is neither); "
        "model.merges=[' t'] (merge 0 needs the token ''); model.merges=['t qq'] (merge 0 needs the token 'qq'); "
        "normalizer={'type': 'Lowercase'} (the normalizer 'Lowercase' is not known (NFC); "
        "normalizer={'type': 'Sequence', 'normalizers': [{'type': 'Nmt'}]} (the normalizer 'Nmt'); "
        "normalizer={'type': 'Replace', 'pattern': {'Regex': ''}, 'content': 'x'} (the pattern of a Replace); "
        "normalizer={'type': 'Prepend'} (the prepend of a Prepend is not text); "
        "normalizer={'type': 'Precompiled', 'precompiled_charsmap': '!'} (the precompiled_charsmap is not base64); "
        "normalizer={'type': 'Precompiled', 'precompiled_charsmap': 'AAAA'} (map of characters is damaged); "
        "normalizer={'type': 'Sequence'} (normalizers of a Sequence is not a list); "
        "normalizer='NFC' (the normalizer without a type); "
        "pre_tokenizer={'type': 'BertPreTokenizer'} (the pre-tokenizer 'BertPreTokenizer' is not known (ByteLevel); "
        "pre_tokenizer={'type': 'Metaspace', 'replacement': '_'} (the replacement of a Metaspace (only U+2581 is "
        "supported): found '_'); "
        "pre_tokenizer={'type': 'Metaspace', 'prepend_scheme': 'last'} (the prepend_scheme of a Metaspace (always, "
        "first, never): found 'last'); "
        "pre_tokenizer={'type': 'Sequence'} (pretokenizers of a Sequence is not a list); "
        "pre_tokenizer={'type': 'Digits', 'individual_digits': 1} (individual_digits is not true or false); "
        "pre_tokenizer={'type': 'ByteLevel', 'use_regex': 'yes'} (use_regex is not true or false); "
        "pre_tokenizer={'type': 'Sequence', 'pretokenizers': [{'type': 'ByteLevel'}, {'type': 'ByteLevel'}]} "
        "(ByteLevel occurs twice); pre_tokenizer={'type': 'Split'} (the pattern of a Split); "
        "pre_tokenizer={'type': 'Split', 'pattern': {'Regex': ''}} (the pattern of a Split); "
        "pre_tokenizer={'type': 'Split', 'pattern': {'Regex': 'a'}, 'behavior': 'MergedWithAll'} (found "
        "'MergedWithAll'); "
        "pre_tokenizer={'type': 'Split', 'pattern': {'Regex': '(a'}, 'behavior': 'Isolated'} (a pattern does not "
        "compile); "
        "pre_tokenizer={'type': 'Split', 'pattern': {'Regex': '\\\\w'}, 'behavior': 'Isolated'} (\\w at offset 0 is "
        "not supported); decoder={'type': 'WordPiece'} (the decoder 'WordPiece' is not known); "
        "decoder={'type': 'Replace', 'pattern': {'String': 'a'}, 'content': 'b'} (the pattern of a decoder Replace "
        "(only U+2581 by a space is supported): found 'a'); "
        "decoder={'type': 'Strip', 'content': ' ', 'start': 2, 'stop': 0} (a decoder Strip); "
        "added_tokens={} (added_tokens is not a list); added_tokens=[7] (the content of an added token is not text); "
        "added_tokens=[{'id': 300}] (the content of an added token is not text); "
        "added_tokens=[{'content': '<B>'}] (the id of '<B>' is not an integer); "
        "added_tokens=[{'id': -7, 'content': '<B>'}] (the id of '<B>'); "
        "added_tokens=[{'id': 97, 'content': '<B>'}] (id 97 belongs to two tokens, 'a' and '<B>'); "
        "added_tokens=[{'id': 300, 'content': 'the'}] (the token 'the' has two ids, 257 and 300); "
        "added_tokens=[{'id': 300, 'content': '<B>'}, {'id': 301, 'content': '<B>'}] (the token '<B>' has two ids, "
        "300 and 301); added_tokens=[{'id': 300, 'content': '<B>', 'lstrip': 0}] (lstrip is not true or false)";
    char *all = xstrdup(faults), *rest = all;
    for (struct fault f; fault_next(&rest, &f);) {
        struct json *j = editable_json();
        editable_set(j, f.key, f.value);
        refused(j, f.words);
    }
    free(all);
    struct json *j = editable_json();
    editable_set(j, "normalizer", "{'type': 'NFC'}");
    editable_set(j, "added_tokens", "[{'id': 300, 'content': '<e\u0301>'}, {'id': 301, 'content': '<\u00E9>'}]");
    refused(j, "the added tokens 300 and 301 are both");
    j = json_parse("[]", 2, "x", &err);
    refused(j, "not a tokenizer.json");
}

TEST(a_path_without_a_tokenizer_is_named)
{
    char *broken = test_path("broken.json"), *empty = test_path("empty.gguf");
    const struct {
        const char *path, *words;
    } cases[] = { { broken, "broken.json:1:" },
                  { test_directory(), "expected tokenizer.json, tekken.json or tokenizer.model, found none" },
                  { "/nowhere/at/all", "/nowhere/at/all" },
                  { empty, "empty.gguf" } };
    file_write(broken, "{\"model\": ");
    file_write(empty, "");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_null(tokenizer_open(cases[i].path, &err));
        assert_non_null(strstr(err.text, cases[i].words));
    }
    free(broken);
    free(empty);
}

// ---- GGUF -------------------------------------------------------------------------------------------------------

enum { A, B, AB, END, USED, COUNT };

// A file of few tokens with one key changed (NULL: none).
static struct tokenizer *opened_gguf(const char *key, const char *value)
{
    struct json *j = json_of("{'model': 'gpt2', 'pre': 'gpt-2', 'tokens': ['a', 'b', 'ab', '<end>', '<used>'], "
                             "'token_type': [1, 1, 1, 3, 4], 'merges': ['a b']}");
    if (key != NULL)
        json_set(j, key, *value != '\0' ? json_of(value) : json_new_null());
    char *path = test_path("few.gguf");
    struct gguf_writer *w = gguf_write_begin(path, &err);
    gguf_write_text(w, "general.architecture", "llama");
    for (void *at = json_first(j); at != NULL; at = json_next(j, at)) {
        char *name = xformat("tokenizer.ggml.%s", json_key(at));
        gguf_write_json(w, name, json_value(at));
        free(name);
    }
    assert_ok(gguf_write_end(w, &err), err);
    struct tokenizer *t = tokenizer_open(path, &err);
    json_free(j);
    free(path);
    return t;
}

TEST(a_gguf_file_gives_the_same_tokenizer)
{
    struct tokenizer *t = opened_gguf(NULL, NULL);
    assert_ok(t != NULL, err);
    assert_int_equal(tokenizer_size(t), COUNT);
    assert_true(tokenizer_is_special(t, END) && !tokenizer_is_special(t, USED) && !tokenizer_is_special(t, A));
    editable_expect(t, "aab<end>b<used>", true, "a|ab|<end>|b|<used>");
    // "<end>" is encoded letter by letter, and < has no token here
    editable_expect(t, "ab<end><used>", false, "ab|<used>");
    tokenizer_close(t);
    t = opened_gguf("token_type", "");
    assert_non_null(t);
    editable_expect(t, "ab<end>b", true, "ab|b");
    tokenizer_close(t);
}

TEST(an_incomplete_gguf_file_is_refused_by_name)
{
    char faults[] =
        "model= (expected a tokenizer (tokenizer.ggml.model)); model='bert' (of the kind 'bert'); "
        "model='llama' (tokenizer.ggml.scores does not have one number for each of the 5 tokens); "
        "pre= (expected tokenizer.ggml.pre); pre='default' (the pre-tokenizer 'default' is not known (gpt-2); "
        "tokens= (tokenizer.ggml.tokens is missing); "
        "tokens=['a', 'b', 'ab'] (tokenizer.ggml.token_type does not have one integer for each of the 3 tokens); "
        "token_type=[1, 1] (tokenizer.ggml.token_type); merges= (tokenizer.ggml.merges is missing); "
        "merges=['ab'] (merge 0 is not two tokens); merges=[' '] (merge 0 is not two tokens); "
        "merges=[' b'] (merge 0 is not two tokens); merges=['a '] (merge 0 needs the token ''); "
        "merges=['b a'] (merge 0 needs the token 'ba')";
    char *rest = faults;
    for (struct fault f; fault_next(&rest, &f);) {
        struct tokenizer *t = opened_gguf(f.key, f.value);
        if (t != NULL || strstr(err.text, f.words) == NULL || strstr(err.text, "few.gguf") == NULL)
            fail_msg("%s: %s", f.words, t != NULL ? "opened" : err.text);
    }
}

TEST(a_pattern_that_takes_too_long_is_named_with_its_file)
{
    static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct tokenizer *t = changed("pre_tokenizer=" SEQUENCE(
        SPLIT("{'Regex': '(?:a+)+(?:b|c)'}", "'behavior': 'Isolated', 'invert': false") ", " BYTES));
    struct ids ids = { 0 };
    assert_false(tokenizer_encode(t, text, strlen(text), true, &ids, &err));
    assert_int_equal(strncmp(err.text, "made.json: the pattern (?:a+)+(?:b|c) failed at byte 0", 54), 0);
    free(ids.id);
    tokenizer_close(t);
}

RUN_TESTS(NULL, test_directory_tear_down)
