// test_tokenizer_parts.c - the parts of a tokenizer: splitting, patterns, NFC, merging.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "models/tokenizers/bpe.h"
#include "models/tokenizers/normal_form.h"
#include "models/tokenizers/pattern.h"
#include "models/tokenizers/pretokenize.h"
#include "models/tokenizers/tokenizer.h"
#include "core/utf8.h"
#include "tests/support/tests.h"

static struct error err;

// ---- splitting ---------------------------------------------------------------------------------------------------

static void with_bars(void *to, const char *s, size_t n)
{
    struct text *out = to;
    if (out->n > 0)
        text_puts(out, "|");
    text_add(out, s, n);
}

static void expect_split(const struct pretokenizer *p, const char *text, const char *pieces)
{
    struct text out = { 0 };
    text_add(&out, "", 0);
    struct splitter *c = splitter_begin(p, with_bars, &out);
    assert_ok(splitter_text(c, text, strlen(text), true, &err), err);
    splitter_end(c);
    assert_string_equal(out.s, pieces);
    free(out.s);
}

struct example {
    const char *family, *text, *pieces;
};

static void expect_splits(const struct example *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct pretokenizer p = { 0 };
        bool whole;
        assert_ok(pretokenizer_family(&p, e[i].family, strlen(e[i].family), &whole, &err), err);
        expect_split(&p, e[i].text, e[i].pieces);
        pretokenizer_free(&p);
    }
}

#define EXPECT_SPLITS(examples) expect_splits(examples, sizeof(examples) / sizeof(*(examples)))

TEST(families_split_as_their_models_were_trained)
{
    static const struct example examples[] = {
        { "gpt-2", "", "" },
        { "gpt-2", "I'll take  12 apples, won't I?\n\n x", "I|'ll| take| | 12| apples|,| won|'t| I|?|\n\n| x" },
        { "gpt-2", "I'LL", "I|'|LL" },
        { "smollm", "a 12", "a| |1|2" }, // "a " is split without its right context
        { "smollm", "in 1969", "in| |1|9|6|9" },
        { "llama-bpe", "I'LL pay $12345!\n\nNo", "I|'LL| pay| $|123|45|!\n\n|No" },
        { "llama-bpe", "it'\u017F  .x", "it|'\u017F| | .|x" }, // the long s is a case variant of s
        { "qwen2", "$1234 \n  x", "$|1|2|3|4| \n| | x" },
        { "qwen2", "\tfoo(bar)\r\n", "\tfoo|(bar|)\r\n" },
        { "deepseek-r1-qwen", "a   b", "a|  | b" },
    };
    EXPECT_SPLITS(examples);
}

// PCRE2 10.42 has Unicode 14 and treats U+180E as white space; tokenizers does neither.
TEST(character_classes_are_those_of_hugging_face)
{
    static const struct example examples[] = {
        { "gpt-2", "a\u180Eb c", "a|\u180E|b| c" },
        { "gpt-2", "x\u180E\u180E y", "x|\u180E\u180E| y" },
        { "gpt-2", "a\U00031350\U0002EBF0b!", "a\U00031350\U0002EBF0b|!" }, // Han of Unicode 15
        { "gpt-2", "\uA7CB\u1C8A\U00010D4A", "\uA7CB\u1C8A\U00010D4A" },    // letters of Unicode 16
        { "gpt-2", "a\U00011F50\U0001CCF0", "a|\U00011F50\U0001CCF0" },     // numbers of 15 and 16
        { "gpt-2", "\U00011DE0", "\U00011DE0" },
        { "smollm", "\U00011DE0\U00011DE1", "\U00011DE0|\U00011DE1" }, // numbers of 17, matched by Digits only
        { "gpt-2", "x\xC2\x85\u2028\u3000y", "x|\xC2\x85\u2028|\u3000|y" },
        { "gpt-2", "x\u200B\uFEFFy", "x|\u200B\uFEFF|y" },
    };
    EXPECT_SPLITS(examples);
}

static struct pretokenizer splitter_of(const char *pattern, enum keep keep)
{
    struct pretokenizer p = { 0 };
    assert_ok(pretokenizer_split(&p, pattern, strlen(pattern), keep, &err), err);
    return p;
}

TEST(gaps_are_pieces_and_empty_matches_split)
{
    static const struct {
        const char *pattern;
        enum keep keep;
        const char *text, *pieces;
    } examples[] = {
        { "b+", KEEP_ALL, "abbcb", "a|bb|c|b" },
        { "b+", KEEP_MATCHES, "abbcb", "bb|b" },
        { "b+", KEEP_GAPS, "abbcb", "a|c" },
        { "(?=b)", KEEP_ALL, "abcb", "a|bc|b" },
        { "b*", KEEP_ALL, "\u00E9abb\u00E9", "\u00E9|a|bb|\u00E9" },
        { "x", KEEP_MATCHES, "abc", "" },
        { "^.|.$", KEEP_ALL, "abc\ndef\n", "a|b|c|\n|d|e|f|\n" }, // line anchors, as in Ruby
        { "\\u0041\\x{42}\\x43", KEEP_ALL, "xABCy", "x|ABC|y" },
        { "[\\s-]+", KEEP_ALL, "a - b", "a| - |b" },
        { "[\\s-\\x{41}]+", KEEP_ALL, "a-A Bb", "a|-A |Bb" },
        { "\\P{L}+|\\p{^Ll}|\\D", KEEP_ALL, "ab1+c", "a|b|1+|c" },
        { "(?<!a)b|(?>c+)|d{2,}", KEEP_ALL, "abbccddde", "ab|b|cc|ddd|e" },
    };
    for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++) {
        struct pretokenizer p = splitter_of(examples[i].pattern, examples[i].keep);
        expect_split(&p, examples[i].text, examples[i].pieces);
        pretokenizer_free(&p);
    }
}

TEST(stages_see_only_their_piece)
{
    struct pretokenizer p = splitter_of(",", KEEP_ALL);
    assert_true(pretokenizer_split(&p, "\\s+(?!\\S)", 9, KEEP_ALL, &err));
    expect_split(&p, "a ,b  c", "a| |,|b| | c");
    pretokenizer_free(&p);
    p = (struct pretokenizer){ 0 };
    assert_true(pretokenizer_add(&p, (struct stage){ .pattern = pattern_literal(".*", 2, &err) }, &err));
    assert_true(pretokenizer_add(&p, (struct stage){ .prefix = PREFIX_ALWAYS }, &err));
    expect_split(&p, "a.*b c", " a| .*| b c"); // a space is prepended to each piece without one
    pretokenizer_free(&p);
}

TEST(syntax_that_ruby_and_perl_interpret_differently_is_refused)
{
    static const char *const patterns[][2] = {
        { "\\w+", "\\w at offset 0" },
        { "a\\b", "\\b at offset 1" },
        { "\\h", "\\h at offset 0" },
        { "(a)\\1", "\\1 at offset 3" },
        { "[a[bc]]", "a class within a class at offset 2" },
        { "[[:alpha:]]", "a class within a class at offset 1" },
        { "[a-z&&[^b]]", "a class within a class at offset 4" },
        { "[]a]", "an empty class" },
        { "(?m:a)", "this kind of group at offset 0" },
        { "(?i)a", "this kind of group at offset 0" },
        { "(*ACCEPT)", "this kind of group at offset 0" },
        { "(?<x>a)", "this kind of group at offset 0" },
        { "a{1,2}+", "a quantifier after {...}" },
        { "a{2}?", "a quantifier after {...}" },
        { "a{,2}", "a brace" },
        { "a{b", "a brace" },
        { "\\p{Han}", "the property \\p{Han} at offset 0" },
        { "\\p{C}", "the property \\p{C} at offset 0" },
        { "\\p{}", "the property \\p{}" },
        { "\\pL", "a property not written" },
        { "[^\\S]", "a negated shorthand inside [...] at offset 2" },
        { "\\x{110000}", "does not compile" },
        { "\\u12", "a code point" },
        { "a\\", "a \\ at the end" },
        { "(a", "does not compile" },
        { "*", "does not compile" },
        { "[a", "does not compile" },
        { "\xFF", "not UTF-8" },
    };
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        struct pattern *p = pattern_compile(patterns[i][0], strlen(patterns[i][0]), &err);
        if (p != NULL || strstr(err.text, patterns[i][1]) == NULL)
            fail_msg("%s: %s, not %s", patterns[i][0], p != NULL ? "compiled" : err.text, patterns[i][1]);
    }
}

// Nested counts: 20^6 steps at each character, which no limit on one of them bounds.
#define COUNTS "(?:[^z]{0,20}[^z]{0,20}[^z]{0,20}[^z]{0,20}[^z]{0,20}[^z]{0,20}zy|.)"

TEST(nested_counts_take_time_by_the_length_of_the_text)
{
    struct pretokenizer p = splitter_of(COUNTS, KEEP_ALL);
    struct text text = { 0 }, out = { 0 };
    for (int i = 0; i < 20000; i++)
        text_puts(&text, "x");
    struct splitter *c = splitter_begin(&p, with_bars, &out);
    alarm(60); // ends the program: without bounds, hours
    for (size_t n = 300; n <= text.n; n *= 4) {
        assert_false(splitter_text(c, text.s, n, true, &err));
        assert_int_equal(strncmp(err.text, "the pattern " COUNTS " failed at byte ",
                                 strlen("the pattern " COUNTS " failed at byte ")),
                         0);
        assert_non_null(strstr(err.text, ": match limit exceeded"));
    }
    for (int i = 0; i < 1000 && splitter_text(c, text.s, 30, true, &err); i++) // short texts, one after another
        ;
    alarm(0);
    splitter_end(c);
    pretokenizer_free(&p);
    free(text.s);
    free(out.s);
}

// A match of many steps is found where it is, after characters of few: as by a plain loop.
TEST(a_long_match_after_others_is_found)
{
    struct pretokenizer p = splitter_of("(?:ab|ac)+d", KEEP_ALL);
    struct text text = { 0 }, expected = { 0 };
    for (int part = 0; part < 5; part++) {
        text_puts(&text, "\xC3\xA4 abab ");
        text_puts(&expected, part == 0 ? "\xC3\xA4 abab |" : "|\xC3\xA4 abab |");
        for (int i = 0; i <= 10000 * part; i++) {
            const char *more = i == 10000 * part ? "abd" : i % 3 == 0 ? "ab" : "ac";
            text_puts(&text, more);
            text_puts(&expected, more);
        }
    }
    expect_split(&p, text.s, expected.s);
    pretokenizer_free(&p);
    free(text.s);
    free(expected.s);
}

TEST(a_long_group_is_matched_on_the_heap)
{
    struct pretokenizer p = splitter_of("(?:a|bc)+", KEEP_ALL);
    struct text text = { 0 };
    while (text.n < 300000)
        text_puts(&text, "abc");
    expect_split(&p, text.s, text.s); // one piece
    pretokenizer_free(&p);
    free(text.s);
}

TEST(a_pattern_without_end_is_refused)
{
    struct text text = { 0 };
    text_puts(&text, "[");
    while (text.n < (1 << 16) - 1)
        text_puts(&text, "a");
    text_puts(&text, "]");
    struct pattern *p = pattern_compile(text.s, text.n, &err);
    assert_non_null(p);
    pattern_free(p);
    text_puts(&text, "a");
    assert_null(pattern_compile(text.s, text.n, &err));
    assert_string_equal(err.text, "expected a pattern of at most 65536 bytes, found 65537");
    assert_null(pattern_literal(text.s, text.n, &err));
    free(text.s);
}

struct expected_pieces { // compared with a list in order
    const char *family;
    const struct json *expected;
    size_t n;
};

static void expect_piece(void *to, const char *s, size_t n)
{
    struct expected_pieces *c = to;
    const struct json *one = json_at(c->expected, c->n);
    if (one == NULL || json_text_length(one) != n || memcmp(json_text(one), s, n) != 0)
        fail_msg("%s: piece %zu is \"%.*s\", not \"%s\"", c->family, c->n, (int)n, s,
                 one != NULL ? json_text(one) : "nothing");
    c->n++;
}

// tests/cases/make_families.py: Hugging Face's own pieces for every family name.
TEST(every_family_splits_as_its_models_tokenizer_does)
{
    bool whole;
    struct pretokenizer none = { 0 };
    static const char *const unknown[] = { "default", "tekken2", "gpt-22", "GPT-2", "" };
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) { // the error lists all families
        assert_false(pretokenizer_family(&none, unknown[i], strlen(unknown[i]), &whole, &err));
        char *found = xformat("the pre-tokenizer \"%s\" is not known (", unknown[i]);
        assert_non_null(strstr(err.text, found));
        free(found);
    }
    const char *names = strchr(err.text, '(');
    assert_non_null(names);
    int known = 1, files = 0;
    for (const char *at = names; *at != '\0'; at++)
        known += *at == ',';
    FILE *f = fopen(CASES "/families.jsonl", "re");
    assert_non_null(f);
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, f)) > 0; files++) {
        struct error why;
        struct json *j = json_parse(line, (size_t)n, "families.jsonl", &why);
        assert_non_null(j);
        const struct json *name = json_get(j, "name"), *pieces = json_get(j, "pieces");
        struct pretokenizer p = { 0 };
        struct text text = { 0 };
        assert_non_null(strstr(names, json_text(name)));
        assert_ok(pretokenizer_family(&p, json_text(name), json_text_length(name), &whole, &why), why);
        assert_int_equal(whole, json_bool(json_get(j, "whole")));
        text_puts(&text, json_text(json_get(j, "text"))); // of a family whose pieces are in byte letters
        const bool given = text.n > 0;
        for (size_t i = 0; i < json_count(pieces) && !given; i++)
            text_add(&text, json_text(json_at(pieces, i)), json_text_length(json_at(pieces, i)));
        struct expected_pieces to = { json_text(name), pieces, 0 };
        struct splitter *c = splitter_begin(&p, expect_piece, &to);
        assert_true(splitter_text(c, text.s, text.n, true, &why));
        assert_int_equal(to.n, json_count(pieces));
        splitter_end(c);
        pretokenizer_free(&p);
        free(text.s);
        json_free(j);
    }
    assert_int_equal(files, known); // a new family needs a line in make_families.py
    free(line);
    fclose(f);
}

// ---- letters and normal form ------------------------------------------------------------------------------------

TEST(every_byte_has_a_letter_of_its_own)
{
    static const struct {
        unsigned char byte;
        const char *letter;
    } known[] = { { ' ', "\u0120" },  { '\n', "\u010A" }, { 0, "\u0100" },    { 'a', "a" },
                  { 0x7F, "\u0121" }, { 0xA0, "\u0142" }, { 0xAD, "\u0143" }, { 0xFF, "\u00FF" } };
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        char letter[3] = "";
        assert_int_equal(byte_to_letter(known[i].byte, letter), strlen(known[i].letter));
        assert_string_equal(letter, known[i].letter);
    }
    struct text letters = { 0 }, bytes = { 0 };
    char all[256];
    for (int b = 0; b < 256; b++)
        all[b] = (char)b;
    bytes_to_letters(all, sizeof(all), &letters);
    assert_true(letters_to_bytes(letters.s, letters.n, &bytes));
    assert_int_equal(bytes.n, 256);
    assert_memory_equal(bytes.s, all, 256);
    static const char *const none[] = { " ", "a b", "\u0144", "\u4E2D", "\xFF", "\u00AD", "a\u00A0" };
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        assert_false(letters_to_bytes(none[i], strlen(none[i]), &bytes));
    assert_int_equal(bytes.n, 256);
    free(letters.s);
    free(bytes.s);
}

// As tokenizers 0.23 normalizes; the last six differ in newer Unicode or in utf8proc 2.8.
TEST(nfc_is_that_of_hugging_face)
{
    static const char *const pairs[][2] = {
        { "", "" },
        { "plain", "plain" },
        { "caf\u00E9", "caf\u00E9" },
        { "cafe\u0301 e\u0323\u0301", "caf\u00E9 \u1EB9\u0301" },
        { "q\u0307\u0323", "q\u0323\u0307" },
        { "\u1100\u1161\u11A8", "\uAC01" },
        { "\u212B\u2126", "\u00C5\u03A9" },
        { "\u0958", "\u0915\u093C" },
        { "\u0301e", "\u0301e" },
        { "\uAC00\u11A7", "\uAC00\u11A7" },
        { "e\u08CA\u0301", "e\u08CA\u0301" },
        { "\U00011935\U00011930", "\U00011935\U00011930" },
        { "\U00016121\U0001611E", "\U00016121\U0001611E" },
        { "\U000105D2\u0307", "\U000105D2\u0307" },
        { "e\u0301\u1ABF\u0301e\u0301", "\u00E9\u1ABF\u0301\u00E9" },
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        struct text out = { 0 };
        text_add(&out, "", 0);
        normal_form_add(&out, pairs[i][0], strlen(pairs[i][0]), NFC);
        assert_string_equal(out.s, pairs[i][1]);
        free(out.s);
    }
}

// ---- merging ----------------------------------------------------------------------------------------------------

enum { RULES = 40 };
struct rule {
    int32_t left, right, whole;
};

// The definition: the lowest rank that matches anywhere, at its leftmost position, until nothing matches.
static size_t reference_merge(const struct rule *rule, int rules, int32_t *id, size_t n)
{
    for (int r = 0; r < rules; r++)
        for (size_t i = 0; i + 1 < n; i++)
            if (id[i] == rule[r].left && id[i + 1] == rule[r].right) {
                id[i] = rule[r].whole;
                memmove(id + i + 1, id + i + 2, (n - i - 2) * sizeof(*id));
                n--;
                r = -1; // start again from the lowest rank
                break;
            }
    return n;
}

TEST(merging_follows_its_definition)
{
    uint64_t seed = 4;
    struct bpe_work work = { 0 };
    for (int table_instance = 0; table_instance < 200; table_instance++) {
        struct rule rule[RULES];
        struct bpe b;
        bpe_init(&b, RULES);
        for (int c = 0; c < 3; c++)
            b.byte['a' + c] = c;          // three letters, so that most pairs occur
        for (int r = 0; r < RULES; r++) { // any two of the tokens so far
            uint64_t tokens = (uint64_t)(3 + r);
            rule[r] = (struct rule){ (int32_t)(splitmix(&seed) % tokens), (int32_t)(splitmix(&seed) % tokens), 3 + r };
            for (int k = 0; k < r; k++)
                if (rule[k].left == rule[r].left && rule[k].right == rule[r].right)
                    rule[r].left = rule[r].right = 1000 + r; // a duplicate pair: made unmatchable
            bpe_merge(&b, rule[r].left, rule[r].right, (uint32_t)r, rule[r].whole);
        }
        for (int k = 0; k < 50; k++) {
            char piece[40];
            int32_t plain[40];
            size_t n = splitmix(&seed) % 40;
            for (size_t i = 0; i < n; i++) {
                plain[i] = (int32_t)(splitmix(&seed) % 3);
                piece[i] = (char)('a' + plain[i]);
            }
            struct ids ids = { 0 };
            bpe_encode(&b, &work, piece, n, &ids);
            n = reference_merge(rule, RULES, plain, n);
            assert_int_equal(ids.n, n);
            if (n > 0)
                assert_memory_equal(ids.id, plain, n * sizeof(*plain));
            free(ids.id);
        }
        bpe_free(&b);
    }
    bpe_work_free(&work);
}

RUN_TESTS(NULL, NULL)
