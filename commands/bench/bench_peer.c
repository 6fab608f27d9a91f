#include "commands/bench/bench_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"

struct peer {
    pid_t process; // the first of its group
    FILE *to, *from;
    char *name, *program;
    char *line;
    size_t capacity;
};

static void become(const struct peer_plan *p, int in, int out)
{
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    execvp(p->words[0], (char *const *)(uintptr_t)p->words);
    printf("error %s: %s\n", p->words[0], strerror(errno)); // in the words of the protocol
    fflush(stdout);
    _exit(127);
}

static bool start(struct peer *e, const struct peer_plan *p, struct error *err)
{
    int there[2], back[2];
    if (pipe2(there, O_CLOEXEC) != 0)
        return fail(err, "no pipe: %s", strerror(errno));
    if (pipe2(back, O_CLOEXEC) != 0) {
        close(there[0]), close(there[1]);
        return fail(err, "no pipe: %s", strerror(errno));
    }
    fflush(NULL);
    e->process = fork();
    if (e->process == 0)
        become(p, there[0], back[1]);
    close(there[0]), close(back[1]);
    e->to = fdopen(there[1], "w");
    e->from = fdopen(back[0], "r");
    if (e->process > 0)
        setpgid(e->process, e->process); // whoever of us comes first
    return e->process > 0 || fail(err, "no new process: %s", strerror(errno));
}

// Nothing comes any more: how it ended. With the end of its input it does, if it has not already.
static bool ended(struct peer *e, struct error *err)
{
    int status;
    fclose(e->to);
    e->to = NULL;
    pid_t process = e->process;
    e->process = 0;
    if (waitpid(process, &status, 0) < 0)
        return fail(err, "%s ended without an answer", e->program);
    if (WIFSIGNALED(status))
        return fail(err, "%s ended without an answer (%s)", e->program, strsignal(WTERMSIG(status)));
    return fail(err, "%s ended without an answer (exit status %d)", e->program, WEXITSTATUS(status));
}

// The next line, without its end; an answer that says "error" is one.
static bool answer(struct peer *e, struct error *err)
{
    ssize_t n = getline(&e->line, &e->capacity, e->from);
    if (n < 0)
        return ended(e, err);
    e->line[strcspn(e->line, "\r\n")] = '\0';
    if (strncmp(e->line, "error ", 6) == 0)
        return fail(err, "%s", e->line + 6);
    return true;
}

static bool read_seconds(struct peer *e, int64_t *ns, struct error *err)
{
    char *end;
    fflush(e->to); // if nobody reads it, nobody answers
    if (!answer(e, err))
        return false;
    double seconds = strtod(e->line, &end);
    *ns = (int64_t)llround(seconds * 1e9);
    return (end != e->line && *end == '\0' && seconds > 0 && seconds < 1e6) ||
           fail(err, "%s: expected seconds, found \"%s\"", e->program, e->line);
}

static bool introduce(struct peer *e, const struct peer_plan *p, struct error *err)
{
    fprintf(e->to, "model %s\nthreads %d\nrows %d\nprompt_tokens %d\ncontexts", p->model, p->threads, p->rows,
            p->prompt);
    for (int i = 0; i < p->n_contexts; i++)
        fprintf(e->to, " %d", p->context[i]);
    for (int i = 0; i < p->n_options; i++) {
        int key = (int)strcspn(p->option[i], "=");
        fprintf(e->to, "\noption %.*s %s", key, p->option[i], p->option[i] + key + 1);
    }
    fprintf(e->to, "\nopen\n");
    fflush(e->to);
    if (!answer(e, err))
        return false;
    if (strncmp(e->line, "ready ", 6) != 0)
        return fail(err, "%s: expected \"ready\" and its name, found \"%s\"", e->program, e->line);
    e->name = xstrdup(e->line + 6);
    return true;
}

struct peer *peer_open(const struct peer_plan *p, struct error *err)
{
    struct error why;
    struct peer *e = xcalloc(1, sizeof(*e));
    e->program = xstrdup(p->called);
    if (start(e, p, &why) && introduce(e, p, &why))
        return e;
    fail(err, "the engine to compare with: %s", why.text);
    peer_close(e);
    return NULL;
}

// With the end of its input it ends, too.
void peer_close(struct peer *e)
{
    if (e == NULL)
        return;
    if (e->to != NULL)
        fclose(e->to);
    if (e->from != NULL)
        fclose(e->from);
    if (e->process > 0)
        waitpid(e->process, NULL, 0);
    free(e->name);
    free(e->program);
    free(e->line);
    free(e);
}

const char *peer_name(const struct peer *p)
{
    return p->name;
}

pid_t peer_group(const struct peer *p)
{
    return p->process;
}

bool peer_pass(struct peer *p, int n, int context, int64_t *ns, struct error *err)
{
    fprintf(p->to, "pass %d %d\n", n, context);
    return read_seconds(p, ns, err);
}

bool peer_prompt(struct peer *p, int64_t *ns, struct error *err)
{
    fprintf(p->to, "prompt\n");
    return read_seconds(p, ns, err);
}
