#include "core/files/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"

enum { CHUNK = 1 << 16 };

static bool is_stdin(const char *path)
{
    return path == NULL || strcmp(path, "-") == 0;
}

const char *input_name(const char *path)
{
    return is_stdin(path) ? "stdin" : path;
}

// ---- kinds

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *described(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static bool is_stream(int fd, const struct stat *st)
{
    const bool null = S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
    return S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode) || null || isatty(fd);
}

static bool fail_kind(const char *name, mode_t mode, enum input_kind kind, struct error *err)
{
    return fail(err, "%s: expected a file%s, found %s", name, kind == INPUT_REGULAR ? "" : " or a pipe",
                described(mode));
}

static bool check_kind(int fd, const char *name, enum input_kind kind, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail(err, "%s: cannot be read: %s", name, strerror(errno));
    return S_ISREG(st.st_mode) || (kind != INPUT_REGULAR && is_stream(fd, &st)) ||
           fail_kind(name, st.st_mode, kind, err);
}

int input_open(const char *path, enum input_kind kind, struct error *err)
{
    const bool standard = kind == INPUT_STDIN && is_stdin(path);
    const char *name = standard ? "stdin" : path;
    struct stat st;
    if (kind == INPUT_REGULAR && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        fail_kind(name, st.st_mode, kind, err); // a device or a pipe may act on being opened
        return -1;
    }
    // Otherwise open() of a named pipe without a writer waits for one.
    const int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        fail(err, "%s: %s", name, strerror(errno));
    else if (!check_kind(fd, name, kind, err))
        input_close(fd);
    else if (!standard && fcntl(fd, F_SETFL, 0) != 0) { // reads wait again from here on
        fail(err, "%s: %s", name, strerror(errno));
        input_close(fd);
    } else
        return fd;
    return -1;
}

void input_close(int fd)
{
    if (fd > STDIN_FILENO)
        close(fd);
}

// ---- reading

// Returns the number of bytes read; 0: the end; -1: err is set.
static ssize_t read_some(int fd, const char *name, char *to, size_t n, struct error *err)
{
    for (;;) {
        const ssize_t some = read(fd, to, n);
        if (some >= 0)
            return some;
        if (errno != EINTR) {
            fail(err, "%s: cannot be read: %s", name, strerror(errno));
            return -1;
        }
    }
}

// Allocates the size of the file at once. A file that is larger than the memory is an error that names it.
static bool reserve(struct text *to, int fd, const char *name, size_t most, struct error *err)
{
    struct stat st;
    const bool known = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    const size_t n = known ? (size_t)st.st_size : 0;
    if (n > most)
        return fail(err, "%s: expected a file of at most %zu MiB, found %zu bytes", name, most >> 20, n);
    char *s = realloc(to->s, to->n + n + 2); // the end is found by reading one byte more
    if (s == NULL)
        return fail(err, "%s: the memory does not suffice for its %zu bytes", name, n);
    to->s = s;
    to->capacity = to->n + n + 2;
    to->s[to->n] = '\0';
    return true;
}

static bool read_whole(int fd, const char *name, size_t most, struct text *to, struct error *err)
{
    if (!reserve(to, fd, name, most, err))
        return false;
    const size_t before = to->n;
    for (ssize_t some;; to->n += (size_t)some) {
        if (to->n - before > most)
            return fail(err, "%s: expected at most %zu MiB, found more", name, most >> 20);
        if (to->n + 1 >= to->capacity) {
            to->capacity = next_capacity(to->capacity, to->n + CHUNK);
            to->s = xrealloc(to->s, to->capacity);
        }
        some = read_some(fd, name, to->s + to->n, to->capacity - to->n - 1, err);
        if (some <= 0) {
            to->s[to->n] = '\0';
            return some == 0;
        }
    }
}

bool input_is_silent(int fd, const char *name, struct error *err)
{
    struct stat st;
    if (fd == STDIN_FILENO || fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode))
        return false;
    fail(err, "%s: a pipe to which nothing is written", name);
    return true;
}

bool input_read(const char *path, enum input_kind kind, size_t most, struct text *to, struct error *err)
{
    const size_t before = to->n;
    const char *name = kind == INPUT_STDIN ? input_name(path) : path;
    const int fd = input_open(path, kind, err);
    const bool ok =
        fd >= 0 && read_whole(fd, name, most, to, err) && (to->n > before || !input_is_silent(fd, name, err));
    input_close(fd);
    return ok;
}

char *file_text(const char *path, size_t *n, struct error *err)
{
    struct text text = { 0 };
    const bool ok = input_read(path, INPUT_REGULAR, (size_t)64 << 20, &text, err) &&
                    (text.n > 0 || fail(err, "%s: the file is empty", path));
    if (ok && n != NULL)
        *n = text.n;
    if (!ok)
        free(text.s);
    return ok ? text.s : NULL;
}

// ---- lines

void lines_begin(struct lines *l, int fd, const char *name)
{
    *l = (struct lines){ .name = name, .fd = fd };
}

void lines_of(struct lines *l, struct text *text, const char *name)
{
    text_add(text, "", 0); // so that there are a buffer, and room for a NUL behind the last line
    *l = (struct lines){
        .name = name, .fd = -1, .ended = true, .buffer = text->s, .end = text->n, .capacity = text->capacity
    };
    *text = (struct text){ 0 };
}

void lines_end(struct lines *l)
{
    free(l->buffer);
    *l = (struct lines){ .fd = -1 };
}

static bool fail_long(struct lines *l, struct error *err)
{
    l->failed = true;
    return fail(err, "%s:%ld: expected lines of at most %zu MiB, found a longer one", l->name, l->number + 1,
                INPUT_LINE >> 20);
}

// Appends more bytes to those of the unfinished line.
static bool fill(struct lines *l, struct error *err)
{
    if (l->begin > 0)
        memmove(l->buffer, l->buffer + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    if (l->end > INPUT_LINE)
        return fail_long(l, err);
    array_reserve(l->buffer, l->capacity, l->end + CHUNK + 1); // plus one byte for a NUL
    const ssize_t some = read_some(l->fd, l->name, l->buffer + l->end, l->capacity - l->end - 1, err);
    l->ended = some == 0;
    l->end += some > 0 ? (size_t)some : 0;
    return some >= 0;
}

bool lines_next(struct lines *l, char **line, size_t *n, struct error *err)
{
    const char *newline;
    for (size_t seen = 0;;) { // bytes that contain no end of line
        const size_t have = l->end - l->begin;
        newline = have > seen ? memchr(l->buffer + l->begin + seen, '\n', have - seen) : NULL;
        if (newline != NULL || l->ended)
            break;
        seen = have;
        if (!fill(l, err)) {
            l->failed = true;
            return false;
        }
    }
    if (newline == NULL && l->end == l->begin)
        return false;
    *line = l->buffer + l->begin;
    *n = newline != NULL ? (size_t)(newline - *line) : l->end - l->begin;
    if (*n > INPUT_LINE)
        return fail_long(l, err);
    (*line)[*n] = '\0';
    l->begin += *n + (newline != NULL);
    l->number++;
    return true;
}
