// test_progress.c - output of progress: when, where, and the estimated remaining time.
//
// Tests do not wait: they move the start and the last output back in time.
#include "tests/support/tests.h"

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

TEST(times_have_the_unit_that_fits)
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

// What a tick prints `seconds` after the last output.
static void expect_tick(struct screen *s, struct progress *p, int seconds, const char *drafter, const char *printed)
{
    p->shown_ns -= seconds * SECOND;
    progress_tick(p, drafter);
    assert_string_equal(look(s), printed);
}

TEST(a_file_gets_a_line_every_ten_seconds)
{
    struct screen s = file_screen();
    struct progress p = half_way(&s);
    expect_tick(&s, &p, 0, "ngram", "");
    expect_tick(&s, &p, 2, "ngram", "");
    expect_tick(&s, &p, 8, "ngram", LINE "\n");
    expect_tick(&s, &p, 0, "ngram", "");
    progress_line(&p, "%d cells", 3);
    progress_end(&p);
    assert_string_equal(look(&s), "3 cells\n"); // no bar to remove
    // Where the remaining time is unknown it is not shown: nothing remains, or nothing was decoded.
    p = half_way(&s);
    progress_skip(&p, 40);
    expect_tick(&s, &p, 10, "ngram", "60 of 60 conversations, 5.0 tokens/s: ngram\n");
    p = half_way(&s);
    p.ran = 0;
    expect_tick(&s, &p, 10, "ngram", "20 of 60 conversations, 5.0 tokens/s: ngram\n");
    progress_begin(&p, NULL, NULL, 60); // no output
    expect_tick(&s, &p, 100, "ngram", "");
    progress_line(&p, "nothing");
    progress_end(&p);
    assert_string_equal(look(&s), "");
    shut(&s);
}

static void put_environment(const char *term, const char *no_colour)
{
    term != NULL ? setenv("TERM", term, 1) : unsetenv("TERM");
    no_colour != NULL ? setenv("NO_COLOR", no_colour, 1) : unsetenv("NO_COLOR");
}

TEST(a_terminal_has_a_bar_that_is_removed)
{
    put_environment("xterm", NULL);
    struct screen s = terminal_screen(100);
    struct progress p = half_way(&s);
    expect_tick(&s, &p, 1, "ngram", "\r\x1b[32m[######--------------]\x1b[0m " LINE "\x1b[K");
    progress_line(&p, "%d cells", 3);
    progress_line(&p, "and a line"); // the bar is removed already
    progress_end(&p);
    assert_string_equal(look(&s), "\r\x1b[K3 cells\nand a line\n");
    expect_tick(&s, &p, 1, "ngram", "\r\x1b[32m[######--------------]\x1b[0m " LINE "\x1b[K");
    progress_end(&p);
    assert_string_equal(look(&s), "\r\x1b[K");
    shut(&s);
}

// The bar takes 20 columns, its brackets and the space 3, and the last one stays free. columns 0: unknown, as 80.
TEST(bar_colour_and_width_follow_the_terminal)
{
    static const char name[] = "a drafter of a very long name",
                      all[] = "20 of 60 conversations, 5.0 tokens/s, 67 min left: a drafter of a very long name";
    static const struct {
        const char *term, *no_colour;
        bool bar, colour;
        int columns, letters;
    } cases[] = {
        { "xterm", "", true, true, 80, 80 - 24 },  { "xterm", "1", true, false, 80, 80 - 24 },
        { "xterm", "1", true, false, 0, 80 - 24 }, { "xterm", "1", true, false, 50, 50 - 24 },
        { "xterm", "1", true, false, 10, 0 },      { "dumb", NULL, false, false, 100, 0 },
        { NULL, NULL, false, false, 100, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char expected[200];
        put_environment(cases[i].term, cases[i].no_colour);
        struct screen s = terminal_screen(cases[i].columns);
        struct progress p = half_way(&s);
        snprintf(expected, sizeof(expected), "\r%s[######--------------]%s %.*s\x1b[K",
                 cases[i].colour ? "\x1b[32m" : "", cases[i].colour ? "\x1b[0m" : "", cases[i].letters, all);
        if (!cases[i].bar)
            snprintf(expected, sizeof(expected), "%s\n", all);
        expect_tick(&s, &p, 10, name, expected);
        shut(&s);
    }
}

RUN_TESTS(NULL, NULL)
