// gpu.h - internals of the emulated GPU: the current block, or cluster of blocks, its threads and their stacks.
//
// A stack runs threads one after another as long as they end. A thread that has to wait keeps its stack, and the next ready thread
// runs: on the stack that it kept, or on a free one if it has not started. So threads that never wait need no switch, and a
// wait costs one switch, directly to the next thread. The last thread to reach a barrier or exchange computes the results for all and
// makes the others ready.
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

enum { WARP = 32, MAX_BLOCK = 1024, MAX_CLUSTER = 8 }; // a block's threads; a cluster's blocks
enum { MAX_THREADS = MAX_CLUSTER * MAX_BLOCK, MAX_WARPS = MAX_THREADS / WARP };

struct stack {
#if defined(EMULATED_UCONTEXT)
    ucontext_t context;
#else
    void *sp;
#endif
};

struct thread {
    uint3 index;
    int lane, warp, block; // warp, block: of the cluster
    struct stack *stack;   // that it waits on; NULL: not started
    enum emulated_wait waits;
};

struct warp {
    unsigned active, waiting; // masks of lanes; waiting: in a warp exchange
    // Per waiting lane:
    unsigned mask[WARP];
    enum emulated_wait what[WARP];
    uint64_t x[WARP];
    int source[WARP];
    // Per lane that has waited:
    uint64_t answer[WARP];
};

struct gpu {
    // The current launch.
    const char *kernel;
    void (*body)(void *p);
    void *p;
    bool running;
    int64_t kernels; // run so far
    // The current cluster: n threads in all.
    int n, warps, active, at_cluster_barrier;
    int blocks;
    bool cluster_began; // all blocks have: a barrier of the cluster was passed
    uint3 first;        // index of its first block
    struct {
        int active, at_barrier;
        uint8_t *shared; // dynamic shared memory
    } block[MAX_CLUSTER];
    struct thread thread[MAX_THREADS];
    struct warp warp[MAX_WARPS];
    struct thread *now;
    // Ready threads: a ring buffer from front to end, and the order in which threads are added.
    uint16_t ready[MAX_THREADS];
    unsigned front, end;
    bool fifo;     // taken from the front, else from the end
    int lane_flip; // position i of an order is lane i ^ lane_flip
    uint8_t warp_order[MAX_WARPS];
    uint64_t random;
    // Stacks: of the host, the current one, and the free ones.
    struct stack host, *current;
    struct stack *free[MAX_THREADS + 1];
    int free_count;
    size_t shared_bytes;
};
extern struct gpu g;

[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);
const char *wait_name(enum emulated_wait w);

// ---- stacks.cpp

struct stack *stack_free(void); // returns an unused one
void stack_switch(struct stack *to);
void stacks_enter(void); // the host calls this before it switches to one
void stacks_leave(void); // and this afterwards

// ---- threads.cpp

inline void ready_put(int thread)
{
    g.ready[g.end++ % MAX_THREADS] = (uint16_t)thread;
}

// Adds the threads for which keep() is true, in the order of the block.
template <typename F> inline void ready_put_all(F keep)
{
    for (int w = 0; w < g.warps; w++)
        for (int i = 0; i < WARP; i++) {
            const int t = g.warp_order[w] * WARP + (i ^ g.lane_flip);
            if (t < g.n && keep(&g.thread[t]))
                ready_put(t);
        }
}

// Makes ready who waits in `what`; block: only its threads, -1: all.
inline void wake(enum emulated_wait what, int block = -1)
{
    ready_put_all([=](struct thread *t) {
        if (t->waits != what || (block >= 0 && t->block != block))
            return false;
        t->waits = EMULATED_NONE;
        return true;
    });
}

void threads_begin(void);                                    // runs the ready threads until all have ended
void thread_wait(struct thread *t, enum emulated_wait what); // runs others until t is made ready
[[noreturn]] void run_threads(void);                         // main loop of a stack

// ---- waits.cpp

void thread_ended(struct thread *t); // releases threads that waited for t

// ---- copies.cpp

void copies_init(int64_t block); // discards pending copies

// ---- numbers.cpp

struct mma { // operands of a lane
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};
// d (16, 8) += a (16, 16) b (16, 8), in the order of k, from the fragments of all 32 lanes.
void warp_mma(struct warp *w);

struct tree { // operands of a lane
    void *number;
    void (*combine)(void *const numbers[WARP]);
};
void warp_combine(struct warp *w);

struct matrices { // operands of a lane
    uint32_t *to;
    const uint16_t *row;
    bool transposed;
};
void warp_load_matrices(struct warp *w);

} // namespace emulated_gpu
