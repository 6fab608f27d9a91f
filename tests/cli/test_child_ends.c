// test_child_ends.c - no process that the program starts outlives it: Python with a chat template. A child of
// this test starts one and is killed by SIGKILL; this test then inherits what is left of it, and waits for its end.
#include "tests/support/tests.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/support/file_write.h"
#include "models/tokenizers/chat_process.h"
#include "models/tokenizers/chat_template.h"

enum { SOON = 5 }; // seconds, of the 30 and more that each of them would go on

static struct error err;
static int ready; // where a starter writes a byte when its child is about to work

static void say_ready(void)
{
    (void)!write(ready, "", 1);
}

static const char loop[] = "{% for i in messages %}{% for a in range(99999) %}{% for b in range(99999) %}"
                           "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}";
// One call of a function in C, which no handler in Python interrupts.
static const char call_of_c[] = "{{ (messages | length + 6) ** 99999999 }}";
static const char *template;
static struct chat_process *renderer;

static struct json *one_message(void)
{
    static const char text[] = "[{\"role\": \"user\", \"content\": \"hi\"}]";
    return json_parse(text, sizeof(text) - 1, "messages", &err);
}

static void open_renderer(void)
{
    renderer = chat_process_start(&(struct chat_request){ .name = "test", .jinja = template }, &err);
    if (renderer == NULL)
        printf("%s\n", err.text);
}

static void render_without_end(void)
{
    struct text to = { 0 };
    open_renderer();
    if (renderer == NULL)
        return;
    say_ready();
    chat_process_render(renderer, one_message(), true, &to, &err);
}

static void *in_a_thread(void *unused)
{
    (void)unused;
    render_without_end();
    return NULL;
}

static void render_in_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_a_thread, NULL) == 0)
        pthread_join(thread, NULL);
}

// Runs start in a process, kills this after `ms` milliseconds, and expects its child to end soon.
static void ends_with_it(void (*start)(void), int ms)
{
    int ends[2], status = 0;
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t program = fork();
    if (program == 0) {
        close(ends[0]);
        ready = ends[1];
        start();
        printf("%s\n", err.text);
        fflush(stdout);
        _exit(1); // what it started has ended too early
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1); // none: the message above says why
    usleep((unsigned)ms * 1000);
    close(ends[0]);
    assert_int_equal(waitpid(program, &status, WNOHANG), 0);
    kill(program, SIGKILL);
    assert_int_equal(waitpid(program, &status, 0), program);
    const int64_t end = clock_ns() + (int64_t)SOON * 1000000000;
    pid_t left;
    while ((left = waitpid(-1, &status, WNOHANG)) == 0 && clock_ns() < end)
        usleep(10000);
    if (left != 0) {
        assert_int_equal(left > 0 ? waitpid(-1, &status, WNOHANG) : -1, -1); // it was the only one, or had not begun
        return;
    }
    char path[64], pids[64] = { 0 };
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    FILE *f = fopen(path, "r");
    if (f != NULL && fgets(pids, sizeof(pids), f) != NULL)
        kill((pid_t)strtol(pids, NULL, 10), SIGKILL);
    if (f != NULL)
        fclose(f);
    fail_msg("it goes on %d s after the program that started it was killed", SOON);
}

TEST(a_rendering_ends_with_its_program)
{
    template = loop;
    ends_with_it(render_without_end, 300);
    ends_with_it(render_without_end, 0);
    template = call_of_c;
    ends_with_it(render_without_end, 300);
}

// What the kernel says of the end of a thread is no use here: the closed socket ends it.
TEST(a_rendering_of_another_thread_ends_with_the_program)
{
    template = loop;
    ends_with_it(render_in_a_thread, 300);
    ends_with_it(render_in_a_thread, 0);
    template = call_of_c;
    ends_with_it(render_in_a_thread, 300);
}

static void *open_and_end(void *unused)
{
    (void)unused;
    open_renderer();
    return NULL;
}

TEST(a_renderer_outlives_the_thread_that_started_it)
{
    pthread_t thread;
    struct text to = { 0 };
    struct json *messages = one_message();
    template = "{{ messages[0].content }}!";
    assert_int_equal(pthread_create(&thread, NULL, open_and_end, NULL), 0);
    pthread_join(thread, NULL);
    assert_non_null(renderer);
    usleep(100000);
    for (int i = 0; i < 100; i++)
        assert_ok(chat_process_render(renderer, messages, true, &to, &err), err);
    assert_int_equal(to.n, 300);
    assert_memory_equal(to.s, "hi!hi!", 6);
    chat_process_end(renderer);
    json_free(messages);
    free(to.s);
}

int main(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return tests_run(NULL, NULL);
}
