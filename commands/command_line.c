// command_line.c - the only file that includes getopt.h, because its struct option clashes with core/options.h.
#include "commands/command_line.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/part.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/settings.h"
#include "core/files/mapped.h"
#include "kernels/devices.h"

enum { MAX_FLAGS = 48, HELP_COLUMN = 28 };

// ---- messages

int usage_fail(const struct usage *u, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "speclab%s%s: ", *u->name != '\0' ? " " : "", u->name);
    printable_line(stderr, format, args);
    va_end(args);
    return 2;
}

int command_fail(const struct usage *u, const struct error *err)
{
    fflush(stdout);
    usage_fail(u, "%s", err->text);
    return error_is_usage(err) ? 2 : interrupt_requested() ? interrupt_status() : 1;
}

void command_log(void *unused, const char *sentence)
{
    struct text line = { 0 };
    (void)unused;
    printable_put(&line, sentence, strlen(sentence), "\n\t");
    fprintf(stderr, "%s\n", line.s != NULL ? line.s : "");
    free(line.s);
}

int command_done(const struct usage *u)
{
    struct error err;
    if (!mapped_was_unchanged(&err))
        return command_fail(u, &err);
    errno = 0;
    if (!stdout_failed())
        return 0;
    int reason = errno;
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    if (reason != EPIPE && !(poll(&out, 1, 0) == 1 && (out.revents & POLLERR)))
        usage_fail(u, "cannot write to stdout: %s", reason != 0 ? strerror(reason) : "an earlier write failed");
    return 1;
}

static void print_flag(const struct flag *f)
{
    int n = printf("  --%s%s%s", f->name, f->argument != NULL ? " " : "", f->argument != NULL ? f->argument : "");
    for (const char *line = f->help; line != NULL;) {
        const char *end = strchr(line, '\n');
        if (n >= HELP_COLUMN)
            printf("\n"), n = 0;
        printf("%*s%.*s\n", HELP_COLUMN - n, "", end != NULL ? (int)(end - line) : (int)strlen(line), line);
        n = 0;
        line = end != NULL ? end + 1 : NULL;
    }
}

static int print_help(const struct usage *u)
{
    printf("Usage: speclab %s [OPTION...]%s%s\n\n%s\n", u->name, *u->operands != '\0' ? " " : "", u->operands,
           u->about);
    for (const struct flag *f = u->flags; f->name != NULL; f++)
        print_flag(f);
    print_flag(&(struct flag){ .name = "plugin",
                               .argument = "FILE",
                               .help = "also what this plugin registers: FILE.py or FILE.so; several times" });
    print_flag(&(struct flag){ .name = "help", .help = "print this help" });
    printf("\nExamples:\n%s", u->examples);
    return command_done(u);
}

// ---- parsing

bool parse_int(const char *text, long long min, long long max, long long *to)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || isspace((unsigned char)*text) || errno == ERANGE || v < min || v > max)
        return false;
    *to = v;
    return true;
}

static int unknown_flag(const struct usage *u, const char *given)
{
    const char *names[MAX_FLAGS + 1] = { 0 };
    int n = 0;
    for (const struct flag *f = u->flags; f->name != NULL; f++)
        names[n++] = f->name;
    char *word = xstrdup(given + strspn(given, "-"));
    struct text hint = { 0 };
    word[strcspn(word, "=")] = '\0';
    if (strncmp(given, "--", 2) == 0)
        name_hint(&hint, NAME_FLAG, word, names);
    if (hint.n > 0)
        usage_fail(u, "unknown option %s%s", given, hint.s);
    else
        usage_fail(u, "unknown option %s; speclab %s --help lists all options", given, u->name);
    free(hint.s);
    free(word);
    return 2;
}

static int take_choice(const struct usage *u, const struct flag *f, const char *value)
{
    const int i = choice_index(f->argument, value);
    if (i < 0)
        return usage_fail(u, "--%s: expected one of %s, found \"%s\"", f->name, f->argument, value);
    if (f->kind == FLAG_WORD)
        *(const char **)f->to = value;
    else
        *(int *)f->to = i;
    return USAGE_OK;
}

static int take_flag(const struct usage *u, const struct flag *f, const char *value)
{
    struct flag_texts *texts = f->to;
    struct error why;
    long long min = f->min, max = f->max;
    if (min == 0 && max == 0)
        min = LLONG_MIN, max = LLONG_MAX;
    switch (f->kind) {
    case FLAG_ON:
        *(bool *)f->to = true;
        return USAGE_OK;
    case FLAG_INT:
        if (parse_int(value, min, max, f->to))
            return USAGE_OK;
        if (f->min == 0 && f->max == 0)
            return usage_fail(u, "--%s: expected an integer, found \"%s\"", f->name, value);
        return usage_fail(u, "--%s: expected an integer from %lld to %lld, found \"%s\"", f->name, min, max, value);
    case FLAG_TEXT:
        *(const char **)f->to = value;
        return USAGE_OK;
    case FLAG_DEVICE:
        *(const char **)f->to = value;
        return device_name_check(value, "--device", &why) ? USAGE_OK : usage_fail(u, "%s", why.text);
    case FLAG_TEXTS:
        if (texts->n == (int)(sizeof(texts->text) / sizeof(texts->text[0])))
            return usage_fail(u, "--%s can be given at most %d times", f->name, texts->n);
        texts->text[texts->n++] = value;
        return USAGE_OK;
    case FLAG_CHOICE:
    case FLAG_WORD:
        return take_choice(u, f, value);
    }
    return USAGE_OK;
}

// The argument, as typed, that getopt_long rejected.
static const char *rejected_argument(char **argv)
{
    return argv[optind - 1];
}

static bool given[MAX_FLAGS]; // flags of the last call

static struct {
    void (*seen)(const struct usage *u, void *self);
    void *self;
} observer;

void usage_observe(void (*seen)(const struct usage *u, void *self), void *self)
{
    observer.seen = seen;
    observer.self = self;
}

int usage_read(const struct usage *u, int argc, char **argv, char ***operand, int *n)
{
    struct option known[MAX_FLAGS + 2] = { { 0 } };
    int flags = 0, which;
    if (observer.seen != NULL) {
        observer.seen(u, observer.self);
        return 0;
    }
    for (const struct flag *f = u->flags; f->name != NULL && flags < MAX_FLAGS; f++, flags++)
        known[flags] =
            (struct option){ f->name, f->kind == FLAG_ON ? no_argument : required_argument, NULL, 256 + flags };
    known[flags] = (struct option){ "help", no_argument, NULL, 'h' };

    memset(given, 0, sizeof(given));
    opterr = 0;
    optind = 1;
    while ((which = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        if (which == 'h')
            return print_help(u);
        if (which == ':')
            return usage_fail(u, "%s requires a value; see speclab %s --help", rejected_argument(argv), u->name);
        if (which == '?' && optopt >= 256)
            return usage_fail(u, "--%s takes no value", known[optopt - 256].name);
        if (which == '?' && optopt != 0 && optopt != 'h')
            return usage_fail(u, "unknown option -%c; speclab %s --help lists all options", optopt, u->name);
        if (which == '?')
            return unknown_flag(u, rejected_argument(argv));
        const struct flag *f = &u->flags[which - 256];
        if (given[which - 256] && f->kind != FLAG_TEXTS)
            return usage_fail(u, "--%s is given twice; expected it once", f->name);
        given[which - 256] = true;
        int status = take_flag(u, f, optarg);
        if (status != USAGE_OK)
            return status;
    }
    int operands = argc - optind;
    if (operands < u->min_operands)
        return usage_fail(u, "missing argument: speclab %s [OPTION...] %s", u->name, u->operands);
    if (operands > u->max_operands)
        return usage_fail(u, "unexpected argument \"%s\": speclab %s [OPTION...] %s", argv[optind + u->max_operands],
                          u->name, u->operands);
    *operand = argv + optind;
    if (n != NULL)
        *n = operands;
    return USAGE_OK;
}

// ---- modes

static bool is_given(const struct usage *u, const char *name)
{
    for (int i = 0; u->flags[i].name != NULL; i++)
        if (given[i] && strcmp(u->flags[i].name, name) == 0)
            return true;
    return false;
}

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return true;
    return false;
}

// Reports a flag that the mode does not have: names the modes that have it, or the flag that excludes it.
static int fail_mode(const struct usage *u, const struct mode *modes, const struct mode *mode, const char *flag)
{
    struct text others = { 0 };
    for (const struct mode *m = modes; m->name != NULL; m++)
        if (has_word(m->also, flag))
            text_printf(&others, "%s--%s", others.n > 0 ? " or " : "", m->name);
    if (mode->name != NULL)
        usage_fail(u, "--%s and --%s exclude each other", mode->name, flag);
    else
        usage_fail(u, "--%s requires %s", flag, others.s);
    free(others.s);
    return -1;
}

int usage_mode(const struct usage *u, const struct mode *modes)
{
    int mode = 0;
    while (modes[mode].name != NULL && !is_given(u, modes[mode].name))
        mode++;
    for (int i = 0; u->flags[i].name != NULL; i++) {
        const char *name = u->flags[i].name, *own = modes[mode].name;
        if (given[i] && (own == NULL || strcmp(name, own) != 0) && !has_word(modes[mode].also, name))
            return fail_mode(u, modes, &modes[mode], name);
    }
    return mode;
}
