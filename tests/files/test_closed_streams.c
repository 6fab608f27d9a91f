// test_closed_streams.c - a command that is started with closed standard streams, as by a daemon: no file that it opens takes their place.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "tests/cli/child_process.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static int shell(const char *words, const char *streams)
{
    char *here = words_here(words), *line = xformat("exec %s %s %s", SPECLAB, here, streams);
    const int status = system(line);
    free(here);
    free(line);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char *content(const char *name)
{
    struct error err;
    char *path = test_path(name), *text = file_text(path, NULL, &err);
    assert_ok(text != NULL, err);
    free(path);
    return text;
}

static void messages_do_not_go_into_the_data(void **state)
{
    char *texts = test_path("texts.jsonl");
    file_write(texts, "{\"text\": \"one two three\"}\n{\"text\": \"four five\"}\n");
    static const char *const streams[] = { ">/dev/null 2>&1", ">&- 2>&-", "<&- >&- 2>&-" };
    for (int i = 0; i < 3; i++) {
        shell("inspect HERE/target.gguf HERE/texts.jsonl --score --packed keep", streams[i]);
        char *move = xformat("cd %s && mv target.gguf.packed packed%d && cmp packed0 packed%d", test_directory(), i, i);
        assert_int_equal(system(move), 0);
        free(move);
    }
    free(texts);
}

// A result that nobody gets is a failure, as before.
static void a_closed_stdout_is_an_error(void **state)
{
    assert_int_equal(shell("inspect --json HERE/target.gguf", ">/dev/null"), 0);
    char *err_file = test_path("err"), *streams = xformat(">&- 2>%s", err_file);
    assert_int_equal(shell("inspect --json HERE/target.gguf", streams), 1);
    char *said = content("err");
    assert_string_equal(said, "speclab inspect: cannot write to stdout: Bad file descriptor\n");
    free(said);
    free(streams);
    streams = xformat("<&- 2>%s", err_file);
    assert_int_equal(shell("generate HERE/target.gguf -", streams), 1);
    said = content("err");
    assert_non_null(strstr(said, "speclab generate: stdin: "));
    free(said);
    free(streams);
    free(err_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_do_not_go_into_the_data),
        cmocka_unit_test(a_closed_stdout_is_an_error),
    };
    return run_with_models(tests);
}
