#include "models/tokenizers/chat_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/tokenizers/chat_template.h"

extern const char chat_renderer_py[]; // embedded in the program (CMakeLists.txt)

// Maximum bytes of a line: six times the longest text of chat_renderer.py, and a little more.
enum { MAX_ANSWER = 100 << 20 };

struct chat_process {
    pid_t process; // 0: it has ended, as `ended` reports
    struct error ended;
    char *name; // name of the template, for messages
    int socket;
    int life; // a socket that is never written to: its end tells the process that its parent has ended
    struct text answer;
};

static void execute(int end, int life)
{
    const char *const named = getenv("SPECLAB_PYTHON");
    const char *const candidates[] = { named != NULL ? named : "/usr/bin/python3", named != NULL ? named : "python3" };
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_IGN); // the parent decides
    dup2(end, STDIN_FILENO);
    dup2(end, STDOUT_FILENO);
    dup2(life, STDERR_FILENO);
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0); // closes what this program or its user has open
    for (int i = 0; i < 2; i++) {
        const char *const words[] = { candidates[i], "-I", "-X", "utf8", "-c", chat_renderer_py, NULL };
        execvp(words[0], (char *const *)(uintptr_t)words);
    }
    static const char answer[] = "{\"error\": \"python3 cannot be started; on Debian: apt install python3-jinja2\"}\n",
                      of_name[] = "{\"error\": \"SPECLAB_PYTHON cannot be started\"}\n";
    (void)!write(STDOUT_FILENO, named != NULL ? of_name : answer,
                 (named != NULL ? sizeof(of_name) : sizeof(answer)) - 1);
    _exit(127);
}

static void close_sockets(const struct chat_process *p)
{
    close(p->socket);
    close(p->life);
}

static bool start(struct chat_process *p, struct error *err)
{
    int ends[2] = { -1, -1 }, lives[2] = { -1, -1 };
    const bool ok = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 &&
                    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lives) == 0;
    const pid_t process = ok ? process_fork() : -1;
    if (process == 0)
        execute(ends[1], lives[1]);
    if (process < 0)
        fail(err, "cannot %s: %s", ok ? "start a process" : "create a socket", strerror(errno));
    close(ends[1]);
    close(lives[1]);
    p->socket = ends[0];
    p->life = lives[0];
    p->process = process > 0 ? process : 0;
    if (process < 0)
        close_sockets(p);
    return process > 0;
}

// Returns the status that waitpid gives.
static int stop(struct chat_process *p)
{
    int status = 0;
    if (p->process == 0)
        return 0;
    kill(p->process, SIGKILL);
    waitpid(p->process, &status, 0);
    close_sockets(p);
    p->process = 0;
    return status;
}

// Reports that the process's output has ended: the process will end, or was killed.
static bool fail_ended(struct chat_process *p, struct error *err)
{
    int status = 0;
    for (int i = 0; i < 100 && waitpid(p->process, &status, WNOHANG) == 0; i++)
        poll(NULL, 0, 10);
    if (!WIFEXITED(status) && !WIFSIGNALED(status))
        status = stop(p);
    else
        close_sockets(p);
    p->process = 0;
    return WIFSIGNALED(status) ? fail(err, "the process that renders it was ended by signal %d", WTERMSIG(status))
                               : fail(err, "the process that renders it ended with status %d", WEXITSTATUS(status));
}

// Writes a line and reads one. The time limit applies to both.
static bool exchange(struct chat_process *p, const char *line, size_t n, struct error *err)
{
    const int64_t end = clock_ns() + (int64_t)CHAT_SECONDS * 1000000000;
    size_t written = 0;
    char bytes[1 << 16];
    p->answer.n = 0;
    for (;;) {
        struct pollfd fd = { p->socket, (short)(POLLIN | (written < n ? POLLOUT : 0)), 0 };
        const int64_t left = end - clock_ns();
        const int ready = left > 0 ? poll(&fd, 1, (int)(left / 1000000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            stop(p);
            return fail(err, "it did not end within %d seconds", CHAT_SECONDS);
        }
        if ((fd.revents & POLLOUT) != 0) {
            const ssize_t done = send(p->socket, line + written, n - written, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (done >= 0)
                written += (size_t)done;
            else if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
                written = n; // a process that has ended shows when its output is read
        }
        if ((fd.revents & ~POLLOUT) == 0)
            continue;
        const ssize_t got = recv(p->socket, bytes, sizeof(bytes), 0);
        if (got <= 0)
            return fail_ended(p, err);
        if (p->answer.n > MAX_ANSWER) {
            stop(p);
            return fail(err, "its text is longer than %d bytes", MAX_ANSWER);
        }
        text_add(&p->answer, bytes, (size_t)got);
        if (bytes[got - 1] == '\n')
            return true;
    }
}

static bool take_answer(const struct chat_process *p, struct text *to, struct error *err)
{
    struct error why;
    struct json *j = json_parse(p->answer.s, p->answer.n, "its text", &why);
    if (j == NULL)
        return fail(err, "%s: %s", p->name, why.text);
    const struct json *text = json_get(j, "text"), *line = json_get(j, "line");
    const bool ok = json_is_text(text);
    if (ok)
        text_add(to, json_text(text), json_text_length(text));
    else if (json_is_int(line))
        fail(err, "%s, line %lld: %s", p->name, (long long)json_int(line), json_text(json_get(j, "error")));
    else
        fail(err, "%s: %s", p->name, json_text(json_get(j, "error")));
    json_free(j);
    return ok;
}

static bool request(struct chat_process *p, struct json *question, struct text *to, struct error *err)
{
    char *line = json_write(question);
    json_free(question);
    char *ended = xformat("%s\n", line);
    free(line);
    bool ok = p->process != 0 && exchange(p, ended, strlen(ended), &p->ended);
    free(ended);
    if (!ok)
        return fail(err, "%s: %s", p->name, p->ended.text);
    return take_answer(p, to, err);
}

struct chat_process *chat_process_start(const struct chat_request *r, struct error *err)
{
    struct chat_process *p = xcalloc(1, sizeof(*p));
    p->name = xstrdup(r->name);
    struct json *first = json_new_object();
    struct text nothing = { 0 };
    json_add(first, JSON("template", r->jinja),
             JSON("variables", r->variables != NULL ? json_clone(r->variables) : json_new_object()),
             JSON("tokens", r->tokens != NULL ? json_clone(r->tokens) : json_new_object()), JSON("now", r->now));
    bool ok = start(p, err);
    if (ok)
        ok = request(p, first, &nothing, err);
    else
        json_free(first);
    free(nothing.s);
    if (ok)
        return p;
    chat_process_end(p);
    return NULL;
}

void chat_process_end(struct chat_process *p)
{
    if (p == NULL)
        return;
    stop(p);
    free(p->answer.s);
    free(p->name);
    free(p);
}

bool chat_process_render(struct chat_process *p, const struct json *messages, bool generation_prompt, struct text *to,
                         struct error *err)
{
    struct json *question =
        json_object_of(JSON("messages", json_clone(messages)), JSON("add_generation_prompt", generation_prompt));
    return request(p, question, to, err);
}
