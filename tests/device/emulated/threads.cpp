// threads.cpp - the scheduler of the threads of a block or a cluster.
//
// Ready threads are taken from the end of the queue (so that a warp advances as far as possible) or, for some blocks, from the front
// (so that all warps advance evenly). Threads that become ready together are added in order, in reverse order or shuffled.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"

inline namespace emulated_gpu
{

struct gpu g;
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
int emulated_lane;
uint8_t *emulated_shared;

const char *wait_name(enum emulated_wait w)
{
    static const char *const name[] = {
        "nothing",         "__syncthreads", "a cluster's barrier", "arrival_wait", "__syncwarp", "__shfl_sync",
        "__shfl_xor_sync", "__ballot_sync", "__any_sync",          "mma",          "warp_tree",  "ldmatrix",
    };
    return name[w];
}

void die(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    fflush(stdout);
    fprintf(stderr, "emulated GPU: ");
    if (g.running)
        fprintf(stderr, "%s, block (%u, %u, %u): ", g.kernel, blockIdx.x, blockIdx.y, blockIdx.z);
    vfprintf(stderr, format, a);
    fprintf(stderr, "\n");
    va_end(a);
    abort();
}

static void deadlock(void)
{
    int first[EMULATED_MATRICES + 1], count[EMULATED_MATRICES + 1] = {};
    for (int t = g.n - 1; t >= 0; t--) {
        const enum emulated_wait w = g.thread[t].waits;
        first[w] = t;
        count[w]++;
    }
    fflush(stdout);
    for (int w = EMULATED_NONE + 1; w <= EMULATED_MATRICES; w++) {
        if (count[w] == 0)
            continue;
        const struct thread *t = &g.thread[first[w]];
        fprintf(stderr, "emulated GPU: %d of %d threads wait in %s, the first (%u, %u, %u)", count[w], g.n,
                wait_name((enum emulated_wait)w), t->index.x, t->index.y, t->index.z);
        if (w >= EMULATED_SYNC)
            fprintf(stderr, ", lane %d of warp %d, with mask %08x", t->lane, t->warp, g.warp[t->warp].mask[t->lane]);
        fprintf(stderr, "\n");
    }
    const int ended = count[EMULATED_NONE];
    if (ended)
        fprintf(stderr, "emulated GPU: %d of %d threads have ended\n", ended, g.n);
    die("deadlock: threads wait for others that never reach the same operation with the same mask");
}

static inline struct thread *ready_take(void)
{
    if (g.front == g.end)
        deadlock();
    return &g.thread[g.ready[(g.fifo ? g.front++ : --g.end) % MAX_THREADS]];
}

static inline void thread_enter(struct thread *t)
{
    g.now = t;
    threadIdx = t->index;
    emulated_lane = t->lane;
    blockIdx.x = g.first.x + (unsigned)t->block;
    emulated_shared = g.block[t->block].shared;
}

void thread_wait(struct thread *t, enum emulated_wait what)
{
    t->waits = what;
    t->stack = g.current;
    struct thread *next = ready_take();
    g.now = next;
    stack_switch(next->stack ? next->stack : stack_free());
    thread_enter(t);
    t->stack = NULL;
}

void run_threads(void)
{
    for (;;) {
        struct thread *t = g.now; // not started
        thread_enter(t);
        g.body(g.p);
        thread_ended(t);
        struct stack *to = &g.host;
        if (g.active) {
            g.now = ready_take();
            if (!g.now->stack)
                continue;
            to = g.now->stack;
        }
        g.free[g.free_count++] = g.current;
        stack_switch(to);
    }
}

void threads_begin(void)
{
    g.now = ready_take();
    g.current = &g.host;
    stacks_enter();
    stack_switch(stack_free());
    stacks_leave();
    g.now = NULL;
}

} // namespace emulated_gpu
