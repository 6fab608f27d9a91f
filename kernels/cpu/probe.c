// probe.c - read bandwidth, the round-trip time of a cache line between two processors, and peak rates of multiply-add.
#include "kernels/cpu/probe.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/clock.h"
#include "core/memory.h"
#include "kernels/cpu/threads.h"

#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(PLAIN_LOOPS_ALONE)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

// ---- read bandwidth: sums a large buffer on all threads, several times

// Two streams of one huge page each and prefetching well ahead were the fastest variant on an Emerald Rapids guest: 26
// to 27 GB/s with two threads, against 23 to 25 of a plain loop (measured in the same minute).
enum { MAX_PASSES = 99, PIECE = 1 << 22, STREAMS = 2, AHEAD = 4096, LINE = 64, LINES = 4 };

typedef uint64_t lanes __attribute__((vector_size(LINE)));

struct prober {
    unsigned char *at; // (pieces * PIECE)
    uint64_t *sum;     // (pieces) keeps reads from being optimised away
    size_t bytes;
    struct threads *all, *one;
};

static void fill(void *self, int number, int thread)
{
    (void)thread;
    struct prober *p = self;
    memset(p->at + (size_t)number * PIECE, number + 1, PIECE);
}

// Several independent sums keep lines in flight. A prefetch beyond the end of the buffer is harmless.
static void sum(void *self, int number, int thread)
{
    (void)thread;
    struct prober *p = self;
    const unsigned char *from = p->at + (size_t)number * PIECE;
    lanes s[LINES] = { { 0 } };
    for (size_t i = 0; i < PIECE / STREAMS; i += LINES * LINE)
        for (size_t stream = 0; stream < STREAMS; stream++) {
            const unsigned char *at = from + stream * (PIECE / STREAMS) + i;
            for (size_t k = 0; k < LINES; k++) {
                __builtin_prefetch((const void *)((uintptr_t)at + AHEAD + k * LINE), 0, 2);
                s[k] += *(const lanes *)(at + k * LINE);
            }
        }
    s[0] += s[1] + s[2] + s[3];
    uint64_t all = 0;
    for (size_t k = 0; k < LINE / sizeof(uint64_t); k++)
        all += s[0][k];
    p->sum[number] = all;
}

// Returns the number after `word` in a file of /proc or /sys; 0: not found.
static unsigned long long read_number(const char *path, const char *word)
{
    unsigned long long v = 0;
    char line[256];
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, word, strlen(word)) == 0 && sscanf(line + strlen(word), "%llu", &v) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return v;
}

size_t probe_memory(void)
{
    unsigned long long free_bytes = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    unsigned long long max = read_number("/sys/fs/cgroup/memory.max", ""),
                       used = read_number("/sys/fs/cgroup/memory.current", "");
    if (max > 0 && (free_bytes == 0 || max - used < free_bytes))
        free_bytes = max > used ? max - used : 0;
    return (size_t)free_bytes;
}

// Returns the size of the buffer: a quarter of the free memory, at most 1 GiB.
static size_t probe_size(void)
{
    const size_t share = probe_memory() / 4, most = (size_t)1 << 30;
    return (share < most ? share : most) / PIECE * PIECE;
}

struct prober *prober_create(int threads)
{
    size_t bytes = probe_size();
    void *at = bytes > 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_HUGEPAGE);
    struct prober *p = xcalloc(1, sizeof(*p));
    p->at = at;
    p->bytes = bytes;
    p->sum = xcalloc(bytes / PIECE, sizeof(*p->sum));
    p->one = threads_create(1);
    p->all = threads_create(threads > 0 ? threads : threads_available());
    threads_run(p->all, (int)(bytes / PIECE), fill, p);
    return p;
}

struct probe prober_read(struct prober *p, int threads, double seconds)
{
    struct threads *t = threads == 1 ? p->one : p->all;
    struct probe result = { .bytes = p->bytes, .threads = threads_count(t) };
    double least = INFINITY, from = clock_seconds();
    for (; result.passes < MAX_PASSES && (result.passes < 3 || clock_seconds() - from < seconds); result.passes++) {
        double start = clock_seconds();
        threads_run(t, (int)(p->bytes / PIECE), sum, p);
        least = fmin(least, clock_seconds() - start);
    }
    result.bytes_per_second = (double)p->bytes / least;
    return result;
}

void prober_destroy(struct prober *p)
{
    if (p == NULL)
        return;
    threads_destroy(p->one);
    threads_destroy(p->all);
    munmap(p->at, p->bytes);
    free(p->sum);
    free(p);
}

struct probe probe_read_bandwidth(int threads)
{
    struct prober *p = prober_create(threads);
    if (p == NULL)
        return (struct probe){ .threads = threads > 0 ? threads : threads_available() };
    struct probe result = prober_read(p, threads, 0.7);
    prober_destroy(p);
    return result;
}

// ---- round-trip time

// Whether two virtual processors share a cache decides the cost of synchronising threads, and a guest cannot query it;
// the round-trip time shows it.
enum { ROUND_TRIPS = 5000, PING_PONGS = 40 };
#define TIME_LIMIT 2.0 // seconds

struct ping_pong {
    _Alignas(128) _Atomic int counter; // the counter is odd: the responder increments it next
    _Alignas(128) _Atomic bool ready, stop;
    int processor; // the responder's processor
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

// Returns seconds per round trip; INFINITY: time limit exceeded.
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
    for (int try = 0; try < PING_PONGS && clock_seconds() < end; try++)
        shortest = fmin(shortest, run_ping_pong(processor[1], end));
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    return isfinite(shortest) ? shortest * 1e9 : NAN;
}

// ---- peak rates of multiply-add on registers only: the bound of compute when memory costs nothing

// Each loop has enough independent sums to hide the latency of the instruction. Instruction sets are chosen at run
// time; on other processors only the plain loop is compiled.

enum { ROUNDS = 1 << 18, PEAK_RUNS = 20 };

struct loop {
    const char *kind, *isa;
    float (*run)(void); // returns the result, so that it is not optimised away
    double operations;  // operations of one run
    float *sink;        // (jobs)
};

// Each round updates all SUMS accumulators. The loop over them has a constant bound, so compilers unroll it into
// registers.
#define SUMS 12
#define LOOP(name, target_isa, vector, start, step, fold) \
    __attribute__((target(target_isa))) static float name(void) \
    { \
        vector a[SUMS]; \
        for (int k = 0; k < SUMS; k++) \
            a[k] = start; \
        for (int i = 0; i < ROUNDS; i++) \
            _Pragma("GCC unroll 12") for (int k = 0; k < SUMS; k++) step(a[k]); \
        for (int k = 1; k < SUMS; k++) \
            fold(a[0], a[k]); \
        float first; \
        __builtin_memcpy(&first, &a[0], sizeof(first)); \
        return first; \
    }

typedef float four __attribute__((vector_size(16)));

static float plain(void)
{
    four a[SUMS], x = { 0.999f, 0.999f, 0.999f, 0.999f };
    for (int k = 0; k < SUMS; k++)
        a[k] = x * (float)k;
    __asm__ volatile("" : "+m"(x));
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < SUMS; k++)
            a[k] = a[k] * x + x;
    for (int k = 1; k < SUMS; k++)
        a[0] += a[k];
    return a[0][0];
}

#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
#define FMA512(a) (a) = _mm512_fmadd_ps((a), _mm512_set1_ps(0.999f), _mm512_set1_ps(0.5f))
#define DOT_BF16(a) \
    (a) = _mm512_dpbf16_ps((a), (__m512bh)_mm512_set1_epi32(0x3f003f00), (__m512bh)_mm512_set1_epi32(0x3e803e80))
#define DOT_INT8(a) (a) = _mm512_dpbusd_epi32((a), _mm512_set1_epi8(3), _mm512_set1_epi8(-2))
#define ADD512(a, b) (a) = _mm512_add_ps((a), (b))
#define ADD512I(a, b) (a) = _mm512_add_epi32((a), (b))
#define FMA256(a) (a) = _mm256_fmadd_ps((a), _mm256_set1_ps(0.999f), _mm256_set1_ps(0.5f))
#define DOT256(a) (a) = _mm256_dpbusd_avx_epi32((a), _mm256_set1_epi8(3), _mm256_set1_epi8(-2))
#define ADD256(a, b) (a) = _mm256_add_ps((a), (b))
#define ADD256I(a, b) (a) = _mm256_add_epi32((a), (b))

LOOP(f32_avx512, "avx512f", __m512, _mm512_set1_ps((float)k), FMA512, ADD512)
LOOP(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_set1_ps((float)k), DOT_BF16, ADD512)
LOOP(int8_avx512, "avx512f,avx512vnni", __m512i, _mm512_set1_epi32(k), DOT_INT8, ADD512I)
LOOP(f32_avx2, "avx2,fma", __m256, _mm256_set1_ps((float)k), FMA256, ADD256)
LOOP(int8_avx2vnni, "avx2,avxvnni", __m256i, _mm256_set1_epi32(k), DOT256, ADD256I)

// Without byte dot products, as for weights of 4 bits, pairs of products are summed in sixteen bits eight times, then
// widened.
__attribute__((target("avx2"))) static float int8_avx2(void)
{
    enum { SHORT_SUMS = SUMS / 2, STEPS = 8 };
    __m256i a[SHORT_SUMS], s[SHORT_SUMS], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-2);
    for (int k = 0; k < SHORT_SUMS; k++)
        a[k] = s[k] = _mm256_setzero_si256();
    for (int i = 0; i < ROUNDS * SUMS / SHORT_SUMS / STEPS; i++) {
        _Pragma("GCC unroll 8") for (int step = 0; step < STEPS; step++)
            _Pragma("GCC unroll 6") for (int k = 0; k < SHORT_SUMS; k++)
        {
            __asm__ volatile("" : "+x"(w)); // keeps the product from being hoisted
            const __m256i pairs = _mm256_maddubs_epi16(w, x);
            s[k] = step == 0 ? pairs : _mm256_add_epi16(s[k], pairs);
        }
        _Pragma("GCC unroll 6") for (int k = 0; k < SHORT_SUMS; k++) a[k] =
            _mm256_add_epi32(a[k], _mm256_madd_epi16(s[k], _mm256_set1_epi16(1)));
    }
    for (int k = 1; k < SHORT_SUMS; k++)
        a[0] = _mm256_add_epi32(a[0], a[k]);
    return (float)_mm256_cvtsi256_si32(a[0]);
}
#elif defined(__aarch64__) && !defined(PLAIN_LOOPS_ALONE)
#define FMA_NEON(a) (a) = vfmaq_f32((a), (a), vdupq_n_f32(-0x1p-12f))
#define ADD_NEON(a, b) (a) = vaddq_f32((a), (b))
#define DOT_NEON(a) (a) = vdotq_s32((a), vdupq_n_s8(3), vdupq_n_s8(-2))
#define ADD_NEONI(a, b) (a) = vaddq_s32((a), (b))

LOOP(f32_neon, "arch=armv8-a", float32x4_t, vdupq_n_f32((float)k), FMA_NEON, ADD_NEON)
LOOP(int8_neon_dotprod, "arch=armv8.2-a+dotprod", int32x4_t, vdupq_n_s32(k), DOT_NEON, ADD_NEONI)
#endif

static void peak_job(void *self, int number, int thread)
{
    (void)thread;
    struct loop *l = self;
    l->sink[number] = l->run();
}

static double rate(struct threads *t, struct loop *l)
{
    enum { JOBS = 256 };
    float sink[JOBS];
    int jobs = 4 * threads_count(t) < JOBS ? 4 * threads_count(t) : JOBS;
    double best = 0;
    l->sink = sink;
    for (int i = 0; i < PEAK_RUNS; i++) {
        double from = clock_seconds();
        threads_run(t, jobs, peak_job, l);
        double per_second = jobs * l->operations / (clock_seconds() - from);
        best = per_second > best ? per_second : best;
    }
    return best;
}

// Multiplications and additions of one run. elements: the size of a vector.
#define OPERATIONS(elements) (2.0 * ROUNDS * SUMS * (elements))

static int loops(struct loop to[MAX_PEAKS])
{
    int n = 0;
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        to[n++] = (struct loop){ "f32", "avx512", f32_avx512, OPERATIONS(16), NULL };
        if (__builtin_cpu_supports("avx512bf16"))
            to[n++] = (struct loop){ "bf16", "avx512", bf16_avx512, OPERATIONS(32), NULL };
        if (__builtin_cpu_supports("avx512vnni"))
            to[n++] = (struct loop){ "int8", "avx512", int8_avx512, OPERATIONS(64), NULL };
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        to[n++] = (struct loop){ "f32", "avx2", f32_avx2, OPERATIONS(8), NULL };
        to[n++] = (struct loop){ "int8", "avx2", int8_avx2, OPERATIONS(32), NULL };
        if (__builtin_cpu_supports("avxvnni"))
            to[n++] = (struct loop){ "int8", "avx2 vnni", int8_avx2vnni, OPERATIONS(32), NULL };
    }
#elif defined(__aarch64__) && !defined(PLAIN_LOOPS_ALONE)
    to[n++] = (struct loop){ "f32", "neon", f32_neon, OPERATIONS(4), NULL };
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0)
        to[n++] = (struct loop){ "int8", "neon dotprod", int8_neon_dotprod, OPERATIONS(16), NULL };
#endif
    to[n++] = (struct loop){ "f32", "plain", plain, OPERATIONS(4), NULL };
    return n;
}

int probe_peaks(int threads, struct peak to[MAX_PEAKS])
{
    struct loop l[MAX_PEAKS];
    struct threads *t = threads_create(threads > 0 ? threads : threads_available());
    int n = loops(l);
    for (int i = 0; i < n; i++)
        to[i] = (struct peak){ l[i].kind, l[i].isa, rate(t, &l[i]) };
    threads_destroy(t);
    return n;
}
