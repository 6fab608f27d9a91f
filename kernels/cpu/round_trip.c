// round_trip.c - a cache line thrown from one processor to another and back.
//
// Whether two virtual processors share a cache decides what threads cost each other, and no guest is told: the time of
// a round trip tells.
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/clock.h"
#include "kernels/cpu/probe.h"

enum { TURNS = 5000, TRIES = 40 };
#define PATIENCE 2.0 // seconds

struct game {
    _Alignas(128) _Atomic int ball; // odd: the partner's turn
    _Alignas(128) _Atomic bool ready, over;
    int processor; // the partner's
};

static void stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *partner(void *arg)
{
    struct game *g = arg;
    stay_on(g->processor);
    atomic_store(&g->ready, true);
    for (int i = 0; i < TURNS; i++) {
        while (atomic_load_explicit(&g->ball, memory_order_acquire) != 2 * i + 1)
            if (atomic_load_explicit(&g->over, memory_order_relaxed))
                return NULL;
        atomic_store_explicit(&g->ball, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

// The clock is asked only while waiting has gone on for some thousand looks.
static bool wait_for(struct game *g, int ball, double end)
{
    for (int looks = 1; atomic_load_explicit(&g->ball, memory_order_acquire) != ball; looks++)
        if (looks % 4096 == 0 && clock_seconds() > end)
            return false;
    return true;
}

// Seconds of one round trip; INFINITY: it did not come to an end in time.
static double play(int processor, double end)
{
    struct game g = { .processor = processor };
    pthread_t thread;
    if (pthread_create(&thread, NULL, partner, &g) != 0)
        return INFINITY;
    while (!atomic_load(&g.ready) && clock_seconds() < end)
        sched_yield();
    double from = clock_seconds();
    bool whole = true;
    for (int i = 0; i < TURNS && whole; i++) {
        atomic_store_explicit(&g.ball, 2 * i + 1, memory_order_release);
        whole = wait_for(&g, 2 * i + 2, end);
    }
    double took = clock_seconds() - from;
    atomic_store(&g.over, true);
    pthread_join(thread, NULL);
    return whole ? took / TURNS : INFINITY;
}

double probe_round_trip(void)
{
    cpu_set_t before;
    int processor[2], n = 0;
    if (pthread_getaffinity_np(pthread_self(), sizeof(before), &before) != 0)
        return NAN;
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &before))
            processor[n++] = i;
    if (n < 2)
        return NAN;
    double least = INFINITY, end = clock_seconds() + PATIENCE;
    stay_on(processor[0]);
    for (int try = 0; try < TRIES && clock_seconds() < end; try++)
        least = fmin(least, play(processor[1], end));
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    return isfinite(least) ? least * 1e9 : NAN;
}
