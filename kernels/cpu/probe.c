// probe.c - read bandwidth: sums a large buffer on all threads, several times.
#include "kernels/cpu/probe.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/clock.h"
#include "core/memory.h"
#include "kernels/cpu/threads.h"

// Two streams of one huge page each and prefetching well ahead were the fastest variant on an Emerald Rapids guest: 26 to
// 27 GB/s with two threads, against 23 to 25 of a plain loop (measured in the same minute).
enum { MAX_PASSES = 99, PIECE = 1 << 22, STREAMS = 2, AHEAD = 4096, LINE = 64, LINES = 4 };

typedef uint64_t lanes __attribute__((vector_size(LINE)));

struct prober {
    unsigned char *at; // (pieces * PIECE)
    uint64_t *sum;     // (pieces) so that no read is optimised away
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

// The number after `word` in a file of /proc or /sys; 0: not found.
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

// Size of the buffer: a quarter of the free memory, at most 1 GiB.
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
