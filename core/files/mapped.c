#include "core/files/mapped.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/memory.h"

// Threads that add, remove or check an entry hold the lock. The handler of faults takes none: it reads `at` and n of
// every entry, and the sentence of the entry whose bytes are being read, which stays mapped meanwhile.
enum { MOST = 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry {
    _Atomic(const uint8_t *) at; // NULL: the entry is free
    _Atomic size_t n;
    char *path, *sentence; // sentence: the message of a fault, made beforehand
    struct stat st;
} table[MOST];
static atomic_int used; // entries from this one on have never been in use
static char *changed;   // the path of a file that had changed when it was unmapped; never freed

static bool add(const char *path, const struct stat *st, const uint8_t *at, size_t n, struct error *err)
{
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < MOST && table[i].at != NULL)
        i++;
    if (i < MOST) {
        struct entry *e = &table[i];
        e->path = xstrdup(path);
        e->sentence = xformat(
            "speclab: %s: cannot be read: it has been shortened while it was in use, or its disk fails\n", path);
        e->st = *st;
        e->n = n;
        e->at = at;
        if (i == used)
            used = i + 1;
    }
    pthread_mutex_unlock(&lock);
    return i < MOST || fail(err, "%s: cannot be mapped: expected at most %d files at once", path, MOST);
}

// Returns whether the mapped file was written to. If it was removed, or another file has its name, the mapped file
// itself is unchanged.
static bool has_changed(const struct entry *e)
{
    struct stat st;
    return stat(e->path, &st) == 0 && st.st_dev == e->st.st_dev && st.st_ino == e->st.st_ino &&
           (st.st_size != e->st.st_size || st.st_mtim.tv_sec != e->st.st_mtim.tv_sec ||
            st.st_mtim.tv_nsec != e->st.st_mtim.tv_nsec);
}

static void forget(const uint8_t *at)
{
    pthread_mutex_lock(&lock);
    struct entry *e = table;
    while (e < table + used && e->at != at)
        e++;
    if (e < table + used) {
        e->at = NULL;
        if (changed == NULL && has_changed(e))
            changed = e->path;
        else
            free(e->path);
        free(e->sentence);
    }
    pthread_mutex_unlock(&lock);
}

// ---- files that consist of parts of others

static struct filled {
    dev_t device;
    ino_t number;
    struct mapped_parts parts;
    struct filled *next;
} * filled;

bool mapped_fill(int fd, const struct mapped_parts *parts, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail(err, "a file in memory: %s", strerror(errno));
    struct filled *f = xcalloc(1, sizeof(*f));
    pthread_mutex_lock(&lock);
    *f = (struct filled){ st.st_dev, st.st_ino, *parts, filled };
    filled = f;
    pthread_mutex_unlock(&lock);
    return true;
}

static const struct mapped_parts *parts_of(const struct stat *st)
{
    pthread_mutex_lock(&lock);
    const struct filled *f = filled;
    while (f != NULL && (f->device != st->st_dev || f->number != st->st_ino))
        f = f->next;
    pthread_mutex_unlock(&lock);
    return f != NULL ? &f->parts : NULL;
}

bool mapped_is_filled(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && parts_of(&st) != NULL;
}

static bool map_parts(uint8_t *at, const struct mapped_parts *parts)
{
    for (size_t i = 0; parts != NULL && i < parts->n; i++) {
        const struct mapped_part *p = &parts->part[i];
        if (mmap(at + p->at, p->n, PROT_READ, MAP_SHARED | MAP_FIXED, p->fd, (off_t)p->from) == MAP_FAILED)
            return false;
    }
    return true;
}

bool file_map(const char *path, struct mapping *to, struct error *err)
{
    *to = (struct mapping){ 0 };
    const int fd = input_open(path, INPUT_REGULAR, err);
    struct stat st;
    if (fd < 0)
        return false;
    if (fstat(fd, &st) != 0)
        fail(err, "%s: %s", path, strerror(errno));
    else if (st.st_size == 0)
        fail(err, "%s: the file is empty", path);
    else {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            fail(err, "%s: cannot be mapped: %s", path, strerror(errno));
        else if (!map_parts(at, parts_of(&st))) {
            fail(err, "%s: cannot be mapped: %s", path, strerror(errno));
            munmap(at, (size_t)st.st_size);
        } else if (!add(path, &st, at, (size_t)st.st_size, err))
            munmap(at, (size_t)st.st_size);
        else
            *to = (struct mapping){ at, (size_t)st.st_size };
    }
    input_close(fd);
    return to->at != NULL;
}

void file_unmap(struct mapping *m)
{
    if (m->at != NULL) {
        forget(m->at);
        munmap((void *)(uintptr_t)m->at, m->n);
    }
    *m = (struct mapping){ 0 };
}

static bool unchanged(bool also_unmapped, struct error *err)
{
    pthread_mutex_lock(&lock);
    const char *path = also_unmapped ? changed : NULL;
    for (int i = 0; i < used && path == NULL; i++)
        if (table[i].at != NULL && has_changed(&table[i]))
            path = table[i].path;
    const bool ok = path == NULL || fail(err, "%s: has been written to while it was in use", path);
    pthread_mutex_unlock(&lock);
    return ok;
}

bool mapped_unchanged(struct error *err)
{
    return unchanged(false, err);
}

bool mapped_was_unchanged(struct error *err)
{
    return unchanged(true, err);
}

// ---- faults

static void on_fault(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    const uintptr_t fault = (uintptr_t)info->si_addr;
    for (int i = 0; i < used; i++) {
        const struct entry *e = &table[i];
        const uintptr_t at = (uintptr_t)e->at;
        if (at == 0 || fault < at || fault - at >= e->n)
            continue;
        const ssize_t written = write(STDERR_FILENO, e->sentence, strlen(e->sentence));
        (void)written;
        _exit(1);
    }
    signal(number, SIG_DFL); // another fault: the access is repeated, and ends the program as usual
}

void mapped_catch_faults(void)
{
    struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
}
