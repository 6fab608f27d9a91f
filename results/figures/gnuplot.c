// gnuplot.c - the only file that starts gnuplot.
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "results/figures/figures.h"

enum { SECONDS = 120, NOT_FOUND = 127 };

// In the child. -d: no file of the user's is read, so every report looks alike.
static void execute(FILE *in, FILE *out, FILE *messages)
{
    static const char *const words[] = { "gnuplot", "-d", NULL };
    signal(SIGPIPE, SIG_DFL);
    dup2(fileno(in), STDIN_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(messages), STDERR_FILENO);
    setenv("LC_ALL", "C.UTF-8", 1);
    alarm(SECONDS);
    execvp(words[0], (char *const *)(uintptr_t)words);
    _exit(NOT_FOUND);
}

static void take(FILE *f, struct text *to)
{
    char bytes[1 << 14];
    rewind(f);
    for (size_t n; (n = fread(bytes, 1, sizeof(bytes), f)) > 0;)
        text_add(to, bytes, n);
}

static bool fail_status(int status, FILE *messages, struct error *err)
{
    struct text why = { 0 };
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND)
        return fail(err, "gnuplot, which draws the figures, cannot be started; on Debian: apt install gnuplot-nox");
    if (WIFSIGNALED(status))
        return fail(err, "gnuplot, which draws the figures, was ended by signal %d", WTERMSIG(status));
    text_puts(&why, "");
    take(messages, &why);
    fail(err, "gnuplot, which draws the figures, ended with status %d: %.300s", WEXITSTATUS(status),
         why.s + strspn(why.s, " \n"));
    free(why.s);
    return false;
}

bool gnuplot_run(const struct text *script, struct text *to, struct error *err)
{
    FILE *in = tmpfile(), *out = tmpfile(), *messages = tmpfile();
    int status = 0;
    bool ok = in != NULL && out != NULL && messages != NULL;
    ok = (ok && fwrite(script->s, 1, script->n, in) == script->n && fflush(in) == 0) ||
         fail(err, "a temporary file could not be written: %s", strerror(errno));
    if (ok) {
        rewind(in);
        fflush(NULL);
        const pid_t process = fork();
        if (process == 0)
            execute(in, out, messages);
        while (process > 0 && waitpid(process, &status, 0) < 0 && errno == EINTR)
            ;
        ok = (process > 0 || fail(err, "cannot start a process: %s", strerror(errno))) &&
             (status == 0 || fail_status(status, messages, err));
        if (ok)
            take(out, to);
        ok = ok && (to->n > 0 || fail(err, "gnuplot, which draws the figures, has drawn nothing"));
    }
    FILE *const files[] = { in, out, messages };
    for (int i = 0; i < 3; i++)
        if (files[i] != NULL)
            fclose(files[i]);
    return ok;
}
