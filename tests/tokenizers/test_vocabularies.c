// test_vocabularies.c - draft models of another tokenizer: the tokens that two vocabularies share, and texts and drafts between them.
//
// The two tokenizers are those of the small models (tests/support/small_tokenizer.h). That drafts are exact and depend on the text alone is
// tested where all drafters are (tests/support/pairings.h has lines for both ways).
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/draft_vocabulary.h"
#include "tests/support/tests.h"
#include "tests/support/small_model.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/vocabulary_map.h"

static struct tokenizer *target, *other;
static struct error err;

static const char *bytes_of(const struct tokenizer *t, int32_t id, size_t *n)
{
    const char *s = tokenizer_token(t, id, n);
    assert_non_null(s);
    return s;
}

static bool same_token(int32_t a, int32_t b)
{
    size_t n, m;
    const char *s = bytes_of(target, a, &n), *o = bytes_of(other, b, &m);
    return n == m && memcmp(s, o, n) == 0 && tokenizer_is_special(target, a) == tokenizer_is_special(other, b);
}

TEST(shared_tokens_are_those_that_a_plain_search_finds)
{
    struct vocabulary_map m;
    assert_ok(vocabulary_map_create(&m, target, tokenizer_size(target), other, tokenizer_size(other), &err), err);
    int common = 0;
    for (int32_t a = 0; a < tokenizer_size(target); a++)
        for (int32_t b = 0; b < tokenizer_size(other); b++) {
            if (!same_token(a, b))
                continue;
            assert_true(common < m.common);
            assert_int_equal(m.target_id[common], a);
            assert_int_equal(m.draft_id[common++], b);
        }
    for (int32_t a = -1, k = 0; a <= tokenizer_size(target); a++) {
        const bool is_common = k < common && m.target_id[k] == a;
        assert_int_equal(vocabulary_map_shares(&m, a), is_common);
        k += is_common;
    }
    assert_int_equal(common, m.common);
    assert_int_equal(common, 3 + 256 + 5); // special tokens, bytes, "in", " a", "on", "re", "ing"
    vocabulary_map_free(&m);
}

TEST(each_token_is_read_as_tokens_of_the_same_bytes)
{
    struct vocabulary_map m;
    assert_ok(vocabulary_map_create(&m, target, tokenizer_size(target), other, tokenizer_size(other), &err), err);
    int longest = 0;
    for (int32_t a = 0; a < tokenizer_size(target); a++) {
        struct text joined = { 0 };
        size_t n;
        text_puts(&joined, "");
        for (int i = m.first[a]; i < m.first[a + 1]; i++) {
            const char *s = bytes_of(other, m.id[i], &n);
            text_add(&joined, s, n);
        }
        const char *s = bytes_of(target, a, &n);
        assert_int_equal(joined.n, n);
        assert_memory_equal(joined.s, s, n);
        longest = m.first[a + 1] - m.first[a] > longest ? m.first[a + 1] - m.first[a] : longest;
        free(joined.s);
    }
    assert_int_equal(longest, m.longest);
    assert_true(longest > 1);
    vocabulary_map_free(&m);
}

TEST(ids_without_rows_are_not_shared)
{
    struct vocabulary_map m;
    const int rows = tokenizer_size(other) - 11; // of the draft model: not those of the merged tokens
    assert_ok(vocabulary_map_create(&m, target, tokenizer_size(target), other, rows, &err), err);
    assert_int_equal(m.common, 3 + 256);
    vocabulary_map_free(&m);
    assert_ok(vocabulary_map_create(&m, target, tokenizer_size(target) - 11, other, rows, &err), err);
    assert_int_equal(m.common, 3 + 256);
    vocabulary_map_free(&m);
    assert_false(vocabulary_map_create(&m, target, tokenizer_size(target), other, 3, &err));
    assert_non_null(strstr(err.text, "no token for the byte 0x"));
}

// ---- text

static struct retokenizer retokenizer; // of the two

static struct ids encoded(const struct tokenizer *t, const char *text)
{
    struct ids ids = { 0 };
    assert_ok(tokenizer_encode(t, text, strlen(text), true, &ids, &err), err);
    return ids;
}

static void expect_ids(const struct ids *got, const struct ids *expected, const char *what)
{
    bool same = got->n == expected->n;
    for (size_t i = 0; same && i < got->n; i++)
        same = got->id[i] == expected->id[i];
    if (!same)
        fail_msg("%s: other ids", what);
}

// The tokens of a word: each as the other's tokenizer has its bytes alone.
static void add_one_by_one(const char *word, struct ids *to)
{
    struct ids ids = encoded(target, word);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *stored = bytes_of(target, ids.id[i], &n);
        char *bytes = xstrndup(stored, n);
        struct ids some = encoded(other, bytes);
        for (size_t k = 0; k < some.n; k++)
            ids_add(to, some.id[k]);
        free(bytes);
        free(some.id);
    }
    free(ids.id);
}

TEST(a_text_is_read_as_its_own_tokenizer_has_it_up_to_the_last_word)
{
    static const struct {
        const char *text, *word;
    } cases[] = { { "the other", " thing" },
                  { "in the end, on and", " on" },
                  { "Stra\xC3\x9F"
                    "e",
                    " isten" },
                  { "<|im_start|>user\nhe", "<|im_end|>" },
                  { "the\n", "\n" },
                  { "", "the" },
                  { "4", " " } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *text = xformat("%s%s", cases[i].text, cases[i].word);
        struct ids ids = encoded(target, text), expected = encoded(other, cases[i].text), got = { 0 };
        add_one_by_one(cases[i].word, &expected);
        assert_true(retokenize_text(&retokenizer, ids.id, (int)ids.n, &got));
        expect_ids(&got, &expected, text);
        free(text);
        free(ids.id);
        free(expected.id);
        free(got.id);
    }
}

TEST(a_text_that_ends_within_a_character_has_no_draft)
{
    struct ids ids = encoded(target, "\xC3\xA9"), got = { 0 };
    assert_int_equal(ids.n, 2);
    assert_false(retokenize_text(&retokenizer, ids.id, 1, &got));
    got.n = 0;
    assert_true(retokenize_text(&retokenizer, ids.id, 2, &got));
    free(ids.id);
    free(got.id);
}

TEST(bos_becomes_bos)
{
    struct ids ids = encoded(target, "<|im_start|>he"), expected = encoded(other, "<|endoftext|>he"), got = { 0 };
    retokenizer.target_bos = tokenizer_id(target, "<|im_start|>");
    retokenizer.draft_bos = tokenizer_id(other, "<|endoftext|>");
    assert_true(retokenize_text(&retokenizer, ids.id, (int)ids.n, &got));
    expect_ids(&got, &expected, "BOS");
    retokenizer.target_bos = retokenizer.draft_bos = -1;
    free(ids.id);
    free(expected.id);
    free(got.id);
}

// A draft after a text, of which some tokens are left out at the end (n), as the target's tokens: those of `expected`.
TEST(a_draft_is_divided_as_the_whole_text_is)
{
    static const struct {
        const char *text, *draft;
        int n;
        const char *expected;
    } cases[] = {
        { "one", " and then the end", 0, " and then the end" },
        { "<|im_start|>user\n", "the thing", 0, "the thing" },
        { "x ", "3 of 4", 0, "3 of 4" },
        { "h", "e", 0, "e" },                      // divided alone, although "he" is one token of the target
        { "a", "b\xC3\xA9", -1, "b" },             // it ends before half of a character
        { "a", "b<|im_end|>c", 0, "b<|im_end|>" }, // and with a special token
        { "a", "\xC3\xA9", -1, "" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ids before = encoded(target, cases[i].text), own = encoded(other, cases[i].draft), got = { 0 },
                   expected = encoded(target, cases[i].expected);
        retokenize_draft(&retokenizer, before.id, (int)before.n, own.id, (int)own.n + cases[i].n, &got);
        expect_ids(&got, &expected, cases[i].draft);
        free(before.id);
        free(own.id);
        free(expected.id);
        free(got.id);
    }
}

static int open_both(void **state)
{
    struct small_model t = small_default;
    char *a = test_path("target"), *b = test_path("other");
    small_write_hf(a, &t);
    t.other_tokens = true;
    small_write_hf(b, &t);
    target = tokenizer_open(a, &err);
    assert_ok(target != NULL, err);
    other = tokenizer_open(b, &err);
    assert_ok(other != NULL, err);
    retokenizer_begin(&retokenizer, target, tokenizer_size(target), other, tokenizer_size(other));
    free(a);
    free(b);
    return 0;
}

static int close_both(void **state)
{
    tokenizer_close(target);
    retokenizer_free(&retokenizer); // and the other tokenizer
    test_directory_remove();
    return 0;
}

RUN_TESTS(open_both, close_both)
