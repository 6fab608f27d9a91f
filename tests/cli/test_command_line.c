// test_command_line.c - what commands have in common: numbers and names that are typed, text as it is shown, and its summary.
#include "tests/support/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "commands/command_line.h"
#include "commands/checkpoint/output.h"
#include "commands/text_stream.h"
#include "engine/transcript.h"
#include "commands/checkpoint/writer.h"

static void a_number_is_all_of_its_word_and_in_range(void **state)
{
    (void)state;
    static const char *const wrong[] = { "", " 5", "5 ", "5x", "x", "0x5", "-1", "11", "-", "99999999999999999999" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        long long v = 77;
        if (parse_int(wrong[i], 0, 10, &v) || v != 77)
            fail_msg("\"%s\" was taken", wrong[i]);
    }
    long long v = 77;
    assert_true(parse_int("0", 0, 10, &v) && v == 0);
    assert_true(parse_int("10", 0, 10, &v) && v == 10);
    assert_true(parse_int("-3", -3, 10, &v) && v == -3);
    assert_true(parse_int("9223372036854775807", 0, LLONG_MAX, &v) && v == LLONG_MAX);
    v = 77;
    assert_false(parse_int("9223372036854775808", 0, LLONG_MAX, &v)); // strtoll gives the largest there is
    assert_false(parse_int("-9223372036854775809", LLONG_MIN, 0, &v));
    assert_int_equal(v, 77);
}

static void the_nearest_word_is_the_one_with_the_fewest_slips(void **state)
{
    (void)state;
    static const struct {
        const char *word, *list[4], *nearest;
    } cases[] = {
        { "ilst", { "ilsxy", "list" }, "list" }, // the first two letters exchanged: one slip, the other has two
        { "lsit", { "lsixy", "list" }, "list" }, // in the middle
        { "lits", { "litxy", "list" }, "list" }, // the last two
        { "lst", { "lstxy", "list" }, "lstxy" }, // a beginning of three letters is as near as one slip, the first wins
        { "ls", { "lsxy", "lis" }, "lis" },      // of two letters it is not
        { "abcdef", { "abcxyz" }, "abcxyz" },    // three slips in six letters
        { "abcdef", { "abwxyz" }, NULL },        // four: another word
        { "abcdefghi", { "abcdewxyz" }, "abcdewxyz" }, // four in nine
        { "abcdefghi", { "abcdvwxyz" }, NULL },
        { "temprature", { "top-k", "temperature" }, "temperature" },
        { "", { "x" }, "x" },
        { "anything", { NULL }, NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = nearest(cases[i].word, cases[i].list);
        if (cases[i].nearest == NULL ? got != NULL : got == NULL || strcmp(got, cases[i].nearest) != 0)
            fail_msg("\"%s\": expected %s, got %s", cases[i].word, cases[i].nearest, got);
    }
}

static void a_file_that_is_missing_is_named(void **state)
{
    (void)state;
    struct error err;
    struct text t = { 0 };
    assert_false(read_all("/no/such/file", &t, &err));
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

static void what_was_drafted_is_green_and_out_at_once(void **state)
{
    (void)state;
    for (int colour = 0; colour < 2; colour++) {
        struct stat st;
        FILE *f = tmpfile();
        assert_non_null(f);
        struct printer p = { .to = f, .colour = colour == 1 };
        const int32_t token[] = { 5, 60, 700 };
        printer_add(&p, token, 3, 2);
        assert_int_equal(fstat(fileno(f), &st), 0);
        assert_true(st.st_size > 0); // it does not wait in a buffer
        const int64_t first = st.st_size;
        printer_add(&p, token, 1, 0);
        assert_int_equal(fstat(fileno(f), &st), 0);
        assert_int_equal(st.st_size - first, 3);
        printer_end(&p);
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

static void a_summary_has_every_number_in_its_place(void **state)
{
    (void)state;
    struct transcript t = example;
    char *text = printed(&t);
    assert_string_equal(text,
                        "30 tokens in 8 steps: 3.75 a step, 6.0 tokens/s; ended by: limit\n"
                        "accepted 7 of 12 drafted in 4 drafts; by position 1.00 0.50 0.25\n"
                        "prefill 0.250 s (50 tokens, 200.0/s); propose 1.500 s, verify 2.750 s, advance 0.125 s\n");
    free(text);
    for (int deep = 16; deep <= 17; deep++) { // sixteen positions are shown, of the others that there are some
        t.max_depth = deep;
        text = printed(&t);
        char *ending =
            xformat("by position 1.00 0.50 0.25 0.75%s\n", deep == 17 ? " 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00"
                                                                        " 0.00 0.00 0.00 0.00 ..."
                                                                      : " 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00"
                                                                        " 0.00 0.00 0.00 0.00");
        assert_non_null(strstr(text, ending));
        free(ending);
        free(text);
    }
    t = (struct transcript){ .stop = "end" }; // nothing drafted, nothing measured
    text = printed(&t);
    assert_string_equal(text, "0 tokens in 0 steps: 0.00 a step, 0.0 tokens/s; ended by: end\n"
                              "prefill 0.000 s (0 tokens, 0.0/s); propose 0.000 s, verify 0.000 s, advance 0.000 s\n");
    free(text);
}

static void a_summary_for_programs_has_them_too(void **state)
{
    (void)state;
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

// stderr as a file while something is shown on it.
static char *shown(struct output *m, size_t done, size_t total)
{
    FILE *f = tmpfile();
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    assert_true(f != NULL && before >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
    struct step_observer w = output_observer(m);
    w.progress(w.of, done, total);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    char *text = all_of(f);
    fclose(f);
    return text;
}

static void what_is_written_is_shown_on_a_terminal_alone_and_not_each_time(void **state)
{
    (void)state;
    struct output m = { .terminal = true };
    char *first = shown(&m, 3000000, 20000000);
    assert_string_equal(first, "\r\033[K3 of 20 MB written");
    assert_true(m.shown_ns > 0);
    m.shown_ns = clock_ns() + 3600000000000; // an hour from now: less than a tenth of a second ago
    char *again = shown(&m, 4000000, 20000000);
    assert_string_equal(again, "");
    m = (struct output){ .terminal = false };
    char *nowhere = shown(&m, 3000000, 20000000);
    assert_string_equal(nowhere, "");
    free(first);
    free(again);
    free(nowhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_all_of_its_word_and_in_range),
        cmocka_unit_test(the_nearest_word_is_the_one_with_the_fewest_slips),
        cmocka_unit_test(a_file_that_is_missing_is_named),
        cmocka_unit_test(what_was_drafted_is_green_and_out_at_once),
        cmocka_unit_test(a_summary_has_every_number_in_its_place),
        cmocka_unit_test(a_summary_for_programs_has_them_too),
        cmocka_unit_test(what_is_written_is_shown_on_a_terminal_alone_and_not_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
