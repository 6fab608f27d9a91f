// probe.h - what this machine can do: how fast its memory is read, how fast it multiplies, how far apart two of its
// processors are. The bounds under which every pass of a model stays; shares of them are honest only if the bound was
// measured in the same minute, because virtual processors are moved about and memory is shared with strangers.
#pragma once
#include <stddef.h>

struct probe {
    double
        bytes_per_second; // of the fastest pass: a bound that is set too low would flatter us; 0: no memory to try it
    double median;        // of the passes
    size_t bytes;         // read in each pass, much more than caches hold where memory allows
    int threads, passes;
};

// Takes about a second. threads 0: one for each processor this process may use.
struct probe probe_read_bandwidth(int threads);

// The same again and again: the memory is taken once.
struct prober;
struct prober *prober_create(int threads); // most threads that will be asked for; 0 as above. NULL: no memory
struct probe prober_read(struct prober *p, int threads, double seconds); // 1 or all of them; at least 3 passes
void prober_destroy(struct prober *p);                                   // NULL is fine

// Nanoseconds in which a cache line goes from one thread to another and back, the least of several tries; the threads
// are kept on the first two processors that this process may use. NAN: there is only one, or it took over two seconds.
double probe_round_trip(void);

// Multiplications and additions a second with all operands in registers (round_trip.c, peaks.c): a bound for compute.
struct peak {
    const char *kind;  // what a matmul's input is rounded to: "f32", "bf16", "int8"
    const char *isa;   // "avx512", "avx2", "plain"; instructions only: peaks of several are given where there are some
    double per_second; // each product and each sum is one
};
enum { MAX_PEAKS = 8 };
int probe_peaks(int threads, struct peak to[MAX_PEAKS]); // how many; a tenth of a second
