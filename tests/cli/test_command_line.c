// test_command_line.c - shared parts of the commands: parsing of numbers and names, streamed text, and its summary.
#include "tests/support/tests.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files/input.h"
#include "core/json.h"
#include "core/memory.h"
#include "commands/command_line.h"
#include "core/names.h"
#include "commands/text_stream.h"
#include "commands/transcript.h"

TEST(a_number_is_the_whole_argument_and_in_range)
{
    static const char *const wrong[] = { "", " 5", "5 ", "5x", "x", "0x5", "-1", "11", "-", "99999999999999999999" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        long long v = 77;
        if (parse_int(wrong[i], 0, 10, &v) || v != 77)
            fail_msg("\"%s\" was accepted", wrong[i]);
    }
    long long v = 77;
    assert_true(parse_int("0", 0, 10, &v) && v == 0);
    assert_true(parse_int("10", 0, 10, &v) && v == 10);
    assert_true(parse_int("-3", -3, 10, &v) && v == -3);
    assert_true(parse_int("9223372036854775807", 0, LLONG_MAX, &v) && v == LLONG_MAX);
    v = 77;
    assert_false(parse_int("9223372036854775808", 0, LLONG_MAX, &v)); // strtoll returns LLONG_MAX
    assert_false(parse_int("-9223372036854775809", LLONG_MIN, 0, &v));
    assert_int_equal(v, 77);
}

TEST(nearest_minimizes_the_edit_distance)
{
    static const struct {
        const char *word, *list[4], *nearest;
    } cases[] = {
        { "ilst", { "ilsxy", "list" }, "list" },       // the first two letters exchanged: distance 1, the other has 2
        { "lsit", { "lsixy", "list" }, "list" },       // in the middle
        { "lits", { "litxy", "list" }, "list" },       // the last two
        { "lst", { "lstxy", "list" }, "lstxy" },       // a prefix of three letters has distance 1; the first entry wins
        { "ls", { "lsxy", "lis" }, "lis" },            // a prefix of two letters does not
        { "abcdef", { "abcxyz" }, "abcxyz" },          // distance 3 of six letters
        { "abcdef", { "abwxyz" }, NULL },              // 4: unrelated
        { "abcdefghi", { "abcdewxyz" }, "abcdewxyz" }, // 4 of nine
        { "abcdefghi", { "abcdvwxyz" }, NULL },
        { "temprature", { "top-k", "temperature" }, "temperature" },
        { "", { "x" }, "x" },
        { "anything", { NULL }, NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = name_nearest(cases[i].word, cases[i].list);
        if (cases[i].nearest == NULL ? got != NULL : got == NULL || strcmp(got, cases[i].nearest) != 0)
            fail_msg("\"%s\": expected %s, got %s", cases[i].word, cases[i].nearest, got);
    }
}

TEST(a_missing_file_is_named)
{
    struct error err;
    struct text t = { 0 };
    assert_false(input_read("/no/such/file", INPUT_STDIN, INPUT_TEXTS, &t, &err));
    assert_string_equal(err.text, "/no/such/file: No such file or directory");
    free(t.s);
}

static char *all_of(FILE *f)
{
    char text[4096];
    rewind(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    return xstrdup(text);
}

TEST(accepted_draft_tokens_are_green_and_flushed_at_once)
{
    for (int colour = 0; colour < 2; colour++) {
        struct stat st;
        FILE *f = tmpfile();
        assert_non_null(f);
        struct printer p = { .to = f, .colour = colour == 1 };
        const int32_t token[] = { 5, 60, 700 };
        printer_add(&p, token, 3, 2);
        assert_int_equal(fstat(fileno(f), &st), 0);
        assert_true(st.st_size > 0); // it is flushed
        const int64_t first = st.st_size;
        printer_add(&p, token, 1, 0);
        assert_int_equal(fstat(fileno(f), &st), 0);
        assert_int_equal(st.st_size - first, 3);
        printer_end(&p, false);
        char *out = all_of(f);
        assert_string_equal(out, colour == 1 ? "\033[32m[5, 60\033[0m, 700, 5]\n" : "[5, 60, 700, 5]\n");
        free(out);
        printer_free(&p);
        fclose(f);
    }
}

static const struct transcript example = {
    .n = 30,
    .prompt = 50,
    .stop = "limit",
    .steps = 8,
    .drafts = 4,
    .drafted = 12,
    .accepted = 7,
    .max_depth = 3,
    .accepted_at = { 4, 2, 1, 3 },
    .prefill_ns = 250000000,
    .propose_ns = 1500000000,
    .verify_ns = 2750000000,
    .advance_ns = 125000000,
    .decode_ns = 5000000000,
};

static char *printed(const struct transcript *t)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    transcript_print(t, f);
    char *text = all_of(f);
    fclose(f);
    return text;
}

TEST(the_text_summary_contains_every_number)
{
    struct transcript t = example;
    char *text = printed(&t);
    assert_string_equal(text,
                        "30 tokens in 8 steps: 3.75 per step, 6.0 tokens/s; ended by: limit\n"
                        "accepted 7 of 12 draft tokens in 4 drafts; by position 1.00 0.50 0.25\n"
                        "prefill 0.250 s (50 tokens, 200.0/s); propose 1.500 s, verify 2.750 s, advance 0.125 s\n");
    free(text);
    for (int depth = 16; depth <= 17; depth++) { // sixteen positions are shown, then "..."
        t.max_depth = depth;
        text = printed(&t);
        char *ending =
            xformat("by position 1.00 0.50 0.25 0.75%s\n", depth == 17 ? " 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00"
                                                                         " 0.00 0.00 0.00 0.00 ..."
                                                                       : " 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00"
                                                                         " 0.00 0.00 0.00 0.00");
        assert_non_null(strstr(text, ending));
        free(ending);
        free(text);
    }
    t = (struct transcript){ .stop = "end" }; // nothing drafted, nothing measured
    text = printed(&t);
    assert_string_equal(text, "0 tokens in 0 steps: 0.00 per step, 0.0 tokens/s; ended by: end\n"
                              "prefill 0.000 s (0 tokens, 0.0/s); propose 0.000 s, verify 0.000 s, advance 0.000 s\n");
    free(text);
}

TEST(the_json_summary_contains_every_number)
{
    struct transcript t = example;
    int32_t token[30];
    for (int i = 0; i < 30; i++)
        token[i] = i;
    t.n = 3;
    t.token = token;
    struct json *j = json_new_object();
    transcript_json(&t, j);
    char *text = json_write(j);
    assert_string_equal(text,
                        "{\"new_ids\":[0,1,2],\"stop\":\"limit\",\"steps\":[],\"times\":{\"prefill_ns\":250000000,"
                        "\"propose_ns\":1500000000,\"verify_ns\":2750000000,\"advance_ns\":125000000,"
                        "\"decode_ns\":5000000000}}");
    free(text);
    json_free(j);
}

RUN_TESTS(NULL, NULL)
