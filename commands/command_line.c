// command_line.c - the only file that includes getopt.h, whose struct option is not ours.
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
#include "core/memory.h"
#include "kernels/devices.h"
#include "revision.h"

enum { MAX_FLAGS = 48, HELP_COLUMN = 28 };

// ---- what is said

int usage_fail(const struct usage *u, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "speclab%s%s: ", *u->name != '\0' ? " " : "", u->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return 2;
}

int command_fail(const struct usage *u, const struct error *err)
{
    fflush(stdout);
    usage_fail(u, "%s", err->text);
    return 1;
}

const char *program_version(void)
{
    return SPECLAB_VERSION " (" SPECLAB_REVISION ")";
}

bool stdout_is_gone(void)
{
    return fflush(stdout) != 0 || ferror(stdout);
}

int command_done(const struct usage *u)
{
    errno = 0;
    if (!stdout_is_gone())
        return 0;
    int why = errno;
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    if (why != EPIPE && !(poll(&out, 1, 0) == 1 && (out.revents & POLLERR)))
        usage_fail(u, "cannot write to stdout: %s", why != 0 ? strerror(why) : "an earlier write failed");
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
    print_flag(&(struct flag){ .name = "help", .help = "this text" });
    printf("\nFor example:\n%s", u->examples);
    return command_done(u);
}

// ---- what is meant

bool parse_int(const char *text, long long least, long long most, long long *to)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || isspace((unsigned char)*text) || errno == ERANGE || v < least || v > most)
        return false;
    *to = v;
    return true;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    int d[MOST + 1][MOST + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > MOST || m > MOST)
        return INT_MAX;
    for (int i = 0; i <= n; i++)
        for (int k = 0; k <= m; k++) {
            if (i == 0 || k == 0) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = smaller(smaller(d[i - 1][k], d[i][k - 1]) + 1, d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = smaller(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[n][m];
}

const char *nearest(const char *word, const char *const *list)
{
    const char *best = NULL;
    int least = 1 + (int)strlen(word) / 3 + 1; // further off than this, it is another word
    for (; *list != NULL; list++) {
        int far = strncmp(*list, word, strlen(word)) == 0 && strlen(word) >= 3 ? 1 : distance(word, *list);
        if (far < least) {
            least = far;
            best = *list;
        }
    }
    return best;
}

static int unknown_flag(const struct usage *u, const char *given)
{
    const char *names[MAX_FLAGS + 1] = { 0 };
    int n = 0;
    for (const struct flag *f = u->flags; f->name != NULL; f++)
        names[n++] = f->name;
    char *word = xstrdup(given + strspn(given, "-"));
    word[strcspn(word, "=")] = '\0';
    const char *meant = strncmp(given, "--", 2) == 0 ? nearest(word, names) : NULL;
    free(word);
    if (meant != NULL)
        return usage_fail(u, "there is no option %s; did you mean --%s?", given, meant);
    return usage_fail(u, "there is no option %s; speclab %s --help lists them", given, u->name);
}

static int take_choice(const struct usage *u, const struct flag *f, const char *value)
{
    int i = 0;
    for (const char *word = f->argument; *word != '\0'; i++) {
        size_t n = strcspn(word, "|");
        if (strlen(value) == n && memcmp(value, word, n) == 0) {
            *(int *)f->to = i;
            return GO_ON;
        }
        word += n + (word[n] == '|');
    }
    return usage_fail(u, "--%s: expected one of %s, found \"%s\"", f->name, f->argument, value);
}

static int take_flag(const struct usage *u, const struct flag *f, const char *value)
{
    struct flag_texts *texts = f->to;
    struct error why;
    long long least = f->least, most = f->most;
    if (least == 0 && most == 0)
        least = LLONG_MIN, most = LLONG_MAX;
    switch (f->kind) {
    case FLAG_ON:
        *(bool *)f->to = true;
        return GO_ON;
    case FLAG_INT:
        if (parse_int(value, least, most, f->to))
            return GO_ON;
        if (f->least == 0 && f->most == 0)
            return usage_fail(u, "--%s: expected an integer, found \"%s\"", f->name, value);
        return usage_fail(u, "--%s: expected an integer from %lld to %lld, found \"%s\"", f->name, least, most, value);
    case FLAG_TEXT:
        *(const char **)f->to = value;
        return GO_ON;
    case FLAG_DEVICE:
        *(const char **)f->to = value;
        return device_name_check(value, "--device", &why) ? GO_ON : usage_fail(u, "%s", why.text);
    case FLAG_TEXTS:
        if (texts->n == (int)(sizeof(texts->text) / sizeof(texts->text[0])))
            return usage_fail(u, "--%s can be given %d times at most", f->name, texts->n);
        texts->text[texts->n++] = value;
        return GO_ON;
    case FLAG_CHOICE:
        return take_choice(u, f, value);
    }
    return GO_ON;
}

// What the person typed for the flag that getopt_long stumbled over.
static const char *stumble(char **argv)
{
    return argv[optind - 1];
}

int usage_read(const struct usage *u, int argc, char **argv, char ***operand, int *n)
{
    struct option known[MAX_FLAGS + 2] = { { 0 } };
    int flags = 0, which;
    for (const struct flag *f = u->flags; f->name != NULL && flags < MAX_FLAGS; f++, flags++)
        known[flags] =
            (struct option){ f->name, f->kind == FLAG_ON ? no_argument : required_argument, NULL, 256 + flags };
    known[flags] = (struct option){ "help", no_argument, NULL, 'h' };

    opterr = 0;
    optind = 1;
    while ((which = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        if (which == 'h')
            return print_help(u);
        if (which == ':')
            return usage_fail(u, "%s needs a value; speclab %s --help says which", stumble(argv), u->name);
        if (which == '?' && optopt >= 256)
            return usage_fail(u, "--%s takes no value", known[optopt - 256].name);
        if (which == '?' && optopt != 0 && optopt != 'h')
            return usage_fail(u, "there is no option -%c; speclab %s --help lists them", optopt, u->name);
        if (which == '?')
            return unknown_flag(u, stumble(argv));
        int status = take_flag(u, &u->flags[which - 256], optarg);
        if (status != GO_ON)
            return status;
    }
    int left = argc - optind;
    if (left < u->least)
        return usage_fail(u, "an argument is missing: speclab %s [OPTION...] %s", u->name, u->operands);
    if (left > u->most)
        return usage_fail(u, "unexpected argument \"%s\": speclab %s [OPTION...] %s", argv[optind + u->most], u->name,
                          u->operands);
    *operand = argv + optind;
    if (n != NULL)
        *n = left;
    return GO_ON;
}

// ---- what is read

bool read_all(const char *path, struct text *to, struct error *err)
{
    bool standard = path == NULL || strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    const char *name = standard ? "stdin" : path;
    if (f == NULL)
        return fail(err, "%s: %s", name, strerror(errno));
    char chunk[1 << 14];
    size_t n;
    text_puts(to, "");
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        text_add(to, chunk, n);
    bool ok = !ferror(f) || fail(err, "%s: cannot read it: %s", name, strerror(errno));
    if (!standard)
        fclose(f);
    return ok;
}
