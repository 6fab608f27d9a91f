#include "results/store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"

enum { SMALLEST_DATABASE = 512, MAX_SAVED = 1000 };

bool store_file_check(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return fail(err, "%s: is a folder, not a database", path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return fail(err, "%s: is not a regular file", path);
    // SQLite would take one byte for an empty database.
    if (stat(path, &st) == 0 && st.st_size > 0 && st.st_size < SMALLEST_DATABASE)
        return fail(err, "%s: not an SQLite database: found %lld bytes", path, (long long)st.st_size);
    char *copy = xstrdup(path), *folder = dirname(copy);
    bool ok = (stat(folder, &st) == 0 && S_ISDIR(st.st_mode)) || fail(err, "%s: there is no folder %s", path, folder);
    // SQLite would retry to open the missing file read-only and report that as the error.
    if (ok && lstat(path, &st) != 0 && access(folder, W_OK | X_OK) != 0)
        ok = fail(err, "%s: could not be created: %s", path, strerror(errno));
    free(copy);
    return ok;
}

int64_t store_file_bytes(const char *path)
{
    struct stat file = { 0 }, log = { 0 };
    char *of_log = xformat("%s-wal", path);
    const int64_t bytes = stat(path, &file) == 0 ? (int64_t)file.st_size : 0;
    const int64_t more = stat(of_log, &log) == 0 ? (int64_t)log.st_size : 0;
    free(of_log);
    return bytes + more;
}

// ---- locks

// An experiment's lock is on one byte far beyond the end of the file and SQLite's own locks. FNV-1a of the name gives
// the offset. The kernel releases the lock when the process ends.
#define LOCKS ((off_t)1 << 48)

static off_t lock_offset(const char *name)
{
    uint32_t h = 0x811c9dc5;
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++)
        h = (h ^ *c) * 0x01000193;
    return LOCKS + h;
}

bool store_file_lock(const char *path, const char *experiment, int *descriptor, struct error *err)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = lock_offset(experiment), .l_len = 1 };
    if (*descriptor < 0)
        *descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (*descriptor >= 0 && fcntl(*descriptor, F_OFD_SETLK, &lock) == 0)
        return true;
    if (*descriptor >= 0 && (errno == EAGAIN || errno == EACCES))
        return fail(err, "%s: another process is running experiment \"%s\" into it", path, experiment);
    return fail(err, "%s: could not be locked: %s", path, strerror(errno));
}

// ---- the place of the file

void placed_file_note(struct placed_file *f, const char *path)
{
    struct stat st;
    free(f->path);
    *f = (struct placed_file){ 0 };
    if (stat(path, &st) == 0)
        *f = (struct placed_file){ xstrdup(path), st.st_dev, st.st_ino };
}

const char *placed_file_change(const struct placed_file *f)
{
    struct stat st;
    if (f->path == NULL)
        return NULL;
    if (stat(f->path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? "was removed or renamed" : "can no longer be reached";
    return st.st_dev == f->device && st.st_ino == f->inode ? NULL : "was replaced by another file";
}

char *store_file_beside(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    for (int k = 1; k <= MAX_SAVED; k++) {
        char number[16] = "";
        if (k > 1)
            snprintf(number, sizeof(number), "-%d", k);
        char *s = xformat("%s.saved%s", path, number);
        int file = open(s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST) { // the folder no longer exists
            free(s);
            s = xformat("%s.saved%s", name, number);
            file = open(s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        }
        if (file >= 0) {
            close(file);
            return s;
        }
        const bool taken = errno == EEXIST;
        if (!taken)
            fail(err, "%s: %s", s, strerror(errno));
        free(s);
        if (!taken)
            return NULL;
    }
    fail(err, "%s.saved: expected a free name, found files under %d names of this kind", path, MAX_SAVED);
    return NULL;
}
