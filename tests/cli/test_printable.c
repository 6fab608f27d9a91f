// test_printable.c - control characters in names of files, models and databases do not reach the terminal, and no name is a formula; data stay data.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/csv.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/printable.h"
#include "core/utf8.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

static char *printable(const char *s, size_t n, const char *keep)
{
    struct text t = { 0 };
    printable_put(&t, s, n, keep);
    return t.s;
}

TEST(controls_are_written_as_in_json)
{
    static const struct {
        const char *text, *shown;
    } pair[] = {
        { "", "" },
        { "plain \xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x99\x82 \\u001B",
          "plain \xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x99\x82 \\u001B" },
        { "\x1B[2J\x07", "\\u001B[2J\\u0007" },
        { "a\tb\nc\rd\r\ne", "a\tb\nc\\u000Dd\r\ne" },
        { "\x7F\xC2\x9B"
          "2J\xC2\x85",
          "\\u007F\\u009B2J\\u0085" },
        { "\xE2\x80\xAE\xE2\x81\xA6\xD8\x9C\xE2\x80\x8F", "\\u202E\\u2066\\u061C\\u200F" },
        { "\xFF\xC3(\xE2\x80", "\\xFF\\xC3(\\xE2\\x80" },
        { "\x9B", "\\x9B" }, // a C1 control of an 8-bit terminal
    };
    for (size_t i = 0; i < sizeof(pair) / sizeof(*pair); i++) {
        char *shown = printable(pair[i].text, strlen(pair[i].text), "\n\t");
        assert_string_equal(shown, pair[i].shown);
        char *again = printable(shown, strlen(shown), "\n\t");
        assert_string_equal(again, shown);
        free(again);
        free(shown);
    }
    char *shown = printable("a\0b\r\n", 5, "");
    assert_string_equal(shown, "a\\u0000b\\u000D\\u000A");
    free(shown);
}

// Every character of Unicode's first planes, as a text of JSON: printed, it is the same value.
TEST(json_stays_the_same_value)
{
    struct text all = { 0 };
    for (unsigned c = 1; c < 0x20000; c++) {
        char to[4];
        if (c >= 0xD800 && c < 0xE000)
            continue;
        const int n = utf8_put(c, to);
        text_add(&all, to, (size_t)n);
    }
    struct error err;
    struct json *text = json_new_text_n(all.s, all.n);
    char *line = json_write(text), *shown = printable(line, strlen(line), "\n\t");
    struct json *read = json_parse(shown, strlen(shown), "printed", &err);
    assert_non_null(read);
    assert_int_equal(json_text_length(read), all.n);
    assert_memory_equal(json_text(read), all.s, all.n);
    json_free(read);
    json_free(text);
    free(line);
    free(shown);
    free(all.s);
}

// However the bytes are divided into writes.
TEST(a_stream_prints_what_the_whole_text_gives)
{
    static const char text[] =
        "a\r\nb\r\xE6\xBC\xA2 \xE6\xBC\x1B \xF0\x9F\x99\x82 \xC2\x9B \xE2\x80\xAE \xF0\x9F(\r\r\n end\xE9\n\xF0\x9F\x99";
    for (size_t n = 1, step = 1; n < sizeof(text); step = step < n ? step + 1 : 1, n += step == 1) {
        char *expected = printable(text, n, "\n\t");
        int ends[2];
        char found[256] = "";
        assert_int_equal(pipe(ends), 0);
        FILE *f = printable_stream(ends[1]);
        assert_non_null(f);
        for (size_t at = 0; at < n; at += step) {
            fwrite(text + at, 1, n - at < step ? n - at : step, f);
            assert_int_equal(fflush(f), 0);
        }
        assert_int_equal(fclose(f), 0);
        close(ends[1]);
        for (ssize_t got, have = 0; (got = read(ends[0], found + have, sizeof(found) - 1 - (size_t)have)) > 0;)
            have += got;
        close(ends[0]);
        assert_string_equal(found, expected);
        free(expected);
    }
    FILE *full = printable_stream(-1);
    fputs("x", full);
    errno = 0;
    assert_int_not_equal(fflush(full), 0);
    assert_int_equal(errno, EBADF);
    fclose(full);
}

TEST(errors_are_printable)
{
    struct error err;
    assert_false(fail(&err, "%s: expected a name", "x\x1B]0;y\x07"));
    assert_string_equal(err.text, "x\\u001B]0;y\\u0007: expected a name");
    assert_false(error_is_usage(&err));
    assert_false(fail_usage(&err, "%s again", err.text)); // its own text
    assert_string_equal(err.text, "x\\u001B]0;y\\u0007: expected a name again");
    assert_true(error_is_usage(&err));
    char long_name[3000];
    memset(long_name, 0x1B, sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    assert_false(fail_usage(&err, "%s", long_name));
    assert_true(strlen(err.text) < sizeof(err.text) - 1 && strchr(err.text, 0x1B) == NULL && error_is_usage(&err));
}

static void expect_printable(const char *words, const char *with)
{
    struct child_result r = child_run(words, test_directory());
    if (strpbrk(r.out, "\x1B\x07") != NULL || strpbrk(r.err, "\x1B\x07") != NULL ||
        (strstr(r.out, with) == NULL && strstr(r.err, with) == NULL))
        fail_msg("%s: %s%s", words, r.out, r.err);
    child_result_free(&r);
}

TEST(commands_print_names_as_text)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "UPDATE run SET drafter = drafter || char(27) || '[2J', machine = machine || char(27)");
    sample_facts_query(s, "UPDATE sequence SET category = category || char(27) || ']0;x' || char(7)");
    store_close(s);
    char *yaml = test_path("e.yaml"), *gguf = test_path("m.gguf");
    file_write(yaml, "\"\\e[2Jx\": 1\n");
    static const char model[] =
        "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\24\0\0\0\0\0\0\0general.architecture\10\0\0\0"
        "\4\0\0\0\0\0\0\0\33[2J";
    file_write_bytes(gguf, model, sizeof(model) - 1);
    static const char *const words[] = {
        "report --db %s/results.db --csv",
        "report --db %s/results.db --jsonl",
        "report --db %s/results.db --json",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        expect_printable(words[i], "\\u001B");
    expect_printable("run %s/e.yaml", "\\u001B[2Jx");
    expect_printable("inspect --json %s/m.gguf", "\\u001B[2J");
    expect_printable("report --json --db '%s/\x1B.db'", "\\u001B.db");
    expect_printable("'%s\x1B[2J'", "\\u001B[2J");
    free(yaml);
    free(gguf);
}

TEST(a_name_is_no_formula_of_a_spreadsheet)
{
    static const struct {
        const char *field, *cell;
    } pair[] = {
        { "=cmd|'/C calc'!A0", "'=cmd|'/C calc'!A0" },
        { "+1+cmd", "'+1+cmd" },
        { "-2+3", "'-2+3" },
        { "@SUM(1, 2)", "\"'@SUM(1, 2)\"" },
        { "\t=1", "'\t=1" },
        { "\r=1", "\"'\r=1\"" },
        { "-0.5", "-0.5" },
        { "+1e-3", "+1e-3" },
        { "-", "-" },
        { "", "" },
        { "a=1", "a=1" },
        { "'=1", "'=1" },
    };
    for (size_t i = 0; i < sizeof(pair) / sizeof(*pair); i++) {
        struct text t = { 0 };
        csv_put(&t, pair[i].field, true);
        assert_string_equal(t.s, pair[i].cell);
        free(t.s);
    }
    struct store *s = sample_store_small();
    sample_facts_query(s, "UPDATE run SET target = '=HYPERLINK(\"http://x\")'");
    store_close(s);
    struct child_result r = child_run("report --db %s/results.db --csv", test_directory());
    child_expect_success(&r, "report");
    assert_non_null(strstr(r.out, ",\"'=HYPERLINK(\"\"http://x\"\")\","));
    assert_null(strstr(r.out, ",\"="));
    child_result_free(&r);
}

RUN_EACH_TEST(NULL, test_directory_tear_down)
