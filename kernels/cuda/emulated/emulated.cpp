// emulated.cpp - the GPU that is not there: fibers for the threads of a block, and the runtime's calls.
//
// The idea: a stack runs one thread after another for as long as they end. One that has to wait keeps the stack it is
// on, and whoever is ready goes on instead: on the stack it kept, or, if it has not begun, on a fresh one. So threads
// that never wait cost no switch, and one that waits costs one, straight to the next. The last to come to a barrier or
// an exchange works out the answer for all and makes the others ready.
//
// Which order: those that are ready are a queue, taken from its end (so that a warp gets as far as it can) or, for some
// blocks, from its front (so that all get on evenly). Who becomes ready together is put in forwards, backwards or
// shuffled.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#if defined(ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__) && !defined(EMULATED_UCONTEXT)
#define EMULATED_UCONTEXT
#endif
#if defined(EMULATED_UCONTEXT)
#include <ucontext.h>
#endif

inline namespace emulated_gpu
{

enum { WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP };
enum { SHARED_DEFAULT = 48 << 10, SHARED_MOST = 227 << 10 }; // bytes
#if defined(ASAN)
enum { STACK = 256 << 10 }; // bytes; its reports are written on the stack of the fiber
#else
enum { STACK = 64 << 10 };
#endif

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

struct mma { // what a lane brings
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};

struct copies { // of a thread: on their way, the oldest first
    struct copy {
        void *to;
        const void *from;
        int group;
    };
    std::deque<copy> left;
    int group; // that is open
};

static struct device {
    // The launch.
    const char *kernel;
    void (*body)(void *p);
    void *p;
    bool running;
    int64_t launches;
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
    bool copies_wait; // those of this block, until they must come
    struct copies copies[MAX_THREADS];
} g;

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
int emulated_lane;
uint8_t *emulated_shared;

static const char *wait_name(enum emulated_wait w)
{
    static const char *const name[] = {
        "nothing",
        "__syncthreads",
        "__syncthreads_or",
        "__syncthreads_and",
        "__syncthreads_count",
        "__syncwarp",
        "__shfl_sync",
        "__shfl_xor_sync",
        "__shfl_down_sync",
        "__shfl_up_sync",
        "__ballot_sync",
        "__any_sync",
        "__all_sync",
        "mma",
    };
    return name[w];
}

[[noreturn]] __attribute__((format(printf, 1, 2))) static void die(const char *format, ...)
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

// ---- stacks

static void run_threads(void);

// After coming to the current stack from g.left, which sees to it that AddressSanitizer knows.
static inline void arrived(void *fake)
{
#if defined(ASAN)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
    if (g.left == &g.host) {
        g.host.bottom = (uint8_t *)bottom;
        g.host.bytes = bytes;
    }
#else
    (void)fake;
#endif
}

[[noreturn]] static void stack_begin(void)
{
    arrived(NULL);
    run_threads();
    abort();
}

#if !defined(EMULATED_UCONTEXT)
extern "C" void emulated_switch(void **from, void *to);
// What a call keeps is pushed on the stack that is left and popped off the one that is gone to.
asm(".text\n"
    ".p2align 4\n"
    ".hidden emulated_switch\n"
    ".globl emulated_switch\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size emulated_switch, .-emulated_switch\n");
#endif

static struct stack *stack_create(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stack *s = new struct stack();
    void *at = mmap(NULL, page + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || mprotect(at, page, PROT_NONE) != 0)
        die("no memory for a stack");
    s->bottom = (uint8_t *)at + page;
    // The tops lie at different places of a page: or else they would all want the same lines of the cache.
    s->bytes = STACK - (size_t)(g.stacks++ * 5 % 32) * 64;
#if defined(EMULATED_UCONTEXT)
    getcontext(&s->context);
    s->context.uc_stack.ss_sp = s->bottom;
    s->context.uc_stack.ss_size = s->bytes;
    s->context.uc_link = NULL;
    makecontext(&s->context, stack_begin, 0);
#else
    void **top = (void **)(s->bottom + s->bytes);
    *--top = NULL; // where stack_begin would return to
    *--top = (void *)stack_begin;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    s->sp = top;
#endif
    return s;
}

static void stack_switch(struct stack *to)
{
    struct stack *const from = g.current;
    g.left = from;
    g.current = to;
#if defined(ASAN)
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
#endif
#if defined(EMULATED_UCONTEXT)
    swapcontext(&from->context, &to->context);
#else
    emulated_switch(&from->sp, to->sp);
#endif
    arrived(from->fake);
}

// ---- who is next

static inline void ready_put(int thread)
{
    g.ready[g.end++ % MAX_THREADS] = (uint16_t)thread;
}

// In the order of the block: the threads that keep() wants.
template <typename F> static inline void ready_put_all(F keep)
{
    for (int w = 0; w < g.warps; w++)
        for (int i = 0; i < WARP; i++) {
            const int t = g.warp_order[w] * WARP + (i ^ g.flip);
            if (t < g.n && keep(&g.thread[t]))
                ready_put(t);
        }
}

static void deadlock(void)
{
    int first[EMULATED_MMA + 1], count[EMULATED_MMA + 1] = {};
    for (int t = g.n - 1; t >= 0; t--) {
        const enum emulated_wait w = g.thread[t].waits;
        first[w] = t;
        count[w]++;
    }
    fflush(stdout);
    for (int w = EMULATED_NONE + 1; w <= EMULATED_MMA; w++) {
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
    die("nobody can go on: threads wait for others that never come to the same place with the same mask");
}

static inline struct thread *ready_take(void)
{
    if (g.front == g.end)
        deadlock();
    return &g.thread[g.ready[(g.evenly ? g.front++ : --g.end) % MAX_THREADS]];
}

static inline void thread_enter(struct thread *t)
{
    g.now = t;
    threadIdx = t->index;
    emulated_lane = t->lane;
}

// Lets others go on until somebody makes this thread ready.
static void thread_wait(struct thread *t, enum emulated_wait what)
{
    t->waits = what;
    t->stack = g.current;
    struct thread *next = ready_take();
    struct stack *s = next->stack;
    if (!s)
        s = g.free_count ? g.free[--g.free_count] : stack_create();
    g.now = next;
    stack_switch(s);
    thread_enter(t);
    t->stack = NULL;
}

static void thread_end(struct thread *t);

// What a stack does.
static void run_threads(void)
{
    for (;;) {
        struct thread *t = g.now; // not begun
        thread_enter(t);
        g.body(g.p);
        thread_end(t);
        struct stack *to = &g.host;
        if (g.alive) {
            g.now = ready_take();
            if (!g.now->stack)
                continue;
            to = g.now->stack;
        }
        g.free[g.free_count++] = g.current;
        stack_switch(to);
    }
}

// ---- barriers

static int barrier_answer(void)
{
    switch (g.barrier) {
    case EMULATED_BARRIER_OR:
        return g.votes > 0;
    case EMULATED_BARRIER_AND:
        return g.votes == g.at_barrier;
    case EMULATED_BARRIER_COUNT:
        return g.votes;
    default:
        return 0;
    }
}

static void barrier_open(void)
{
    g.answer = barrier_answer();
    const enum emulated_wait barrier = g.barrier;
    g.at_barrier = g.votes = 0;
    g.barrier = EMULATED_NONE;
    ready_put_all([&](struct thread *t) {
        if (t->waits != barrier)
            return false;
        t->waits = EMULATED_NONE;
        return true;
    });
}

static struct thread *caller(enum emulated_wait what)
{
    if (!g.now)
        die("%s outside of a kernel", wait_name(what));
    return g.now;
}

int emulated_barrier(enum emulated_wait what, bool x)
{
    struct thread *t = caller(what);
    if (g.at_barrier && g.barrier != what)
        die("thread (%u, %u, %u) comes to %s while others wait in %s", t->index.x, t->index.y, t->index.z,
            wait_name(what), wait_name(g.barrier));
    g.barrier = what;
    g.votes += x;
    if (++g.at_barrier == g.alive)
        barrier_open();
    else
        thread_wait(t, what);
    return g.answer;
}

// ---- exchanges within a warp

int emulated_source(enum emulated_wait what, int argument, int width)
{
    if (width < 1 || width > WARP || (width & (width - 1)))
        die("%s with a width of %d", wait_name(what), width);
    const int lane = emulated_lane, first = lane & ~(width - 1), last = first + width - 1;
    int from;
    switch (what) {
    case EMULATED_SHUFFLE:
        return first | (argument & (width - 1));
    case EMULATED_SHUFFLE_XOR:
        from = lane ^ (argument & (WARP - 1));
        return from > last ? lane : from;
    case EMULATED_SHUFFLE_DOWN:
        return (unsigned)argument > (unsigned)(last - lane) ? lane : lane + argument;
    default:
        return (unsigned)argument > (unsigned)(lane - first) ? lane : lane - argument;
    }
}

static inline float from_bf16(uint32_t u)
{
    return __uint_as_float(u << 16);
}

// d (16, 8) += a (16, 16) b (16, 8), in the order of k, from the fragments of all 32 lanes.
static void warp_mma(struct warp *w)
{
    typedef float row __attribute__((vector_size(32)));
    float a[16][16];
    union {
        float x[16][8];
        row v[16];
    } b;
    union {
        float x[16][8];
        row v[16];
    } d;
    for (int lane = 0; lane < WARP; lane++) {
        const struct mma *m = (const struct mma *)(uintptr_t)w->x[lane];
        const int r = lane / 4, c = lane % 4 * 2;
        for (int i = 0; i < 4; i++) { // rows r and r + 8, columns c and c + 8
            a[r + i % 2 * 8][c + i / 2 * 8] = from_bf16(m->a[i] & 0xFFFF);
            a[r + i % 2 * 8][c + i / 2 * 8 + 1] = from_bf16(m->a[i] >> 16);
            d.x[r + i / 2 * 8][c + i % 2] = m->d[i];
        }
        for (int i = 0; i < 2; i++) {
            b.x[c + i * 8][r] = from_bf16(m->b[i] & 0xFFFF);
            b.x[c + i * 8 + 1][r] = from_bf16(m->b[i] >> 16);
        }
    }
    for (int i = 0; i < 16; i++) {
        row sum = d.v[i];
        for (int k = 0; k < 16; k++)
            sum += a[i][k] * b.v[k]; // the product is exact: fused or not is the same
        d.v[i] = sum;
    }
    for (int lane = 0; lane < WARP; lane++) {
        const struct mma *m = (const struct mma *)(uintptr_t)w->x[lane];
        for (int i = 0; i < 4; i++)
            m->d[i] = d.x[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

static void exchange_answer(struct warp *w, enum emulated_wait what, unsigned lanes)
{
    unsigned votes = 0;
    uint64_t answer = 0;
    switch (what) {
    case EMULATED_SYNC:
        return;
    case EMULATED_MMA:
        if (lanes != 0xFFFFFFFF)
            die("mma with lanes %08x only: it needs all 32", lanes);
        warp_mma(w);
        return;
    case EMULATED_BALLOT:
    case EMULATED_ANY:
    case EMULATED_ALL:
        for (unsigned l = lanes; l; l &= l - 1)
            votes |= (unsigned)w->x[__builtin_ctz(l)] << __builtin_ctz(l);
        answer = what == EMULATED_BALLOT ? votes : what == EMULATED_ANY ? votes != 0 : votes == lanes;
        for (unsigned l = lanes; l; l &= l - 1)
            w->answer[__builtin_ctz(l)] = answer;
        return;
    default:
        for (unsigned l = lanes; l; l &= l - 1) {
            const int lane = __builtin_ctz(l), source = w->source[lane];
            w->answer[lane] = lanes >> source & 1 ? w->x[source] : UINT64_MAX; // nobody's: a NaN, or -1
        }
        return;
    }
}

// If all who are left of this mask wait with it: their answers, and those but `self` are ready.
static bool exchange_complete(struct warp *w, unsigned mask, struct thread *self)
{
    const unsigned lanes = mask & w->alive;
    if ((w->waiting & lanes) != lanes)
        return false;
    const int one = __builtin_ctz(lanes);
    for (unsigned l = lanes; l; l &= l - 1) {
        const int lane = __builtin_ctz(l);
        if (w->mask[lane] != mask)
            return false; // it may come here later
        if (w->what[lane] != w->what[one])
            die("warp %d, mask %08x: lane %d waits in %s, lane %d in %s", (int)(w - g.warp), mask, one,
                wait_name(w->what[one]), lane, wait_name(w->what[lane]));
    }
    exchange_answer(w, w->what[one], lanes);
    w->waiting &= ~lanes;
    struct thread *const first = &g.thread[(w - g.warp) * WARP];
    for (int i = 0; i < WARP; i++) {
        struct thread *t = first + (i ^ g.flip);
        if (!(lanes >> (i ^ g.flip) & 1))
            continue;
        t->waits = EMULATED_NONE;
        if (t != self)
            ready_put((int)(t - g.thread));
    }
    return true;
}

uint64_t emulated_exchange(enum emulated_wait what, unsigned mask, uint64_t x, int source)
{
    struct thread *t = caller(what);
    const int lane = t->lane;
    struct warp *w = &g.warp[t->warp];
    if (!(mask >> lane & 1))
        die("lane %d of warp %d comes to %s with mask %08x, in which it is not", lane, t->warp, wait_name(what), mask);
    w->waiting |= 1u << lane;
    w->mask[lane] = mask;
    w->what[lane] = what;
    w->x[lane] = x;
    w->source[lane] = source;
    if (!exchange_complete(w, mask, t))
        thread_wait(t, what);
    return w->answer[lane];
}

void emulated_mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const struct mma m = { d, a, { b0, b1 } };
    emulated_exchange(EMULATED_MMA, 0xFFFFFFFF, (uintptr_t)&m, 0);
}

// ---- copies that a thread does not wait for

void emulated_copy_ahead(void *to, const void *from)
{
    if (((uintptr_t)to | (uintptr_t)from) % 16 != 0)
        die("cp.async of 16 bytes from %p to %p: expected multiples of 16", from, to);
    if (!g.copies_wait)
        memcpy(to, from, 16);
    else {
        struct copies &c = g.copies[g.now - g.thread];
        c.left.push_back({ to, from, c.group });
    }
}

void emulated_close_copies(void)
{
    g.copies[g.now - g.thread].group++;
}

void emulated_wait_for_copies(int but)
{
    struct copies &c = g.copies[g.now - g.thread];
    for (; !c.left.empty() && c.left.front().group < c.group - but; c.left.pop_front())
        memcpy(c.left.front().to, c.left.front().from, 16);
}

// ---- blocks

// Those that wait for it need not wait any longer.
static void thread_end(struct thread *t)
{
    struct warp *w = &g.warp[t->warp];
    w->alive &= ~(1u << t->lane);
    g.alive--;
    if (g.at_barrier && g.at_barrier == g.alive)
        barrier_open();
    for (unsigned l = w->waiting; l; l &= l - 1) {
        const int lane = __builtin_ctz(l);
        if ((w->waiting >> lane & 1) && (w->mask[lane] >> t->lane & 1))
            exchange_complete(w, w->mask[lane], NULL);
    }
}

static uint32_t random_below(uint32_t n) // enough to shuffle by
{
    g.random = g.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((g.random >> 32) * n >> 32);
}

// Of eight blocks one has its threads backwards, one forwards, and the others anyhow.
static void block_order(int64_t number)
{
    const bool backwards = number % 8 == 0, forwards = number % 8 == 4;
    g.evenly = number % 3 == 2;
    g.flip = backwards ? WARP - 1 : forwards ? 0 : (int)random_below(WARP);
    for (int w = 0; w < g.warps; w++)
        g.warp_order[w] = (uint8_t)(backwards ? g.warps - 1 - w : w);
    if (!backwards && !forwards)
        for (int w = g.warps - 1; w > 0; w--)
            std::swap(g.warp_order[w], g.warp_order[random_below((uint32_t)w + 1)]);
    if (!g.evenly) { // the last that is put in is the first that is taken
        g.flip ^= WARP - 1;
        std::reverse(g.warp_order, g.warp_order + g.warps);
    }
}

static void block_run(int64_t number)
{
    if (g.shared_bytes)
        memset(emulated_shared, 0xFF, g.shared_bytes);
    block_order(number);
    g.copies_wait = number % 2 != 0;
    for (int t = 0; t < g.n; t++)
        g.copies[t].left.clear();
    g.alive = g.n;
    for (int w = 0; w < g.warps; w++) {
        const int lanes = g.n - w * WARP;
        g.warp[w].alive = lanes >= WARP ? 0xFFFFFFFF : (1u << lanes) - 1;
        g.warp[w].waiting = 0;
    }
    g.front = g.end = 0;
    ready_put_all([](struct thread *) { return true; });
    g.now = ready_take();
    g.current = &g.host;
    stack_switch(g.free_count ? g.free[--g.free_count] : stack_create());
    g.now = NULL;
}

static void block_init(dim3 block)
{
    g.n = (int)(block.x * block.y * block.z);
    g.warps = (g.n + WARP - 1) / WARP;
    int t = 0;
    for (unsigned z = 0; z < block.z; z++)
        for (unsigned y = 0; y < block.y; y++)
            for (unsigned x = 0; x < block.x; x++, t++)
                g.thread[t] = { { x, y, z }, t % WARP, t / WARP, NULL, EMULATED_NONE };
}

// As many bytes as the launch has, so that AddressSanitizer sees one that is past them.
static void shared_init(size_t bytes)
{
    if (emulated_shared && bytes == g.shared_bytes)
        return;
    free(emulated_shared);
    void *p = NULL;
    if (posix_memalign(&p, 128, bytes) != 0)
        die("no memory for %zu bytes of shared memory", bytes);
    emulated_shared = (uint8_t *)p;
    g.shared_bytes = bytes;
}

// ---- the runtime

} // namespace emulated_gpu

struct emulated_gpu::emulated_stream {
    int64_t operations; // touched by each, so that one on a stream that was destroyed is found
};
struct emulated_gpu::emulated_event {
    double recorded; // ms; 0: never
};

inline namespace emulated_gpu
{

// Of a launch, and of what follows.
static std::mutex lock;
static std::map<const uint8_t *, size_t> memory; // the device's: where, bytes
static std::map<const void *, size_t> granted;   // dynamic shared memory, by kernel
static size_t memory_used, memory_limit = (size_t)4 << 30;
static std::atomic<int> fail_in;
static thread_local cudaError_t last;
typedef std::lock_guard<std::mutex> guard;

static cudaError_t note(cudaError_t e)
{
    if (e != cudaSuccess)
        last = e;
    return e;
}

// Every call asks first whether it is the one that is to fail.
static bool fails(void)
{
    if (fail_in.load() <= 0 || --fail_in != 0)
        return false;
    last = cudaErrorInvalidValue;
    return true;
}

static cudaError_t done(void)
{
    return fails() ? cudaErrorInvalidValue : cudaSuccess;
}

static void stream_touch(cudaStream_t s)
{
    if (s)
        s->operations++;
}

void emulated_run(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t s,
                  void (*body)(void *p), void *p)
{
    if (fails())
        return;
    stream_touch(s);
    if (g.now)
        die("%s: a kernel starts a kernel", name);
    guard held(lock);
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (threads == 0 || threads > MAX_THREADS || block.z > 64)
        die("%s: a block of (%u, %u, %u) threads: from 1 to %d, and at most 64 in z", name, block.x, block.y, block.z,
            MAX_THREADS);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT_MAX || grid.y > 65535 || grid.z > 65535)
        die("%s: a grid of (%u, %u, %u) blocks: at least 1 each, and at most 65535 in y and z", name, grid.x, grid.y,
            grid.z);
    const auto grant = granted.find(kernel);
    const size_t most = grant != granted.end() ? grant->second : (size_t)SHARED_DEFAULT;
    if (shared > most)
        die("%s: %zu bytes of dynamic shared memory, and %zu were granted (cudaFuncSetAttribute)", name, shared, most);
    g.kernel = name;
    g.body = body;
    g.p = p;
    g.running = true;
    shared_init(shared);
    block_init(block);
    blockDim = block;
    gridDim = grid;
    // Every second launch has its blocks backwards.
    const int64_t blocks = (int64_t)grid.x * grid.y * grid.z;
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t b = g.launches % 2 ? blocks - 1 - i : i;
        blockIdx = { (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y) };
        block_run(g.launches + i);
    }
    g.running = false;
    g.launches++;
}

extern "C" {
int64_t emulated_launches(void)
{
    guard held(lock);
    return g.launches;
}
void emulated_fail_next(int calls_from_now)
{
    fail_in = calls_from_now;
}
void emulated_memory_limit(size_t bytes)
{
    guard held(lock);
    memory_limit = bytes;
}
}

static const struct {
    cudaError_t e;
    const char *name, *string;
} errors[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
    { cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument" },
    { cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
      "CUDA driver version is insufficient for CUDA runtime version" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
      "no kernel image is available for execution on the device" },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
    { cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
    { cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported" },
    { cudaErrorUnknown, "cudaErrorUnknown", "unknown error" },
};

const char *cudaGetErrorName(cudaError_t e)
{
    for (const auto &known : errors)
        if (known.e == e)
            return known.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
    for (const auto &known : errors)
        if (known.e == e)
            return known.string;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    fails();
    const cudaError_t e = last;
    last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    fails();
    return last;
}

// ---- the device

cudaError_t cudaGetDeviceCount(int *count)
{
    if (fails())
        return cudaErrorInvalidValue;
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return fails() ? cudaErrorInvalidValue : note(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    if (fails())
        return cudaErrorInvalidValue;
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (device != 0)
        return note(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof(p->name), "emulated");
    p->totalGlobalMem = memory_limit;
    p->sharedMemPerBlock = SHARED_DEFAULT;
    p->sharedMemPerBlockOptin = SHARED_MOST;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 1 << 16;
    p->warpSize = WARP;
    p->maxThreadsPerBlock = MAX_THREADS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = MAX_THREADS;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = 9;
    p->multiProcessorCount = 4;
    p->l2CacheSize = 1 << 20;
    p->memoryBusWidth = 64;
    p->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    const cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess)
        return e;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p.sharedMemPerBlock;
        return cudaSuccess;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        return cudaSuccess;
    case cudaDevAttrMaxRegistersPerBlock:
        *value = p.regsPerBlock;
        return cudaSuccess;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = p.memoryBusWidth;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        return cudaSuccess;
    }
    return note(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return done();
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return done();
}

cudaError_t cudaDeviceSynchronize(void)
{
    return done();
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || value > SHARED_MOST)
        return note(cudaErrorInvalidValue);
    guard held(lock);
    granted[kernel] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int, size_t)
{
    *blocks = 2;
    return done();
}

// ---- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    if (fails())
        return cudaErrorInvalidValue;
    *s = new emulated_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return done();
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    stream_touch(s);
    return done();
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    return cudaStreamSynchronize(s);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t, unsigned)
{
    return cudaStreamSynchronize(s);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    if (fails())
        return cudaErrorInvalidValue;
    *e = new emulated_event();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return done();
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (fails())
        return cudaErrorInvalidValue;
    stream_touch(s);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->recorded = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return done();
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    return done();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (from->recorded == 0 || to->recorded == 0)
        return note(cudaErrorInvalidResourceHandle);
    *ms = (float)(to->recorded - from->recorded);
    return cudaSuccess;
}

// ---- memory

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    if (fails())
        return cudaErrorInvalidValue;
    *p = NULL;
    if (bytes == 0)
        return cudaSuccess;
    guard held(lock);
    if (bytes > memory_limit || memory_used > memory_limit - bytes || posix_memalign(p, 256, bytes) != 0)
        return note(cudaErrorMemoryAllocation);
    memset(*p, 0xFF, bytes);
    memory[(const uint8_t *)*p] = bytes;
    memory_used += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (p) {
        guard held(lock);
        const auto m = memory.find((const uint8_t *)p);
        if (m == memory.end())
            return note(cudaErrorInvalidValue);
        memory_used -= m->second;
        memory.erase(m);
        free(p);
    }
    return done();
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    guard held(lock);
    *total = memory_limit;
    *free = memory_limit > memory_used ? memory_limit - memory_used : 0;
    return done();
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    if (fails())
        return cudaErrorInvalidValue;
    *p = NULL;
    return bytes == 0 || posix_memalign(p, 4096, bytes) == 0 ? cudaSuccess : note(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **p, size_t bytes, unsigned flags)
{
    return cudaHostAlloc(p, bytes, flags);
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return done();
}

enum side { HOST, DEVICE, NEITHER }; // NEITHER: it begins in an allocation and ends outside of it

static enum side side_of(const void *p, size_t bytes)
{
    guard held(lock);
    const uint8_t *at = (const uint8_t *)p;
    auto m = memory.upper_bound(at);
    if (m == memory.begin())
        return HOST;
    --m;
    if (at >= m->first + m->second)
        return HOST;
    return bytes <= (size_t)(m->first + m->second - at) ? DEVICE : NEITHER;
}

static cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                        cudaMemcpyKind kind)
{
    if (fails())
        return cudaErrorInvalidValue;
    if ((unsigned)kind > cudaMemcpyDefault)
        return note(cudaErrorInvalidMemcpyDirection);
    if (height > 1 && (width > to_pitch || width > from_pitch))
        return note(cudaErrorInvalidPitchValue);
    if (width == 0 || height == 0)
        return cudaSuccess;
    const enum side to_side = side_of(to, to_pitch * (height - 1) + width);
    const enum side from_side = side_of(from, from_pitch * (height - 1) + width);
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (to_side == NEITHER || from_side == NEITHER ||
        (kind != cudaMemcpyDefault && ((to_side == DEVICE) != to_device || (from_side == DEVICE) != from_device)))
        return note(cudaErrorInvalidValue);
    for (size_t y = 0; y < height; y++)
        memcpy((uint8_t *)to + y * to_pitch, (const uint8_t *)from + y * from_pitch, width);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return copy(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
    stream_touch(s);
    return copy(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    stream_touch(s);
    return copy(to, to_pitch, from, from_pitch, width, height, kind);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    if (fails())
        return cudaErrorInvalidValue;
    if (bytes == 0)
        return cudaSuccess;
    if (side_of(to, bytes) != DEVICE)
        return note(cudaErrorInvalidValue);
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    stream_touch(s);
    return cudaMemset(to, value, bytes);
}

// ---- halves

float emulated_half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1F, fraction = h & 0x3FF;
    if (exponent == 0x1F)
        return __uint_as_float(sign | 0x7F800000 | fraction << 13);
    if (exponent)
        return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

uint16_t emulated_float_to_half(float x)
{
    const uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000, size = u & 0x7FFFFFFF;
    if (size > 0x7F800000)
        return 0x7FFF;
    if (size >= 0x477FF000) // 65520, half way past the largest
        return (uint16_t)(sign | 0x7C00);
    if (size < 0x38800000) // below 2^-14: in steps of 2^-24, which is what a sum with 1/2 is rounded to
        return (uint16_t)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3F000000));
    return (uint16_t)(sign | ((size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13));
}

} // namespace emulated_gpu
