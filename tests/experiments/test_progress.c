// test_progress.c - output of progress: when, where, and the estimated remaining time.
//
// Tests do not wait: they move the start and the last output back in time.
#include "tests/support/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "core/clock.h"
#include "experiments/progress.h"

#define SECOND INT64_C(1000000000)

// ---- outputs

struct screen {
    FILE *to;
    int master; // the terminal's other end; -1: a file
    char text[4096];
};

static struct screen file_screen(void)
{
    struct screen s = { .to = tmpfile(), .master = -1 };
    assert_non_null(s.to);
    return s;
}

// columns 0: a terminal without a size. Skips the test on a system without pseudo-terminals (a container without /dev/pts).
static struct screen terminal_screen(int columns)
{
    struct screen s = { .master = posix_openpt(O_RDWR | O_NOCTTY) };
    if (s.master < 0 || grantpt(s.master) != 0 || unlockpt(s.master) != 0) {
        print_message("skipped: this system has no pseudo-terminals\n");
        skip();
    }
    int fd = open(ptsname(s.master), O_RDWR | O_NOCTTY);
    assert_true(fd >= 0);
    struct termios t;
    assert_int_equal(tcgetattr(fd, &t), 0);
    cfmakeraw(&t);
    assert_int_equal(tcsetattr(fd, TCSANOW, &t), 0);
    const struct winsize w = { .ws_row = 24, .ws_col = (unsigned short)columns };
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &w), 0);
    s.to = fdopen(fd, "w");
    assert_int_equal(fcntl(s.master, F_SETFL, O_NONBLOCK), 0);
    return s;
}

// The output since the last call.
static const char *look(struct screen *s)
{
    fflush(s->to);
    size_t n = 0;
    if (s->master >= 0)
        for (ssize_t k; n + 1 < sizeof(s->text) && (k = read(s->master, s->text + n, sizeof(s->text) - 1 - n)) > 0;)
            n += (size_t)k;
    else {
        rewind(s->to);
        n = fread(s->text, 1, sizeof(s->text) - 1, s->to);
        rewind(s->to);
        assert_int_equal(ftruncate(fileno(s->to), 0), 0);
    }
    s->text[n] = '\0';
    return s->text;
}

static void shut(struct screen *s)
{
    fclose(s->to);
    if (s->master >= 0)
        close(s->master);
}

// Started 1,000 seconds ago; 20 of 60 are done, 10 of them by this process: 40 remain, at 100 seconds each.
static struct progress half_way(struct screen *s)
{
    struct progress p;
    progress_begin(&p, s->to, NULL, 60);
    p.began_ns -= 1000 * SECOND;
    p.tokens = 5000;
    progress_skip(&p, 10);
    progress_done(&p, 10);
    return p;
}

#define LINE "20 of 60 conversations, 5.0 tokens/s, 67 min left: ngram"

// ---- tests

static void times_have_the_unit_that_fits(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        { 0, "0 s" },
        { 499, "0 s" },
        { 500, "1 s" },
        { 45000, "45 s" },
        { 99499, "99 s" },
        { 99500, "2 min" },
        { 100000, "2 min" },
        { 150000, "3 min" },
        { 5969000, "99 min" },
        { 5970000, "1 h 40 min" },
        { 12000000, "3 h 20 min" },
        { 359940000, "99 h 59 min" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        progress_time(cases[i].ms * 1000000, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
}

static void a_file_gets_a_line_every_ten_seconds(void **state)
{
    struct screen s = file_screen();
    struct progress p = half_way(&s);
    progress_tick(&p, "ngram"); // too early
    assert_string_equal(look(&s), "");
    p.shown_ns -= 2 * SECOND;
    progress_tick(&p, "ngram");
    assert_string_equal(look(&s), "");
    p.shown_ns -= 8 * SECOND;
    progress_tick(&p, "ngram");
    assert_string_equal(look(&s), LINE "\n");
    progress_tick(&p, "ngram");
    assert_string_equal(look(&s), "");
    progress_line(&p, "%d cells", 3);
    progress_end(&p);
    assert_string_equal(look(&s), "3 cells\n"); // no bar to remove
    shut(&s);
}

static void unknown_remaining_time_is_not_shown(void **state)
{
    struct screen s = file_screen();
    struct progress p = half_way(&s);
    p.shown_ns -= 10 * SECOND;
    progress_skip(&p, 40); // all are done
    progress_tick(&p, "ngram");
    assert_string_equal(look(&s), "60 of 60 conversations, 5.0 tokens/s: ngram\n");
    p = half_way(&s);
    p.shown_ns -= 10 * SECOND;
    p.ran = 0;
    progress_tick(&p, "ngram");
    assert_string_equal(look(&s), "20 of 60 conversations, 5.0 tokens/s: ngram\n");
    shut(&s);
    progress_begin(&p, NULL, NULL, 60);
    p.shown_ns -= 100 * SECOND;
    progress_tick(&p, "ngram"); // no output
    progress_line(&p, "nothing");
    progress_end(&p);
}

static void a_terminal_has_a_bar_that_is_removed(void **state)
{
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    struct screen s = terminal_screen(100);
    struct progress p = half_way(&s);
    p.shown_ns -= SECOND;
    progress_tick(&p, "ngram");
    assert_string_equal(look(&s), "\r\x1b[32m[######--------------]\x1b[0m " LINE "\x1b[K");
    progress_line(&p, "%d cells", 3);
    assert_string_equal(look(&s), "\r\x1b[K3 cells\n");
    progress_line(&p, "and a line"); // the bar is removed already
    progress_end(&p);
    assert_string_equal(look(&s), "and a line\n");
    p.shown_ns -= SECOND;
    progress_tick(&p, "ngram");
    look(&s);
    progress_end(&p);
    assert_string_equal(look(&s), "\r\x1b[K");
    shut(&s);
}

static void colours_follow_the_environment(void **state)
{
    static const struct {
        const char *term, *no_colour;
        bool bar, colour;
    } cases[] = {
        { "xterm", NULL, true, true },  { "xterm", "", true, true },  { "xterm", "1", true, false },
        { "dumb", NULL, false, false }, { NULL, NULL, false, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].term != NULL)
            setenv("TERM", cases[i].term, 1);
        else
            unsetenv("TERM");
        if (cases[i].no_colour != NULL)
            setenv("NO_COLOR", cases[i].no_colour, 1);
        else
            unsetenv("NO_COLOR");
        struct screen s = terminal_screen(100);
        struct progress p = half_way(&s);
        p.shown_ns -= 10 * SECOND;
        progress_tick(&p, "ngram");
        const char *text = look(&s);
        assert_int_equal(strstr(text, "[######--------------]") != NULL, cases[i].bar);
        assert_int_equal(strstr(text, "\x1b[32m") != NULL, cases[i].colour);
        assert_int_equal(strstr(text, "\x1b[0m") != NULL, cases[i].colour);
        shut(&s);
    }
}

// The bar takes 20 columns, its brackets and the space 3, and the last one stays free.
static void a_line_is_cut_at_the_terminals_width(void **state)
{
    static const struct {
        int columns, letters;
    } cases[] = { { 0, 80 - 24 }, { 80, 80 - 24 }, { 50, 50 - 24 }, { 10, 0 } };
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const char all[] = "20 of 60 conversations, 5.0 tokens/s, 67 min left: a drafter of a very long name";
        char expected[200];
        struct screen s = terminal_screen(cases[i].columns);
        struct progress p = half_way(&s);
        p.shown_ns -= SECOND;
        progress_tick(&p, "a drafter of a very long name");
        snprintf(expected, sizeof(expected), "\r[######--------------] %.*s\x1b[K", cases[i].letters, all);
        assert_string_equal(look(&s), expected);
        shut(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_have_the_unit_that_fits),       cmocka_unit_test(a_file_gets_a_line_every_ten_seconds),
        cmocka_unit_test(unknown_remaining_time_is_not_shown), cmocka_unit_test(a_terminal_has_a_bar_that_is_removed),
        cmocka_unit_test(colours_follow_the_environment),      cmocka_unit_test(a_line_is_cut_at_the_terminals_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
