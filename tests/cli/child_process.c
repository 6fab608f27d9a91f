// child_process.c - fork and exec; the three streams are files, so nothing can block.
#include "tests/cli/child_process.h"

#include "tests/support/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/support/small_model.h"

enum { MAX_WORDS = 64 };

static const char *program = SPECLAB;

bool child_is_present(void)
{
    return *program != '\0' && access(program, X_OK) == 0;
}

bool child_use(const char *another)
{
    program = another != NULL ? another : SPECLAB;
    return child_is_present();
}

int child_is_missing(void)
{
    fprintf(stderr, "%s was not built: skipped\n", program);
    return 77;
}

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

// Splits in place.
static void split(char *line, char *word[MAX_WORDS + 1])
{
    int n = 0;
    word[n++] = (char *)(uintptr_t)program;
    for (char *c = line + strspn(line, " "); *c != '\0' && n < MAX_WORDS; c += strspn(c, " ")) {
        char *to = c;
        word[n++] = c;
        for (bool quoted = false; *c != '\0' && (quoted || *c != ' '); c++)
            if (*c == '\'')
                quoted = !quoted;
            else
                *to++ = *c;
        if (*c != '\0')
            c++;
        *to = '\0';
    }
    word[n] = NULL;
}

static FILE *file_with(const char *text)
{
    FILE *f = tmpfile();
    if (f == NULL)
        give_up("tmpfile");
    if (text != NULL)
        fputs(text, f);
    rewind(f);
    return f;
}

static char *text_of(FILE *f)
{
    struct text t = { 0 };
    char chunk[4096];
    size_t n;
    rewind(f);
    text_puts(&t, "");
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        text_add(&t, chunk, n);
    fclose(f);
    return t.s;
}

static struct child_result run(const char *input, const char *out_path, const char *words, va_list args)
{
    char line[8192], *word[MAX_WORDS + 1];
    vsnprintf(line, sizeof(line), words, args);
    split(line, word);
    FILE *in = file_with(input), *out = file_with(NULL), *err = file_with(NULL);
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        give_up("fork");
    if (child == 0) {
        int to = out_path != NULL ? open(out_path, O_WRONLY | O_CREAT, 0600) : fileno(out);
        if (to < 0)
            _exit(126);
        dup2(fileno(in), 0);
        dup2(to, 1);
        dup2(fileno(err), 2);
        execv(program, word);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        give_up("waitpid");
    fclose(in);
    return (struct child_result){ WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status), text_of(out),
                                  text_of(err) };
}

struct child_result child_run(const char *words, ...)
{
    va_list args;
    va_start(args, words);
    struct child_result s = run(NULL, NULL, words, args);
    va_end(args);
    return s;
}

struct child_result child_run_with(const char *input, const char *words, ...)
{
    va_list args;
    va_start(args, words);
    struct child_result s = run(input, NULL, words, args);
    va_end(args);
    return s;
}

struct child_result child_run_to(const char *out, const char *words, ...)
{
    va_list args;
    va_start(args, words);
    struct child_result s = run(NULL, out, words, args);
    va_end(args);
    return s;
}

void child_result_free(struct child_result *s)
{
    free(s->out);
    free(s->err);
}

struct json *child_result_json(const struct child_result *s)
{
    struct error err;
    struct json *j = json_parse(s->out, strlen(s->out), "stdout", &err);
    if (j == NULL) {
        fprintf(stderr, "not JSON (%s): %s\nstderr: %s\n", err.text, s->out, s->err);
        exit(1);
    }
    return j;
}

void child_expect_success(const struct child_result *s, const char *what)
{
    if (s->status != 0)
        fail_msg("%s: status %d, stderr: %s", what, s->status, s->err);
}

void child_result_is_error(const struct child_result *s, int status, const char *with, const char *what)
{
    const char *end = strchr(s->err, '\n');
    if (s->status != status || strstr(s->err, with) == NULL || end == NULL || end[1] != '\0' || *s->out != '\0' ||
        strncmp(s->err, "speclab", 7) != 0)
        fail_msg("%s: expected status %d and one line with \"%s\", got status %d and: %s%s", what, status, with,
                 s->status, s->err, s->out);
}

void child_expect_error(int status, const char *with, const char *words)
{
    struct child_result s = child_run("%s", words);
    child_result_is_error(&s, status, with, words);
    child_result_free(&s);
}

void child_expect_errors(const struct mistake *m, size_t n, const char *model)
{
    for (size_t i = 0; i < n; i++) {
        char *words = words_with(m[i].words, model);
        child_expect_error(m[i].status, m[i].with, words);
        free(words);
    }
}

// ---- models

struct models models;

char *words_with(const char *words, const char *model)
{
    const char *hole = strstr(words, "%s");
    return hole != NULL ? xformat("%.*s%s%s", (int)(hole - words), words, model, hole + 2) : xstrdup(words);
}

int models_make(void **state)
{
    struct small_model t = small_default;
    small_write_hf(models.hf = test_path("target"), &t);
    small_write_gguf(models.gguf = test_path("target.gguf"), &t);
    t.layers = 1;
    small_write_gguf(models.draft = test_path("draft.gguf"), &t);
    t.vocab += 8;
    small_write_hf(models.padded = test_path("padded"), &t);
    t.tokenizer = false;
    small_write_hf(models.no_tokenizer = test_path("no_tokenizer"), &t);
    t.vocab = 77;
    small_write_gguf(models.foreign = test_path("foreign.gguf"), &t);
    return 0;
}

int models_remove(void **state)
{
    char *names[] = { models.hf, models.gguf, models.draft, models.padded, models.no_tokenizer, models.foreign };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        free(names[i]);
    test_directory_remove();
    return 0;
}

char *words_here(const char *words)
{
    struct text t = { 0 };
    const char *at = words;
    text_puts(&t, "");
    for (const char *next; (next = strstr(at, "HERE")) != NULL; at = next + 4) {
        text_add(&t, at, (size_t)(next - at));
        text_puts(&t, test_directory());
    }
    text_puts(&t, at);
    return t.s;
}
