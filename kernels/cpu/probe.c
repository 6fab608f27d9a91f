// probe.c - sums up a large buffer, piece by piece, on all threads, several times.
#include "kernels/cpu/probe.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/clock.h"
#include "core/memory.h"
#include "kernels/cpu/threads.h"

// Two streams of one page's size each, and lines asked for well before they are summed, came out fastest on an Emerald
// Rapids guest: 26 to 27 GB/s with two threads, where a plain loop had 23 to 25 (probes of the same minute).
enum { MAX_PASSES = 99, PIECE = 1 << 22, STREAMS = 2, AHEAD = 4096, LINE = 64, LINES = 4 };

typedef uint64_t lanes __attribute__((vector_size(LINE)));

struct prober {
    unsigned char *at; // (pieces * PIECE)
    uint64_t *sum;     // (pieces) so that nothing can be left out
    size_t bytes;
    struct threads *all, *one;
};

static void fill(void *self, int number, int thread)
{
    (void)thread;
    struct prober *p = self;
    memset(p->at + (size_t)number * PIECE, number + 1, PIECE);
}

// Several sums side by side keep lines in flight. Asking for lines behind the buffer's end does no harm.
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

// The number that follows a word in a file of the kernel's, 0 if there is none.
static unsigned long long number_in(const char *path, const char *word)
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

// What may be taken without anyone noticing: a quarter of what is free, to the machine and to our control group.
static size_t modest_share(void)
{
    unsigned long long free_bytes = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    unsigned long long most = number_in("/sys/fs/cgroup/memory.max", ""),
                       used = number_in("/sys/fs/cgroup/memory.current", "");
    if (most > 0 && (free_bytes == 0 || most - used < free_bytes))
        free_bytes = most > used ? most - used : 0;
    unsigned long long share = free_bytes / 4 < 1ULL << 30 ? free_bytes / 4 : 1ULL << 30;
    return (size_t)share / PIECE * PIECE;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct prober *prober_create(int threads)
{
    size_t bytes = modest_share();
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
    struct probe got = { .bytes = p->bytes, .threads = threads_count(t) };
    double pass[MAX_PASSES], from = clock_seconds();
    for (; got.passes < MAX_PASSES && (got.passes < 3 || clock_seconds() - from < seconds); got.passes++) {
        double began = clock_seconds();
        threads_run(t, (int)(p->bytes / PIECE), sum, p);
        pass[got.passes] = clock_seconds() - began;
    }
    qsort(pass, (size_t)got.passes, sizeof(*pass), ascending);
    got.bytes_per_second = (double)p->bytes / pass[0];
    got.median = (double)p->bytes / pass[got.passes / 2];
    return got;
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
    struct probe got = prober_read(p, threads, 0.7);
    prober_destroy(p);
    return got;
}
