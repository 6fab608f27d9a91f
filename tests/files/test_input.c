// test_input.c - what is read: devices and pipes where files are expected, streams, lines that are too long or for which memory does not suffice.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

// ---- kinds

static void expect_refused(int status, const char *with, const char *words)
{
    char *here = words_here(words), *expected = words_here(with);
    alarm(60); // what waits for ever fails
    child_expect_error(status, expected, here);
    alarm(0);
    free(here);
    free(expected);
}

// Every kind of file that a command reads, as a device that never ends and as a pipe without a writer.
static void what_is_no_file_is_refused_by_name(void **state)
{
#define PIPE "HERE/fifo: a pipe to which nothing is written"
#define DEVICE "/dev/zero: expected a file or a pipe, found a device"
#define EXPERIMENT(FILE) \
    "printf 'name: a\ntarget: {model: target.gguf}\nprompts: {file: %s}\ncells: {drafter: {kind: none}}\n' " FILE \
    " >on.yaml"
    static const struct {
        const char *made; // by the shell, in the folder
        int status;
        const char *with, *words;
    } cases[] = {
        { "ln -s /dev/zero model/config.json", 1, "HERE/model/config.json: expected a file, found a device",
          "inspect --json HERE/model" },
        { "ln -sf ../fifo model/config.json", 1, "HERE/model/config.json: expected a file, found a pipe",
          "inspect --json HERE/model" },
        { "ln -s /dev/zero tokenizer.json", 1, "HERE/tokenizer.json: expected a file, found a device",
          "inspect --tokenize HERE/tokenizer.json" },
        { "ln -sf fifo tokenizer.json", 1, "HERE/tokenizer.json: expected a file, found a pipe",
          "inspect --tokenize HERE/tokenizer.json" },
        { EXPERIMENT("fifo"), 2, PIPE, "run HERE/on.yaml --dry-run --json --db HERE/x.db" },
        { EXPERIMENT("/dev/zero"), 2, DEVICE, "run HERE/on.yaml --dry-run --json --db HERE/x.db" },
        { "true", 2, PIPE, "run HERE/fifo --dry-run --json --db HERE/x.db" },
        { "true", 2, DEVICE, "run /dev/zero --dry-run --json --db HERE/x.db" },
        { "true", 1, PIPE, "inspect --score HERE/target.gguf HERE/fifo" },
        { "true", 1, DEVICE, "inspect --score HERE/target.gguf /dev/zero" },
        { "true", 1, PIPE, "inspect --tokenize HERE/target.gguf HERE/fifo" },
        { "true", 1, DEVICE, "inspect --tokenize HERE/target.gguf /dev/zero" },
    };
    char *begin = xformat("cd %s && mkfifo fifo && mkdir model", test_directory());
    assert_int_equal(system(begin), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *command = xformat("cd %s && %s", test_directory(), cases[i].made);
        assert_int_equal(system(command), 0);
        expect_refused(cases[i].status, cases[i].with, cases[i].words);
        free(command);
    }
    free(begin);
}

// A process that writes n bytes to a pipe, in parts, after a moment. Returns the reading end.
static int slow_writer(const char *bytes, size_t n)
{
    int end[2];
    assert_int_equal(pipe(end), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (size_t done = 0; done < n; done += 3) {
            usleep(1000);
            if (write(end[1], bytes + done, n - done < 3 ? n - done : 3) < 0)
                _exit(1);
        }
        _exit(0);
    }
    close(end[1]);
    return end[0];
}

static void a_stream_is_read_to_its_end(void **state)
{
    static const char words[] = "a text that comes slowly";
    const int fd = slow_writer(words, strlen(words));
    char *path = xformat("/dev/fd/%d", fd);
    struct text t = { 0 };
    assert_ok(input_read(path, INPUT_STREAM, 100, &t, &err), err);
    assert_string_equal(t.s, words);
    assert_int_equal(t.n, strlen(words));
    free(t.s);
    close(fd);
    free(path);

    const int long_fd = slow_writer(words, strlen(words));
    path = xformat("/dev/fd/%d", long_fd);
    t = (struct text){ 0 };
    assert_false(input_read(path, INPUT_STREAM, 20, &t, &err));
    assert_non_null(strstr(err.text, "expected at most 0 MiB, found more"));
    assert_false(input_read(path, INPUT_REGULAR, 100, &t, &err));
    assert_non_null(strstr(err.text, "expected a file, found a pipe"));
    free(t.s);
    close(long_fd);
    free(path);
    while (wait(NULL) > 0)
        continue;
}

static void a_file_has_its_limit_to_the_byte(void **state)
{
    char *path = test_path("limit");
    file_write(path, "0123456789");
    for (size_t most = 9; most <= 11; most++) {
        struct text t = { 0 };
        assert_int_equal(input_read(path, INPUT_REGULAR, most, &t, &err), most >= 10);
        if (most >= 10)
            assert_string_equal(t.s, "0123456789");
        free(t.s);
    }
    free(path);
}

// ---- lines

// Lines of these lengths, also around the size of what is read at once, against their own copy.
static void lines_are_those_that_were_written(void **state)
{
    static const size_t length[] = { 0, 1, 65535, 0, 65536, 65537, 3, 200000, 131071, 0, 7 };
    enum { N = sizeof(length) / sizeof(*length) };
    for (int ends = 0; ends < 2; ends++) { // the last line with its end or without
        char *path = test_path("lines");
        struct text t = { 0 };
        for (int i = 0; i < N; i++) {
            for (size_t k = 0; k < length[i]; k++)
                text_add(&t, k % 7 == 3 ? "\0" : &"abcdefghi"[(k + (size_t)i) % 9], 1);
            if (i < N - 1 || ends)
                text_add(&t, "\n", 1);
        }
        file_write_bytes(path, t.s, t.n);
        const int fd = input_open(path, INPUT_REGULAR, &err);
        assert_ok(fd >= 0, err);
        struct lines l;
        lines_begin(&l, fd, path);
        const char *at = t.s;
        char *line;
        size_t n;
        for (int i = 0; i < N; i++) {
            assert_ok(lines_next(&l, &line, &n, &err), err);
            assert_int_equal(n, length[i]);
            assert_memory_equal(line, at, n);
            assert_int_equal(line[n], 0);
            assert_int_equal(l.number, i + 1);
            at += n + 1;
        }
        assert_false(lines_next(&l, &line, &n, &err));
        assert_false(l.failed);
        lines_end(&l);
        input_close(fd);
        free(t.s);
        free(path);
    }
}

// A file with three texts, one text of n bytes and three more.
static char *texts_around(size_t n)
{
    char *path = test_path("texts.jsonl");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    static char block[1 << 16];
    memset(block, 'a', sizeof(block));
    for (int i = 0; i < 3; i++)
        fprintf(f, "{\"text\": \"ab\"}\n");
    fprintf(f, "{\"text\": \"");
    for (size_t done = 0; done < n; done += sizeof(block))
        fwrite(block, 1, sizeof(block), f);
    fprintf(f, "\"}\n");
    for (int i = 0; i < 3; i++)
        fprintf(f, "{\"text\": \"ab\"}\n");
    assert_int_equal(fclose(f), 0);
    return path;
}

static void a_line_that_is_too_long_is_named(void **state)
{
    char *path = texts_around((size_t)65 << 20);
    const char *const commands[] = { "inspect --score", "inspect --tokenize" };
    for (size_t i = 0; i < 2; i++) {
        struct child_result r = child_run("%s %s %s", commands[i], models.gguf, path);
        assert_int_equal(r.status, 1);
        assert_non_null(strstr(r.err, "texts.jsonl:4: expected lines of at most 64 MiB, found a longer one"));
        child_result_free(&r);
    }
    unlink(path);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_file_is_refused_by_name), cmocka_unit_test(a_stream_is_read_to_its_end),
        cmocka_unit_test(a_file_has_its_limit_to_the_byte),   cmocka_unit_test(lines_are_those_that_were_written),
        cmocka_unit_test(a_line_that_is_too_long_is_named),
    };
    return run_with_models(tests);
}
