// gpu.h - the GPU that is not there, as its own files know it: the block that runs now, its threads and their stacks.
//
// The idea: a stack runs one thread after another for as long as they end. One that has to wait keeps the stack it is
// on, and whoever is ready goes on instead: on the stack it kept, or, if it has not begun, on a fresh one. So threads
// that never wait cost no switch, and one that waits costs one, straight to the next. The last to come to a barrier or
// an exchange works out the answer for all and makes the others ready.
#pragma once
#include <cuda_runtime.h>

#if !defined(__x86_64__) && !defined(EMULATED_UCONTEXT)
#define EMULATED_UCONTEXT
#endif
#if defined(EMULATED_UCONTEXT)
#include <ucontext.h>
#endif

inline namespace emulated_gpu
{

enum { WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP };

struct stack {
    uint8_t *bottom;
    size_t bytes;
#if defined(EMULATED_UCONTEXT)
    ucontext_t context;
#else
    void *sp;
#endif
    void *fake; // what AddressSanitizer keeps of it while it does not run
};

struct thread {
    uint3 index;
    int lane, warp;
    struct stack *stack; // it waits on; NULL: it has not begun
    enum emulated_wait waits;
};

struct warp {
    unsigned alive, waiting; // lanes; waiting: within the warp
    // Of the lanes that wait:
    unsigned mask[WARP];
    enum emulated_wait what[WARP];
    uint64_t x[WARP];
    int source[WARP];
    // Of those that have waited:
    uint64_t answer[WARP];
};

struct gpu {
    // The launch.
    const char *kernel;
    void (*body)(void *p);
    void *p;
    bool running;
    int64_t kernels; // that have run
    // The block: n threads.
    int n, warps, alive, at_barrier, votes;
    enum emulated_wait barrier; // what those at_barrier wait in
    int answer;                 // of the last barrier
    struct thread thread[MAX_THREADS];
    struct warp warp[MAX_WARPS];
    struct thread *now;
    // Who is ready: from front to end, around. And how they are put in.
    uint16_t ready[MAX_THREADS];
    unsigned front, end;
    bool evenly; // taken from the front
    int flip;    // lane i of an order is lane i ^ flip
    uint8_t warp_order[MAX_WARPS];
    uint64_t random;
    // Stacks: that of the host, and the free ones.
    struct stack host, *current, *left;
    struct stack *free[MAX_THREADS + 1];
    int free_count, stacks;
    size_t shared_bytes;
};
extern struct gpu g;

[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);
const char *wait_name(enum emulated_wait w);

// ---- stacks.cpp

struct stack *stack_free(void); // one that nobody waits on
void stack_switch(struct stack *to);

// ---- threads.cpp

inline void ready_put(int thread)
{
    g.ready[g.end++ % MAX_THREADS] = (uint16_t)thread;
}

// In the order of the block: the threads that keep() wants.
template <typename F> inline void ready_put_all(F keep)
{
    for (int w = 0; w < g.warps; w++)
        for (int i = 0; i < WARP; i++) {
            const int t = g.warp_order[w] * WARP + (i ^ g.flip);
            if (t < g.n && keep(&g.thread[t]))
                ready_put(t);
        }
}

void threads_begin(void);                                    // all that are ready, until all have ended
void thread_wait(struct thread *t, enum emulated_wait what); // lets others go on until somebody makes it ready
[[noreturn]] void run_threads(void);                         // what a stack does

// ---- waits.cpp

void waits_without(struct thread *t); // it has ended: those that wait for it need not wait any longer

// ---- copies.cpp

void copies_init(int64_t block); // none is on its way

// ---- numbers.cpp

struct mma { // what a lane brings to the instruction
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};
// d (16, 8) += a (16, 16) b (16, 8), in the order of k, from the fragments of all 32 lanes.
void warp_mma(struct warp *w);

} // namespace emulated_gpu
