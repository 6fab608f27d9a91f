// test_tokenizer.c - encoding and decoding against golden ids of Hugging Face's tokenizers (tests/cases).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "core/files/input.h"
#include "models/tokenizers/vocabulary.h"
#include "models/paths.h"
#include "models/tokenizers/tokenizer.h"
#include "core/utf8.h"
#include "tests/support/tests.h"
#include "tests/formats/editable_tokenizer.h"
#include "tests/support/small_model.h"

static struct error err;

static struct tokenizer *opened(const char *path)
{
    struct tokenizer *t = tokenizer_open(path, &err);
    assert_ok(t != NULL, err);
    return t;
}

static struct tokenizer *opened_case(const char *name)
{
    char *path = xformat(CASES "/%s", name);
    struct tokenizer *t = opened(path);
    free(path);
    return t;
}

static struct tokenizer *opened_smollm2(void)
{
    struct tokenizer *t = NULL;
    char *cache = model_cache(), *path = xformat("%s/smollm2-135m-instruct.gguf", cache);
    if (file_exists(path))
        t = opened(path);
    else
        print_message("skipped: %s does not exist (./run model smollm2-135m-instruct)\n", path);
    free(path);
    free(cache);
    return t;
}

static struct ids encoded(const struct tokenizer *t, const char *text, size_t n, bool special)
{
    struct ids ids = { 0 };
    assert_ok(tokenizer_encode(t, text, n, special, &ids, &err), err);
    return ids;
}

static struct text decoded(const struct tokenizer *t, const int32_t *id, size_t n, bool special)
{
    struct text out = { 0 };
    struct decoding hold = { 0 };
    text_add(&out, "", 0);
    tokenizer_decode(t, id, n, special, &hold, &out);
    tokenizer_decode_end(&hold, &out);
    return out;
}

static void assert_text(struct text got, const char *want, size_t n)
{
    if (got.n != n || memcmp(got.s, want, n) != 0)
        fail_msg("got \"%.*s\", expected \"%.*s\"", (int)got.n, got.s, (int)n, want);
}

// ---- goldens ----------------------------------------------------------------------------------------------------

static void one_id_at_a_time(const struct tokenizer *t, struct ids ids, struct text want)
{
    struct text out = { 0 };
    struct decoding hold = { 0 };
    text_add(&out, "", 0);
    for (size_t i = 0; i < ids.n; i++) {
        tokenizer_decode(t, &ids.id[i], 1, true, &hold, &out);
        assert_true(hold.n <= 3);
        assert_int_equal(utf8_valid(out.s, out.n), out.n); // only complete characters are returned
    }
    tokenizer_decode_end(&hold, &out);
    assert_text(out, want.s, want.n);
    free(out.s);
}

static int check_goldens(const struct tokenizer *t, const char *name)
{
    char *path = xformat(CASES "/%s.jsonl", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *line = NULL;
    size_t capacity = 0;
    int texts = 0;
    for (ssize_t n; (n = getline(&line, &capacity, f)) > 0; texts++) {
        struct json *j = json_parse(line, (size_t)n, path, &err);
        assert_non_null(j);
        const struct json *want = json_get(j, "ids"), *text = json_get(j, "text");
        struct ids got = encoded(t, json_text(text), json_text_length(text), true);
        bool same = got.n == json_count(want);
        for (size_t i = 0; same && i < got.n; i++)
            same = got.id[i] == json_int(json_at(want, i));
        if (!same)
            fail_msg("%s:%d: other ids for %s", path, texts + 1, line);
        struct text back = decoded(t, got.id, got.n, true);
        one_id_at_a_time(t, got, back);
        free(back.s);
        free(got.id);
        json_free(j);
    }
    free(line);
    fclose(f);
    free(path);
    return texts;
}

TEST(smollm2_encodes_every_golden_text_as_hugging_face_does)
{
    struct tokenizer *t = opened_smollm2();
    if (t == NULL)
        skip();
    assert_int_equal(tokenizer_size(t), 49152);
    assert_true(check_goldens(t, "tokenizer_smollm2") > 3000);
    tokenizer_close(t);
}

// Tokenizers in the styles of Llama 3 and Qwen 2.
TEST(small_vocabularies_encode_every_golden_text_as_hugging_face_does)
{
    static const char *const names[] = { "tokenizer_l3", "tokenizer_q2" };
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = opened_case(names[i]);
        assert_int_equal(check_goldens(t, names[i]), 300);
        tokenizer_close(t);
    }
}

// ---- round trips ------------------------------------------------------------------------------------------------

static size_t random_text(uint64_t *seed, char *to, size_t characters)
{
    static const unsigned below[] = { 0x80, 0x80, 0x100, 0x800, 0x3100, 0x10000, 0x20000, 0x110000 };
    size_t n = 0;
    for (size_t i = 0; i < characters; i++) {
        unsigned code = (unsigned)(splitmix(seed) % below[splitmix(seed) % 8]);
        if (code >= 0xD800 && code < 0xE000)
            code = ' ';
        n += (size_t)utf8_put(code, to + n);
    }
    return n;
}

TEST(random_text_survives_the_round_trip)
{
    struct tokenizer *t = opened_case("tokenizer_l3");
    uint64_t seed = 1;
    char text[64 * 4];
    for (int i = 0; i < 5000; i++) {
        size_t n = random_text(&seed, text, splitmix(&seed) % 64);
        for (int special = 0; special < 2; special++) {
            struct ids ids = encoded(t, text, n, special);
            struct text back = decoded(t, ids.id, ids.n, true);
            assert_text(back, text, n);
            one_id_at_a_time(t, ids, back);
            free(back.s);
            free(ids.id);
        }
    }
    tokenizer_close(t);
}

// Offset of the first malformed character, found by re-encoding each one.
static size_t reference_valid_prefix(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned code = s[i];
        size_t length = code < 0x80 ? 1 : code < 0xE0 ? 2 : code < 0xF0 ? 3 : 4;
        if (length > 1) {
            code &= 0xFFu >> (length + 1);
            for (size_t k = 1; k < length; k++)
                code = code << 6 | (i + k < n ? s[i + k] & 0x3F : 0);
        }
        char again[4];
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) || i + length > n ||
            (size_t)utf8_put(code, again) != length || memcmp(again, s + i, length) != 0)
            return i;
        i += length;
    }
    return n;
}

TEST(malformed_utf8_is_refused_with_its_offset)
{
    struct tokenizer *t = opened_case("tokenizer_q2");
    uint64_t seed = 2;
    int refused = 0;
    for (int i = 0; i < 20000; i++) {
        char text[32 * 4];
        size_t n = random_text(&seed, text, splitmix(&seed) % 32);
        for (size_t spoilt = splitmix(&seed) % 3; n > 0 && spoilt > 0; spoilt--)
            text[splitmix(&seed) % n] = (char)splitmix(&seed);
        size_t valid = reference_valid_prefix((unsigned char *)text, n);
        struct ids ids = { 0 };
        ids_add(&ids, 7);
        bool ok = tokenizer_encode(t, text, n, true, &ids, &err);
        assert_int_equal(ok, valid == n);
        if (!ok) {
            char *place = xformat("offset %zu", valid);
            assert_non_null(strstr(err.text, "not UTF-8"));
            assert_non_null(strstr(err.text, place));
            assert_int_equal(ids.n, 1);
            free(place);
            refused++;
        }
        free(ids.id);
    }
    assert_true(refused > 5000);
    tokenizer_close(t);
}

TEST(special_tokens_in_ordinary_text_stay_text)
{
    struct tokenizer *t = opened_case("tokenizer_q2");
    int32_t end = tokenizer_id(t, "<|im_end|>"), tool = tokenizer_id(t, "<tool_call>");
    static const char text[] = "hi<|im_end|> <tool_call>";
    assert_true(end >= 0 && tool >= 0 && tokenizer_is_special(t, end) && !tokenizer_is_special(t, tool));
    for (int special = 0; special < 2; special++) {
        struct ids ids = encoded(t, text, strlen(text), special);
        int ends = 0;
        for (size_t i = 0; i < ids.n; i++)
            ends += ids.id[i] == end;
        assert_int_equal(ends, special);
        assert_int_equal(ids.id[ids.n - 1], tool); // added, but not special
        struct text all = decoded(t, ids.id, ids.n, true), kept = decoded(t, ids.id, ids.n, false);
        assert_string_equal(all.s, text);
        assert_string_equal(kept.s, special ? "hi <tool_call>" : text);
        free(all.s);
        free(kept.s);
        free(ids.id);
    }
    tokenizer_close(t);
}

// ---- decoding ---------------------------------------------------------------------------------------------------

// The table in section 3.9 of the Unicode standard, and similar cases.
TEST(a_malformed_character_becomes_one_replacement_per_maximal_subpart)
{
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        { "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd" },
        { "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA" },
        { "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA" },
        { "\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB" },
        { "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFDA" },
        { "\xF0\x9F\x98", "\uFFFD" },
        { "\xE2\x82\xAC\xE2\x82", "\u20AC\uFFFD" },
        { "\xC3\xC3\xA9\xC3", "\uFFFD\u00E9\uFFFD" },
    };
    struct tokenizer *t = editable_tokenizer(editable_json());
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ids ids = { 0 };
        for (const char *b = cases[i].bytes; *b != '\0'; b++)
            ids_add(&ids, (unsigned char)*b); // byte b is token b
        struct text whole = decoded(t, ids.id, ids.n, true);
        assert_string_equal(whole.s, cases[i].text);
        one_id_at_a_time(t, ids, whole);
        free(whole.s);
        free(ids.id);
    }
    tokenizer_close(t);
}

TEST(ids_without_a_token_decode_to_nothing)
{
    struct tokenizer *t =
        editable_tokenizer_with("added_tokens", "[{\"id\": 300, \"content\": \"<end>\", \"special\": true}]");
    assert_int_equal(tokenizer_size(t), 301);
    size_t n;
    assert_null(tokenizer_token(t, 299, &n));
    assert_null(tokenizer_token(t, -1, &n));
    assert_null(tokenizer_token(t, 301, &n));
    assert_false(tokenizer_is_special(t, 299));
    assert_int_equal(tokenizer_id(t, "<end>"), 300);
    assert_int_equal(tokenizer_id(t, "<nothing>"), -1);
    static const int32_t ids[] = { 'a', 299, -5, 1 << 30, 300, 'b' };
    struct text all = decoded(t, ids, 6, true), kept = decoded(t, ids, 6, false);
    assert_string_equal(all.s, "a<end>b");
    assert_string_equal(kept.s, "ab");
    free(all.s);
    free(kept.s);
    tokenizer_close(t);
}

// ---- long texts -------------------------------------------------------------------------------------------------

TEST(long_runs_take_linear_time)
{
    static const char *const runs[] = { "a",           " ",   "\n", "1",       "(",      "<",
                                        "<|im_start|", "\t ", "ab", "e\u0301", "\u4E2D", "\u3000" };
    enum { LONG = 200 * 1000 };
    struct tokenizer *t[] = { opened_case("tokenizer_l3"), opened_case("tokenizer_q2"),
                              editable_tokenizer(editable_json()), opened_smollm2() };
    for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
        for (size_t k = 0; t[i] != NULL && k < sizeof(runs) / sizeof(*runs); k++) {
            struct text text = { 0 };
            while (text.n < LONG)
                text_puts(&text, runs[k]);
            text_puts(&text, "x");
            clock_t from = clock();
            struct ids ids = encoded(t[i], text.s, text.n, true);
            double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
            if (seconds >
                2) // 0.03 s in a release build, ten times that with sanitizers; quadratic time would be minutes
                fail_msg("%.1f s for a run of \"%s\"", seconds, runs[k]);
            free(ids.id);
            free(text.s);
        }
    for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
        tokenizer_close(t[i]);
}

// ---- two tokenizers ---------------------------------------------------------------------------------------------

TEST(both_formats_of_a_model_have_one_tokenizer)
{
    char *hf = test_path("model"), *gguf = test_path("model.gguf");
    small_write_hf(hf, &small_default);
    small_write_gguf(gguf, &small_default);
    struct tokenizer *a = opened(hf), *b = opened(gguf);
    assert_ok(tokenizer_same(a, b, &err) && tokenizer_same(b, a, &err), err);
    uint64_t seed = 3;
    char text[64 * 4];
    for (int i = 0; i < 500; i++) {
        size_t n = random_text(&seed, text, 50);
        struct ids one = encoded(a, text, n, true), other = encoded(b, text, n, true);
        assert_int_equal(one.n, other.n);
        assert_memory_equal(one.id, other.id, one.n * sizeof(*one.id));
        free(one.id);
        free(other.id);
    }
    tokenizer_close(a);
    tokenizer_close(b);
    free(hf);
    free(gguf);
}

TEST(vocabularies_are_compared_by_bytes_and_errors_name_the_files)
{
    struct tokenizer *usual = editable_tokenizer(editable_json());
    struct tokenizer *padded =
        editable_tokenizer_with("added_tokens", "[{\"id\": 300, \"content\": \"<end>\", \"special\": true}]");
    struct json *j = editable_json();
    editable_set(j, "model.vocab.aa", "260");
    editable_set(j, "model.vocab.bb", "259");
    struct tokenizer *other = editable_tokenizer(j);
    assert_true(tokenizer_same(usual, padded, &err));
    assert_true(tokenizer_same(padded, usual, &err));
    assert_false(tokenizer_same(usual, other, &err));
    assert_string_equal(
        err.text,
        "made.json and made.json have different vocabularies: token 259 is \"aa\" in the first, \"bb\" in the second");
    tokenizer_close(usual);
    tokenizer_close(padded);
    tokenizer_close(other);
}

RUN_TESTS(NULL, test_directory_tear_down)
