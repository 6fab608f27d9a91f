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

// An idle thread polls without pausing, then with pauses, and then sleeps: after 50 to 200 us, depending on the length
// of a pause.
enum { POLLS = 300, SPINS = 4000 };
enum { JOB_BITS = 24, LINE_PAIR = 128 }; // LINE_PAIR: bytes that processors prefetch together (two cache lines)
#define JOBS_MASK (((uint64_t)1 << JOB_BITS) - 1)

// Data that threads exchange is in separate cache lines, since moving a line between processors takes as long as some
// hundred operations: a round costs one transfer with the work, and one back.
//
// The jobs of a round are divided into ranges, one per thread (threads_first). A thread that has done its own jobs
// steals from the others. A range's ticket counts the jobs that were taken from it: (round << JOB_BITS | taken).
// Tickets are not reset for a round: a ticket of an earlier round means that no job was taken yet. Taking a job is one
// compare-and-swap, which fails if the round has changed, so a thread that slept through a round cannot touch the work
// of the next.
struct worker {
    _Alignas(LINE_PAIR) _Atomic uint64_t ticket;
    _Alignas(LINE_PAIR) _Atomic uint64_t finished; // total number of jobs; written by this thread only
    _Alignas(LINE_PAIR) struct threads *pool;
    pthread_t thread;
    int number;
};

struct threads {
    int n, owners;
    struct worker *worker; // (n) the caller's is the first
    uint64_t total;        // number of jobs of all rounds so far

    _Alignas(LINE_PAIR) _Atomic uint64_t start; // (round << JOB_BITS | jobs)
    void (*job)(void *self, int number, int thread);
    void *self;
    _Atomic bool stop;

    _Alignas(LINE_PAIR) _Atomic int sleepers;
    _Atomic uint32_t wakeups; // the futex that sleepers wait on
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); // `yield` does nothing on most processors
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

// Takes the next of the `count` jobs in the range of w. Returns -1 if none is left, or the round has changed.
static int take(struct worker *w, uint64_t start, int count)
{
    const uint64_t round = start & ~JOBS_MASK;
    uint64_t ticket = atomic_load(&w->ticket);
    for (;;) {
        const uint64_t taken = (ticket & ~JOBS_MASK) == round ? ticket & JOBS_MASK : 0;
        if ((ticket & ~JOBS_MASK) > round || taken >= (uint64_t)count)
            return -1;
        if (atomic_compare_exchange_weak(&w->ticket, &ticket, round | (taken + 1)))
            return (int)taken;
    }
}

static void take_jobs(struct threads *t, uint64_t start, int thread)
{
    const int jobs = (int)(start & JOBS_MASK);
    uint64_t finished = 0;
    for (int k = 0; k < t->n; k++) {
        const int owner = (thread + k) % t->n, first = threads_first(t, jobs, owner);
        const int count = threads_first(t, jobs, owner + 1) - first;
        for (int i; (i = take(&t->worker[owner], start, count)) >= 0; finished++)
            t->job(t->self, first + i, thread);
    }
    if (finished > 0)
        atomic_fetch_add(&t->worker[thread].finished, finished);
}

static uint64_t next_start(struct threads *t, uint64_t seen)
{
    for (int spin = 0; spin < SPINS; spin++) {
        uint64_t start = atomic_load(&t->start);
        if (start != seen || atomic_load(&t->stop))
            return start;
        if (spin >= POLLS)
            relax();
    }
    atomic_fetch_add(&t->sleepers, 1);
    for (;;) { // wakeups is read first: it is incremented after a round has started
        uint32_t wakeups = atomic_load(&t->wakeups);
        if (atomic_load(&t->start) != seen || atomic_load(&t->stop))
            break;
        futex(&t->wakeups, FUTEX_WAIT, wakeups);
    }
    atomic_fetch_sub(&t->sleepers, 1);
    return atomic_load(&t->start);
}

static void wake(struct threads *t)
{
    if (atomic_load(&t->sleepers) == 0)
        return;
    atomic_fetch_add(&t->wakeups, 1);
    futex(&t->wakeups, FUTEX_WAKE, INT32_MAX);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (uint64_t start = 0;;) {
        start = next_start(w->pool, start);
        if (atomic_load(&w->pool->stop))
            return NULL;
        take_jobs(w->pool, start, w->number);
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
    struct threads *t = xaligned(LINE_PAIR, sizeof(*t));
    t->worker = xaligned(LINE_PAIR, (size_t)n * sizeof(*t->worker));
    t->n = n;
    t->owners = 1;
    for (int i = 0; i < n; i++) {
        struct worker *w = &t->worker[i];
        w->pool = t;
        w->number = i;
        if (i > 0 && pthread_create(&w->thread, NULL, work, w) != 0) {
            t->n = i; // continue with fewer threads
            break;
        }
    }
    return t;
}

struct threads *threads_share(struct threads *t)
{
    t->owners++;
    return t;
}

void threads_destroy(struct threads *t)
{
    if (t == NULL || --t->owners > 0)
        return;
    atomic_store(&t->stop, true);
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
    t->job =
        job; // not read concurrently: threads read these before they take a job, and all jobs of the last round are
             // done
    t->self = self;
    t->total += (uint64_t)jobs;
    atomic_store(&t->start, start);
    wake(t);
    take_jobs(t, start, 0);
    for (int spin = 0; finished(t) < t->total; spin++)
        if (spin >= SPINS)
            sched_yield();
        else if (spin >= POLLS)
            relax();
}
