#include "core/files/part.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/memory.h"

struct part {
    char *path, *name; // the final path, and the name until the end; NULL: written in place
    FILE *f;
    size_t n;   // bytes so far
    int failed; // errno of the first failure
};

static void release(struct part *p)
{
    free(p->path);
    free(p->name);
    free(p);
}

// ---- names

static int make_file(const char *name)
{
    return open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

// Makes a new file under *name and returns it. The process id distinguishes the programs of one machine. The number
// distinguishes what one process writes, and what killed programs and programs of other machines have left.
static int make_new(const char *path, char **name)
{
    for (int number = 0;; number++) {
        *name = xformat("%s.%ld-%d.part", path, (long)getpid(), number);
        const int made = make_file(*name);
        if (made >= 0 || errno != EEXIST)
            return made;
        free(*name);
    }
}

// ---- files

static struct part *begin(char *path, struct error *err)
{
    struct part *p = xcalloc(1, sizeof(*p));
    p->path = path;
    const int fd = make_new(path, &p->name);
    p->f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (p->f != NULL)
        return p;
    fail(err, "%s: cannot be written: %s", p->name, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(p->name);
    }
    release(p);
    return NULL;
}

static struct part *begin_in_place(const char *path, struct error *err)
{
    FILE *f = fopen(path, "wbe");
    if (f == NULL) {
        fail(err, "%s: cannot be written: %s", path, strerror(errno));
        return NULL;
    }
    struct part *p = xcalloc(1, sizeof(*p));
    *p = (struct part){ .path = xstrdup(path), .f = f };
    return p;
}

enum { MAX_LINKS = 40 };

// Returns the file that a path leads to through links, even if that file does not exist yet. The caller frees it.
static char *file_of(const char *path)
{
    char *at = xstrdup(path), target[PATH_MAX];
    for (int links = 0; links < MAX_LINKS; links++) {
        const ssize_t n = readlink(at, target, sizeof(target));
        if (n < 0 || n == sizeof(target))
            break;
        const char *slash = strrchr(at, '/');
        char *next = target[0] == '/' || slash == NULL ? xstrndup(target, (size_t)n)
                                                       : xformat("%.*s%.*s", (int)(slash + 1 - at), at, (int)n, target);
        free(at);
        at = next;
    }
    return at;
}

struct part *part_begin(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return begin_in_place(path, err);
    return begin(file_of(path), err);
}

struct part *part_begin_own(const char *path, struct error *err)
{
    return begin(xstrdup(path), err);
}

void part_write(struct part *p, const void *bytes, size_t n)
{
    if (p->failed != 0 || n == 0)
        return;
    errno = 0;
    if (fwrite(bytes, 1, n, p->f) != n)
        p->failed = errno != 0 ? errno : EIO;
    p->n += n;
}

void part_pad(struct part *p, size_t to)
{
    static const char zeros[4096];
    for (size_t n = (to - p->n % to) % to, chunk; n != 0; n -= chunk) {
        chunk = n < sizeof(zeros) ? n : sizeof(zeros);
        part_write(p, zeros, chunk);
    }
}

bool part_end(struct part *p, struct error *err)
{
    // Some file systems report a full disk only here; others do not support fsync (EINVAL).
    if (p->failed == 0 && fflush(p->f) != 0)
        p->failed = errno;
    const bool is_file = p->name != NULL;
    if (is_file && p->failed == 0 && fsync(fileno(p->f)) != 0 && errno != EINVAL)
        p->failed = errno;
    if (fclose(p->f) != 0 && p->failed == 0)
        p->failed = errno;
    if (is_file && p->failed == 0 && rename(p->name, p->path) != 0)
        p->failed = errno;
    bool ok = p->failed == 0;
    if (!ok) {
        fail(err, "%s: cannot be written: %s", p->path, strerror(p->failed));
        if (is_file)
            unlink(p->name);
    }
    release(p);
    return ok;
}

bool part_file(const char *path, const void *bytes, size_t n, struct error *err)
{
    struct part *p = part_begin(path, err);
    if (p == NULL)
        return false;
    part_write(p, bytes, n);
    return part_end(p, err);
}

bool file_make_folders(const char *path)
{
    char *s = xstrdup(path), *last = strrchr(s, '/');
    for (char *slash = strchr(s + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(s, 0777); // the folder may exist; a failure shows in the check of the last folder
        if (slash == last)
            break;
        *slash = '/';
    }
    bool ok = last == NULL || last == s || file_is_directory(s);
    free(s);
    return ok;
}

bool stdout_failed(void)
{
    return fflush(stdout) != 0 || ferror(stdout);
}
