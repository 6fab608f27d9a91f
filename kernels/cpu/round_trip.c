// round_trip.c - round-trip time of a cache line between two processors.
//
// Whether two virtual processors share a cache decides the cost of synchronising threads, and a guest cannot query it; the
// round-trip time shows it.
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/clock.h"
#include "kernels/cpu/probe.h"

enum { ROUND_TRIPS = 5000, REPEATS = 40 };
#define TIME_LIMIT 2.0 // seconds

struct ping_pong {
    _Alignas(128) _Atomic int counter; // odd: the responder increments it next
    _Alignas(128) _Atomic bool ready, stop;
    int processor; // of the responder
};

static void pin_to(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *responder(void *arg)
{
    struct ping_pong *g = arg;
    pin_to(g->processor);
    atomic_store(&g->ready, true);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        while (atomic_load_explicit(&g->counter, memory_order_acquire) != 2 * i + 1)
            if (atomic_load_explicit(&g->stop, memory_order_relaxed))
                return NULL;
        atomic_store_explicit(&g->counter, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

// Reads the clock only once per 4096 polls.
static bool wait_for(struct ping_pong *g, int counter, double end)
{
    for (int polls = 1; atomic_load_explicit(&g->counter, memory_order_acquire) != counter; polls++)
        if (polls % 4096 == 0 && clock_seconds() > end)
            return false;
    return true;
}

// Seconds per round trip; INFINITY: time limit exceeded.
static double run_ping_pong(int processor, double end)
{
    struct ping_pong g = { .processor = processor };
    pthread_t thread;
    if (pthread_create(&thread, NULL, responder, &g) != 0)
        return INFINITY;
    while (!atomic_load(&g.ready) && clock_seconds() < end)
        sched_yield();
    double from = clock_seconds();
    bool complete = true;
    for (int i = 0; i < ROUND_TRIPS && complete; i++) {
        atomic_store_explicit(&g.counter, 2 * i + 1, memory_order_release);
        complete = wait_for(&g, 2 * i + 2, end);
    }
    double seconds = clock_seconds() - from;
    atomic_store(&g.stop, true);
    pthread_join(thread, NULL);
    return complete ? seconds / ROUND_TRIPS : INFINITY;
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
    double shortest = INFINITY, end = clock_seconds() + TIME_LIMIT;
    pin_to(processor[0]);
    for (int try = 0; try < REPEATS && clock_seconds() < end; try++)
        shortest = fmin(shortest, run_ping_pong(processor[1], end));
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    return isfinite(shortest) ? shortest * 1e9 : NAN;
}
