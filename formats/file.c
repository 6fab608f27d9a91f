#include "formats/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"

bool file_map(const char *path, struct mapping *to, struct error *err)
{
    *to = (struct mapping){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // otherwise open() of a named pipe without a writer blocks
    if (fd < 0)
        return fail(err, "%s: cannot be opened: %s", path, strerror(errno));

    struct stat st;
    bool ok = false;
    if (fstat(fd, &st) != 0)
        fail(err, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        fail(err, "%s: expected a file, found %s", path, S_ISDIR(st.st_mode) ? "a directory" : "a device or pipe");
    else if (st.st_size == 0)
        fail(err, "%s: the file is empty", path);
    else {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            fail(err, "%s: cannot be mapped: %s", path, strerror(errno));
        else {
            *to = (struct mapping){ at, (size_t)st.st_size };
            ok = true;
        }
    }
    close(fd);
    return ok;
}

void file_unmap(struct mapping *m)
{
    if (m->at != NULL)
        munmap((void *)(uintptr_t)m->at, m->n);
    *m = (struct mapping){ 0 };
}

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

bool file_is_same(const char *a, const char *b)
{
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

bool file_make_folders(const char *path)
{
    char *s = xstrdup(path), *last = strrchr(s, '/');
    for (char *slash = strchr(s + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(s, 0777); // may exist already; a failure shows in the check of the last folder
        if (slash == last)
            break;
        *slash = '/';
    }
    bool ok = last == NULL || last == s || file_is_directory(s);
    free(s);
    return ok;
}

char *file_text(const char *path, size_t *n, struct error *err)
{
    struct mapping m;
    if (!file_map(path, &m, err))
        return NULL;
    char *text = NULL;
    if (m.n > (size_t)1 << 26)
        fail(err, "%s: expected a text of at most 64 MiB, found %zu bytes", path, m.n);
    else {
        text = xstrndup((const char *)m.at, m.n);
        if (n != NULL)
            *n = m.n;
    }
    file_unmap(&m);
    return text;
}

struct part {
    char *path, *name; // the final path, and path.part; NULL: written in place
    FILE *f;
    bool owned; // f is no stream of the caller's
    size_t n;   // bytes so far
    int failed; // errno of the first failure
};

static void release(struct part *p)
{
    free(p->path);
    free(p->name);
    free(p);
}

struct part *part_begin(const char *path, struct error *err)
{
    struct part *p = xcalloc(1, sizeof(*p));
    struct stat st;
    const bool device = stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    char *real = device ? NULL : realpath(path, NULL); // a link leads to the file that is replaced
    p->path = real != NULL ? real : xstrdup(path);
    p->name = device ? NULL : xformat("%s.part", p->path); // a device, as /dev/null, is written to, never replaced
    p->f = fopen(device ? path : p->name, "wbe");
    p->owned = true;
    if (p->f == NULL) {
        fail(err, "%s: cannot be written: %s", device ? path : p->name, strerror(errno));
        release(p);
        return NULL;
    }
    return p;
}

struct part *part_onto(FILE *stream, const char *name)
{
    struct part *p = xcalloc(1, sizeof(*p));
    *p = (struct part){ .path = xstrdup(name), .f = stream };
    return p;
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

void part_zeros(struct part *p, size_t n)
{
    static const char zeros[4096];
    for (size_t chunk; n != 0; n -= chunk) {
        chunk = n < sizeof(zeros) ? n : sizeof(zeros);
        part_write(p, zeros, chunk);
    }
}

void part_pad(struct part *p, size_t to)
{
    part_zeros(p, (to - p->n % to) % to);
}

size_t part_bytes(const struct part *p)
{
    return p->n;
}

bool part_failed(const struct part *p)
{
    return p->failed != 0;
}

bool part_end(struct part *p, struct error *err)
{
    // Some file systems report a full disk only here; others do not support fsync (EINVAL).
    if (p->failed == 0 && fflush(p->f) != 0)
        p->failed = errno;
    const bool is_file = p->name != NULL;
    if (is_file && p->failed == 0 && fsync(fileno(p->f)) != 0 && errno != EINVAL)
        p->failed = errno;
    if (p->owned && fclose(p->f) != 0 && p->failed == 0)
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

void part_abandon(struct part *p)
{
    if (p == NULL)
        return;
    if (p->owned)
        fclose(p->f);
    if (p->name != NULL)
        unlink(p->name);
    release(p);
}
