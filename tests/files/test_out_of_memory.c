// test_out_of_memory.c - with too little memory a command ends with one sentence and status 1, at whichever allocation it is; what it has printed
// until then are whole results.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/memory.h"
#include "tests/cli/child_process.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

enum { LARGE = 2 << 20, FROM_MB = 12, TO_MB = 96, STEP_MB = 6 };

// An address space of this size for the programs that are started; 0: as before. This process keeps what it has.
static void limit_memory(int mb)
{
    static struct rlimit before;
    if (before.rlim_max == 0)
        assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit now = { mb > 0 ? (rlim_t)mb << 20 : before.rlim_cur, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
}

static struct child_result run_within(int mb, const char *words)
{
    limit_memory(mb);
    struct child_result r = child_run("%s", words);
    limit_memory(0);
    return r;
}

// The last line of s, without its end.
static const char *last_line(char *s)
{
    const size_t n = strlen(s);
    if (n > 0 && s[n - 1] == '\n')
        s[n - 1] = '\0';
    const char *newline = strrchr(s, '\n');
    return newline != NULL ? newline + 1 : s;
}

// Whether `part` is the beginning of `whole` up to some line's end.
static bool is_beginning(const char *part, const char *whole)
{
    const size_t n = strlen(part);
    return strncmp(part, whole, n) == 0 && (n == 0 || part[n - 1] == '\n');
}

// repeats: the command prints the same each time.
static void expect_sentences(const char *words, bool repeats)
{
    char *here = words_here(words);
    struct child_result whole = run_within(0, here);
    int ended = 0, complete = 0;
    for (int mb = FROM_MB; mb <= TO_MB; mb += STEP_MB) {
        struct child_result start = run_within(mb, "--version");
        const bool starts = start.status == 0;
        child_result_free(&start);
        if (!starts) // the program with its kernels for GPUs, or a library, does not fit: not its message
            continue;
        struct child_result r = run_within(mb, here);
        const char *said = last_line(r.err);
        if (r.status == whole.status && (!repeats || strcmp(r.out, whole.out) == 0))
            complete++;
        else if (r.status != 1 && r.status != 2)
            fail_msg("%s within %d MB: status %d: %s", here, mb, r.status, said);
        else if (strncmp(said, "speclab", 7) != 0 || (repeats && !is_beginning(r.out, whole.out)))
            fail_msg("%s within %d MB: no sentence, or half a result: %s", here, mb, said);
        else
            ended++;
        child_result_free(&r);
    }
    print_message("%s: complete %d times, out of memory %d times\n", here, complete, ended);
    assert_true(ended + complete > 0);
    child_result_free(&whole);
    free(here);
}

static void write_large(const char *name, const char *before, const char *after)
{
    struct text t = { 0 };
    text_puts(&t, before);
    for (int i = 0; i < LARGE / 4; i++)
        text_puts(&t, "a b ");
    text_puts(&t, after);
    char *path = test_path(name);
    file_write(path, t.s);
    free(t.s);
    free(path);
}

static void every_command_ends_with_a_sentence(void **state)
{
    write_large("texts.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"", "\"}\n");
    char *yaml = test_path("little.yaml"), *prompts = test_path("prompts.jsonl");
    file_write(prompts, "{\"prompt\": \"ab\"}\n");
    file_write(yaml, "name: little\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: prompts.jsonl}\n"
                     "limits: {new_tokens: 4, context: 64}\ncells: {drafter: [{kind: none}, {kind: ngram}]}\n");
    expect_sentences("inspect --tokenize HERE/target.gguf HERE/texts.jsonl", true);
    expect_sentences("inspect --score HERE/target.gguf HERE/texts.jsonl --threads 1", true);
    expect_sentences("generate HERE/target.gguf --tokens 4 --threads 2 ab", true);
    expect_sentences("inspect --json HERE/target.gguf", false);
    expect_sentences("run HERE/little.yaml --db HERE/little.db", false);
    free(yaml);
    free(prompts);
}

int main(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 77; // AddressSanitizer needs an address space of terabytes
#endif
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_command_ends_with_a_sentence) };
    return run_with_models(tests);
}
