#include "core/files/mapped.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"

// The handler reads the table, so it has no lock and nothing in it moves.
enum { MOST = 4096 };
enum use { FREE, CHANGING, USED };
static struct entry {
    _Atomic enum use use;
    const uint8_t *at;
    size_t n;
    char *path, *sentence; // sentence: of a fault, made beforehand
    struct stat st;
} table[MOST];
static atomic_int used;         // entries behind these have never been in use
static _Atomic(char *) changed; // the path of a file that had changed when it was unmapped; never freed

bool mapped_add(const char *path, const struct stat *st, const uint8_t *at, size_t n, struct error *err)
{
    for (int i = 0; i < MOST; i++) {
        struct entry *e = &table[i];
        enum use expected = FREE;
        if (!atomic_compare_exchange_strong(&e->use, &expected, CHANGING))
            continue;
        e->at = at;
        e->n = n;
        e->path = xstrdup(path);
        e->sentence = xformat(
            "speclab: %s: cannot be read: it has been shortened while it was in use, or its disk fails\n", path);
        e->st = *st;
        atomic_store(&e->use, USED);
        for (int before = atomic_load(&used); before <= i;)
            atomic_compare_exchange_weak(&used, &before, i + 1);
        return true;
    }
    return fail(err, "%s: cannot be mapped: expected at most %d files at once", path, MOST);
}

// A file that another one has replaced, or that has been removed, is not the one that is mapped.
static bool has_changed(const struct entry *e)
{
    struct stat st;
    return stat(e->path, &st) == 0 && st.st_dev == e->st.st_dev && st.st_ino == e->st.st_ino &&
           (st.st_size != e->st.st_size || st.st_mtim.tv_sec != e->st.st_mtim.tv_sec ||
            st.st_mtim.tv_nsec != e->st.st_mtim.tv_nsec);
}

void mapped_remove(const uint8_t *at)
{
    for (int i = 0; i < atomic_load(&used); i++) {
        struct entry *e = &table[i];
        if (atomic_load(&e->use) != USED || e->at != at)
            continue;
        atomic_store(&e->use, CHANGING);
        char *none = NULL;
        if (!has_changed(e) || !atomic_compare_exchange_strong(&changed, &none, e->path))
            free(e->path);
        free(e->sentence);
        atomic_store(&e->use, FREE);
        return;
    }
}

static bool fail_changed(const char *path, struct error *err)
{
    return fail(err, "%s: has been written to while it was in use", path);
}

bool mapped_unchanged(struct error *err)
{
    for (int i = 0; i < atomic_load(&used); i++)
        if (atomic_load(&table[i].use) == USED && has_changed(&table[i]))
            return fail_changed(table[i].path, err);
    return true;
}

bool mapped_was_unchanged(struct error *err)
{
    const char *path = atomic_load(&changed);
    return path != NULL ? fail_changed(path, err) : mapped_unchanged(err);
}

// ---- faults

static void on_fault(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < atomic_load(&used); i++) {
        const struct entry *e = &table[i];
        if (atomic_load(&e->use) != USED || at < (uintptr_t)e->at || at - (uintptr_t)e->at >= e->n)
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
