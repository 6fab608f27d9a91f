// progress.c - draws the bar or prints lines, with an estimate of the remaining time. Rate and remaining time are based
// on this process only, not on what the database had before.
#include "experiments/progress.h"
#include "core/clock.h"
#include "core/memory.h"
#include "core/printable.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 20, TERMINAL_NS = 100000000 };
#define PLAIN_NS INT64_C(10000000000)
#define LOG_NS INT64_C(60000000000)

void progress_begin(struct progress *p, FILE *to, FILE *log, int64_t total)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    *p = (struct progress){ .to = to, .log = log, .total = total, .began_ns = clock_ns() };
    p->terminal = to != NULL && isatty(fileno(to)) && term != NULL && strcmp(term, "dumb") != 0;
    p->colour = p->terminal && (no_colour == NULL || *no_colour == '\0');
    p->shown_ns = p->logged_ns = p->began_ns;
}

static void erase_bar(struct progress *p)
{
    if (p->drawn)
        fprintf(p->to, "\r\x1b[K");
    p->drawn = false;
}

void progress_end(struct progress *p)
{
    if (p->to == NULL)
        return;
    erase_bar(p);
    fflush(p->to);
}

void progress_skip(struct progress *p, int64_t n)
{
    p->seen += n;
}

void progress_done(struct progress *p, int64_t n)
{
    p->seen += n;
    p->ran += n;
}

void progress_time(int64_t ns, char *to, int n)
{
    int64_t s = (ns + 500000000) / 1000000000, minutes = (s + 30) / 60;
    if (s < 100)
        snprintf(to, (size_t)n, "%lld s", (long long)s);
    else if (minutes < 100)
        snprintf(to, (size_t)n, "%lld min", (long long)minutes);
    else
        snprintf(to, (size_t)n, "%lld h %lld min", (long long)(minutes / 60), (long long)(minutes % 60));
}

static int columns(const struct progress *p)
{
    struct winsize w;
    return ioctl(fileno(p->to), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

// Writes "12 of 96 conversations, 31.0 tokens/s, 4 min left: ngram, temperature=0".
static void describe(const struct progress *p, int64_t now, const char *what, char *to, size_t n)
{
    char left[48] = "";
    double seconds = (double)(now - p->began_ns) / 1e9;
    if (p->ran > 0 && p->seen < p->total) {
        char time[32];
        progress_time((int64_t)((double)(now - p->began_ns) / (double)p->ran * (double)(p->total - p->seen)), time,
                      sizeof(time));
        snprintf(left, sizeof(left), ", %s left", time);
    }
    snprintf(to, n, "%lld of %lld conversations, %.1f tokens/s%s: %s", (long long)p->seen, (long long)p->total,
             seconds > 0 ? (double)p->tokens / seconds : 0, left, what);
}

static void draw(struct progress *p, const char *line)
{
    int full = p->total > 0 ? (int)(BAR * p->seen / p->total) : BAR, capacity = columns(p) - BAR - 4;
    char bar[BAR + 1];
    for (int i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '-';
    bar[BAR] = '\0';
    fprintf(p->to, "\r%s[%s]%s %.*s\x1b[K", p->colour ? "\x1b[32m" : "", bar, p->colour ? "\x1b[0m" : "",
            capacity > 0 ? capacity : 0, line);
    p->drawn = true;
}

// "2026-11-27T18:52:07Z " and the line.
static void put_log(FILE *log, const char *format, va_list args)
{
    char at[32];
    const time_t now = time(NULL);
    if (log == NULL)
        return;
    strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ ", gmtime(&now));
    fputs(at, log);
    printable_line(log, format, args);
    fflush(log);
}

static void __attribute__((format(printf, 2, 3))) log_line(FILE *log, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_log(log, format, args);
    va_end(args);
}

void progress_tick(struct progress *p, const char *what)
{
    const int64_t now = clock_ns();
    const bool shows = p->to != NULL && now - p->shown_ns >= (p->terminal ? (int64_t)TERMINAL_NS : PLAIN_NS),
               logs = p->log != NULL && now - p->logged_ns >= LOG_NS;
    if (!shows && !logs)
        return;
    char line[512];
    describe(p, now, what, line, sizeof(line));
    if (logs) {
        p->logged_ns = now;
        log_line(p->log, "%s", line);
    }
    if (!shows)
        return;
    struct text shown = { 0 };
    printable_put(&shown, line, strlen(line), "");
    if (p->terminal)
        draw(p, shown.s);
    else
        fprintf(p->to, "%s\n", shown.s);
    free(shown.s);
    p->shown_ns = now;
    fflush(p->to);
}

void progress_line(struct progress *p, const char *format, ...)
{
    va_list args;
    if (p->to != NULL) {
        erase_bar(p);
        va_start(args, format);
        printable_line(p->to, format, args);
        va_end(args);
        fflush(p->to);
    }
    va_start(args, format);
    put_log(p->log, format, args);
    va_end(args);
}
