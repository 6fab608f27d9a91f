#include "kernels/cpu/threads.h"

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

struct worker {
    struct threads *team;
    pthread_t thread;
    int number;
};

// A ticket is (round << 32 | next job). Taking a job is one compare-and-swap on it, which fails as soon as the round is
// another, so that a thread which slept through a round cannot touch the next one's work with the old one's numbers. A
// round ends when all its jobs are done; nobody waits for threads that took none.
struct threads {
    int n;
    _Atomic uint64_t ticket;
    _Atomic int done, sleepers;
    _Atomic uint32_t round; // what sleepers wait on
    _Atomic bool over;
    _Atomic int jobs;
    void (*job)(void *self, int number, int thread);
    void *self;
    struct worker *worker; // (n - 1)
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

static void take_jobs(struct threads *t, uint32_t round, int thread)
{
    uint64_t ticket = atomic_load(&t->ticket);
    while ((uint32_t)(ticket >> 32) == round && (int)(uint32_t)ticket < atomic_load(&t->jobs)) {
        if (!atomic_compare_exchange_weak(&t->ticket, &ticket, ticket + 1))
            continue;
        t->job(t->self, (int)(uint32_t)ticket, thread);
        atomic_fetch_add(&t->done, 1);
        ticket = atomic_load(&t->ticket);
    }
}

static uint32_t next_round(struct threads *t, uint32_t seen)
{
    for (int spin = 0; spin < SPINS; spin++) {
        uint32_t round = atomic_load(&t->round);
        if (round != seen || atomic_load(&t->over))
            return round;
        if (spin >= LOOKS)
            relax();
    }
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->round) == seen && !atomic_load(&t->over))
        futex(&t->round, FUTEX_WAIT, seen);
    atomic_fetch_sub(&t->sleepers, 1);
    return atomic_load(&t->round);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (uint32_t round = 0;;) {
        round = next_round(w->team, round);
        if (atomic_load(&w->team->over))
            return NULL;
        take_jobs(w->team, round, w->number);
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
    struct threads *t = xcalloc(1, sizeof(*t));
    t->worker = xcalloc((size_t)n, sizeof(*t->worker));
    t->n = 1;
    for (int i = 1; i < n; i++) {
        struct worker *w = &t->worker[i - 1];
        *w = (struct worker){ .team = t, .number = i };
        if (pthread_create(&w->thread, NULL, work, w) != 0)
            break; // fewer threads do the same work
        t->n++;
    }
    return t;
}

void threads_destroy(struct threads *t)
{
    if (t == NULL)
        return;
    atomic_store(&t->over, true);
    atomic_fetch_add(&t->round, 1);
    futex(&t->round, FUTEX_WAKE, INT32_MAX);
    for (int i = 0; i + 1 < t->n; i++)
        pthread_join(t->worker[i].thread, NULL);
    free(t->worker);
    free(t);
}

int threads_count(const struct threads *t)
{
    return t->n;
}

void threads_run(struct threads *t, int jobs, void (*job)(void *self, int number, int thread), void *self)
{
    if (jobs <= 1 || t->n == 1) {
        for (int i = 0; i < jobs; i++)
            job(self, i, 0);
        return;
    }
    uint32_t round = atomic_load(&t->round) + 1;
    // First a ticket that nobody can take, so that a latecomer of the old round does not meet the new round's jobs.
    atomic_store(&t->ticket, (uint64_t)round << 32 | INT32_MAX);
    t->job = job;
    t->self = self;
    atomic_store(&t->done, 0);
    atomic_store(&t->jobs, jobs);
    atomic_store(&t->ticket, (uint64_t)round << 32);
    atomic_store(&t->round, round);
    if (atomic_load(&t->sleepers) > 0)
        futex(&t->round, FUTEX_WAKE, t->n - 1);
    take_jobs(t, round, 0);
    for (int spin = 0; atomic_load(&t->done) < jobs; spin++)
        if (spin >= SPINS)
            sched_yield();
        else if (spin >= LOOKS)
            relax();
}
