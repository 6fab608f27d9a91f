#include "kernels/cpu/threads.h"

#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/memory.h"

// A thread looks for work without pausing, then with pauses, then sleeps: after 50 to 200 us, as long as its pauses are.
enum { LOOKS = 300, SPINS = 4000 };
enum { JOB_BITS = 24, LINES = 128 }; // LINES: bytes that processors fetch together
#define JOBS_MASK (((uint64_t)1 << JOB_BITS) - 1)

// What threads write to one another lies in lines of its own, since a line takes as long to go from one processor to
// another as some hundred operations: a round costs one there, with the work, and one back.
//
// A round's jobs are dealt out in runs, one to a thread (threads_first), and whoever has no more of his own takes from the
// others'. A ticket says which is next: (round << JOB_BITS | how many of the run are gone). Tickets are not set for a
// round: one of an earlier round says that nobody took any yet. Taking a job is one compare-and-swap, which fails when
// the round is another, so that a thread which slept through a round cannot touch the next one's work.
struct worker {
    _Alignas(LINES) _Atomic uint64_t ticket;
    _Alignas(LINES) _Atomic uint64_t finished; // jobs, since the beginning; written by this thread alone
    _Alignas(LINES) struct threads *team;
    pthread_t thread;
    int number;
};

struct threads {
    int n;
    struct worker *worker; // (n), the caller's first
    uint64_t due;          // jobs of all rounds so far

    _Alignas(LINES) _Atomic uint64_t start; // (round << JOB_BITS | jobs)
    void (*job)(void *self, int number, int thread);
    void *self;
    _Atomic bool over;

    _Alignas(LINES) _Atomic int sleepers;
    _Atomic uint32_t bell; // what they wait on
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

int threads_first(const struct threads *t, int jobs, int thread)
{
    return (int)((int64_t)jobs * thread / t->n);
}

// The next of the `count` jobs that were dealt to w in this round, or -1.
static int take(struct worker *w, uint64_t start, int count)
{
    const uint64_t round = start & ~JOBS_MASK;
    uint64_t ticket = atomic_load(&w->ticket);
    for (;;) {
        const uint64_t gone = (ticket & ~JOBS_MASK) == round ? ticket & JOBS_MASK : 0;
        if ((ticket & ~JOBS_MASK) > round || gone >= (uint64_t)count)
            return -1;
        if (atomic_compare_exchange_weak(&w->ticket, &ticket, round | (gone + 1)))
            return (int)gone;
    }
}

static void take_jobs(struct threads *t, uint64_t start, int thread)
{
    const int jobs = (int)(start & JOBS_MASK);
    uint64_t finished = 0;
    for (int k = 0; k < t->n; k++) {
        const int whose = (thread + k) % t->n, first = threads_first(t, jobs, whose);
        const int count = threads_first(t, jobs, whose + 1) - first;
        for (int i; (i = take(&t->worker[whose], start, count)) >= 0; finished++)
            t->job(t->self, first + i, thread);
    }
    if (finished > 0)
        atomic_fetch_add(&t->worker[thread].finished, finished);
}

static uint64_t next_start(struct threads *t, uint64_t seen)
{
    for (int spin = 0; spin < SPINS; spin++) {
        uint64_t start = atomic_load(&t->start);
        if (start != seen || atomic_load(&t->over))
            return start;
        if (spin >= LOOKS)
            relax();
    }
    atomic_fetch_add(&t->sleepers, 1);
    for (;;) { // the bell is read first: whoever rings it has started a round before
        uint32_t bell = atomic_load(&t->bell);
        if (atomic_load(&t->start) != seen || atomic_load(&t->over))
            break;
        futex(&t->bell, FUTEX_WAIT, bell);
    }
    atomic_fetch_sub(&t->sleepers, 1);
    return atomic_load(&t->start);
}

static void wake(struct threads *t)
{
    if (atomic_load(&t->sleepers) == 0)
        return;
    atomic_fetch_add(&t->bell, 1);
    futex(&t->bell, FUTEX_WAKE, INT32_MAX);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (uint64_t start = 0;;) {
        start = next_start(w->team, start);
        if (atomic_load(&w->team->over))
            return NULL;
        take_jobs(w->team, start, w->number);
    }
}

int threads_available(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

struct threads *threads_create(int n)
{
    struct threads *t = xaligned(LINES, sizeof(*t));
    t->worker = xaligned(LINES, (size_t)n * sizeof(*t->worker));
    t->n = n;
    for (int i = 0; i < n; i++) {
        struct worker *w = &t->worker[i];
        w->team = t;
        w->number = i;
        if (i > 0 && pthread_create(&w->thread, NULL, work, w) != 0) {
            t->n = i; // fewer threads do the same work
            break;
        }
    }
    return t;
}

void threads_destroy(struct threads *t)
{
    if (t == NULL)
        return;
    atomic_store(&t->over, true);
    wake(t);
    for (int i = 1; i < t->n; i++)
        pthread_join(t->worker[i].thread, NULL);
    free(t->worker);
    free(t);
}

int threads_count(const struct threads *t)
{
    return t->n;
}

static uint64_t finished(const struct threads *t)
{
    uint64_t all = 0;
    for (int i = 0; i < t->n; i++)
        all += atomic_load(&t->worker[i].finished);
    return all;
}

void threads_run(struct threads *t, int jobs, void (*job)(void *self, int number, int thread), void *self)
{
    if (jobs <= 1 || t->n == 1) {
        for (int i = 0; i < jobs; i++)
            job(self, i, 0);
        return;
    }
    assert((uint64_t)jobs <= JOBS_MASK);
    const uint64_t start = ((atomic_load(&t->start) >> JOB_BITS) + 1) << JOB_BITS | (uint64_t)jobs;
    t->job = job; // nobody reads these now: the jobs of the last round are done, and are read before one is
    t->self = self;
    t->due += (uint64_t)jobs;
    atomic_store(&t->start, start);
    wake(t);
    take_jobs(t, start, 0);
    for (int spin = 0; finished(t) < t->due; spin++)
        if (spin >= SPINS)
            sched_yield();
        else if (spin >= LOOKS)
            relax();
}
