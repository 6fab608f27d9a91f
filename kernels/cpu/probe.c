// probe.c - sums up a large buffer, piece by piece, on all threads, several times.
#include "kernels/cpu/probe.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/cpu/threads.h"

enum { MAX_PASSES = 99, PIECE = 1 << 22 };

typedef uint64_t lanes __attribute__((vector_size(64)));

struct reading {
    unsigned char *at; // (pieces * PIECE)
    uint64_t *sum;     // (pieces) so that nothing can be left out
};

static void fill(void *self, int number, int thread)
{
    (void)thread;
    struct reading *r = self;
    memset(r->at + (size_t)number * PIECE, number + 1, PIECE);
}

// Four sums side by side keep several lines in flight.
static void sum(void *self, int number, int thread)
{
    (void)thread;
    struct reading *r = self;
    const lanes *v = (const lanes *)(r->at + (size_t)number * PIECE);
    lanes s[4] = { { 0 } };
    for (size_t i = 0; i < PIECE / sizeof(lanes); i += 4)
        for (size_t k = 0; k < 4; k++)
            s[k] += v[i + k];
    s[0] += s[1] + s[2] + s[3];
    uint64_t all = 0;
    for (size_t k = 0; k < sizeof(lanes) / sizeof(uint64_t); k++)
        all += s[0][k];
    r->sum[number] = all;
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

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct probe probe_read_bandwidth(int threads)
{
    struct probe p = { .bytes = modest_share(), .threads = threads > 0 ? threads : threads_available() };
    struct reading r = { 0 };
    void *at =
        p.bytes > 0 ? mmap(NULL, p.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    struct threads *t = at != MAP_FAILED ? threads_create(p.threads) : NULL;
    if (t == NULL) {
        if (at != MAP_FAILED)
            munmap(at, p.bytes);
        return p;
    }
    int pieces = (int)(p.bytes / PIECE);
    madvise(at, p.bytes, MADV_HUGEPAGE);
    r.at = at;
    r.sum = malloc((size_t)pieces * sizeof(*r.sum));
    if (r.sum != NULL) {
        double seconds[MAX_PASSES], from = now();
        threads_run(t, pieces, fill, &r);
        for (from = now(); p.passes < MAX_PASSES && (p.passes < 3 || now() - from < 0.7); p.passes++) {
            double began = now();
            threads_run(t, pieces, sum, &r);
            seconds[p.passes] = now() - began;
        }
        qsort(seconds, (size_t)p.passes, sizeof(*seconds), ascending);
        p.bytes_per_second = (double)p.bytes / seconds[p.passes / 2];
    }
    free(r.sum);
    threads_destroy(t);
    munmap(at, p.bytes);
    return p;
}
