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

// In the child: replaces the process by the peer's program.
static void execute(const struct peer_plan *p, int in, int out)
{
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    execvp(p->words[0], (char *const *)(uintptr_t)p->words);
    printf("error %s: %s\n", p->words[0], strerror(errno)); // as the protocol has it
    fflush(stdout);
    _exit(127);
}

static bool start(struct peer *e, const struct peer_plan *p, struct error *err)
{
    int to_peer[2], from_peer[2];
    if (pipe2(to_peer, O_CLOEXEC) != 0)
        return fail(err, "cannot create a pipe: %s", strerror(errno));
    if (pipe2(from_peer, O_CLOEXEC) != 0) {
        close(to_peer[0]), close(to_peer[1]);
        return fail(err, "cannot create a pipe: %s", strerror(errno));
    }
    fflush(NULL);
    e->process = fork();
    if (e->process == 0)
        execute(p, to_peer[0], from_peer[1]);
    close(to_peer[0]), close(from_peer[1]);
    e->to = fdopen(to_peer[1], "w");
    e->from = fdopen(from_peer[0], "r");
    if (e->process > 0)
        setpgid(e->process, e->process); // also done by the child; the first call counts
    return e->process > 0 || fail(err, "cannot start a process: %s", strerror(errno));
}

// Reports how a peer ended that closed its output. Closing its input ends it if it still runs.
static bool fail_ended(struct peer *e, struct error *err)
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

// Reads the next line into e->line, without its line end. A line "error MESSAGE" is a failure.
static bool read_answer(struct peer *e, struct error *err)
{
    ssize_t n = getline(&e->line, &e->capacity, e->from);
    if (n < 0)
        return fail_ended(e, err);
    e->line[strcspn(e->line, "\r\n")] = '\0';
    if (strncmp(e->line, "error ", 6) == 0)
        return fail(err, "%s", e->line + 6);
    return true;
}

static bool read_seconds(struct peer *e, int64_t *ns, struct error *err)
{
    char *end;
    fflush(e->to); // a failed write shows as a missing answer
    if (!read_answer(e, err))
        return false;
    double seconds = strtod(e->line, &end);
    *ns = (int64_t)llround(seconds * 1e9);
    return (end != e->line && *end == '\0' && seconds > 0 && seconds < 1e6) ||
           fail(err, "%s: expected seconds, found \"%s\"", e->program, e->line);
}

// A peer that knows several slots answers their announcement. One that does not may ignore it: its answer is to `open`.
static bool announced_slots(struct peer *e, const struct peer_plan *p, struct error *err)
{
    return p->n_slots == 0 || p->slots[p->n_slots - 1] == 1 ||
           (read_answer(e, err) && (strcmp(e->line, "slots") == 0 ||
                                    fail(err, "%s does not run passes of several slots (--slots)", e->program)));
}

static bool open_model(struct peer *e, const struct peer_plan *p, struct error *err)
{
    fprintf(e->to, "model %s\nthreads %d\nrows %d\nprompt_tokens %d\ncontexts", p->model, p->threads, p->rows,
            p->prompt);
    for (int i = 0; i < p->n_contexts; i++)
        fprintf(e->to, " %d", p->context[i]);
    for (int i = 0; i < p->n_slots && p->slots[p->n_slots - 1] > 1; i++)
        fprintf(e->to, "%s %d", i == 0 ? "\nslots" : "", p->slots[i]);
    for (int i = 0; i < p->n_options; i++) {
        int key = (int)strcspn(p->option[i], "=");
        fprintf(e->to, "\noption %.*s %s", key, p->option[i], p->option[i] + key + 1);
    }
    fprintf(e->to, "\nopen\n");
    fflush(e->to);
    if (!announced_slots(e, p, err) || !read_answer(e, err))
        return false;
    if (strncmp(e->line, "ready ", 6) != 0)
        return fail(err, "%s: expected \"ready NAME\", found \"%s\"", e->program, e->line);
    e->name = xstrdup(e->line + 6);
    return true;
}

struct peer *peer_open(const struct peer_plan *p, struct error *err)
{
    struct error reason;
    struct peer *e = xcalloc(1, sizeof(*e));
    e->program = xstrdup(p->label);
    if (start(e, p, &reason) && open_model(e, p, &reason))
        return e;
    fail(err, "the engine to compare with: %s", reason.text);
    peer_close(e);
    return NULL;
}

// Closing its input ends the peer.
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

bool peer_pass(struct peer *p, int slots, int n, int context, int64_t *ns, struct error *err)
{
    fprintf(p->to, "pass %d %d", n, context);
    if (slots > 1)
        fprintf(p->to, " %d", slots);
    fprintf(p->to, "\n");
    return read_seconds(p, ns, err);
}

bool peer_prompt(struct peer *p, int64_t *ns, struct error *err)
{
    fprintf(p->to, "prompt\n");
    return read_seconds(p, ns, err);
}
