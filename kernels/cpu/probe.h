// probe.h - measures this machine: read bandwidth of its memory, peak rates of multiply-add, and the latency between
// two processors. These are bounds for every pass of a model. A share of a bound is valid only if the bound was
// measured in the same minute, because virtual processors migrate and memory bandwidth is shared with other guests.
#pragma once
#include <stddef.h>

struct probe {
    double bytes_per_second; // rate of the fastest pass, since a bound that is too low would flatter; 0: not enough
                             // memory
    size_t bytes;            // bytes read per pass; much larger than the caches if memory allows
    int threads, passes;
};

// Measures the read bandwidth, in about a second. threads 0: one for each processor this process may use.
struct probe probe_read_bandwidth(int threads);

// Returns the bytes of memory that are free to the machine and to its control group, as the kernel estimates; 0: not
// known.
size_t probe_memory(void);

// A prober repeats measurements with one allocation.
struct prober;
struct prober *prober_create(
    int threads); // maximum number of threads; 0: one for each processor. Returns NULL if memory is exhausted
// threads: 1 or all. It makes at least 3 passes.
struct probe prober_read(struct prober *p, int threads, double seconds);
void prober_destroy(struct prober *p); // p may be NULL

// Returns the round-trip time of a cache line between two threads, in nanoseconds: the minimum of several runs. The
// threads are pinned to the first two processors that this process may use. NAN: only one processor, or the runs took
// over two seconds.
double probe_round_trip(void);

// A rate of multiplications and additions with all operands in registers: a bound of compute.
struct peak {
    const char *kind;  // type of the matmul's activations: "f32", "bf16", "int8"
    const char *isa;   // "avx512", "avx2", "plain"; one entry per supported instruction set
    double per_second; // multiplications plus additions
};
enum { MAX_PEAKS = 8 };
int probe_peaks(int threads, struct peak to[MAX_PEAKS]); // returns their number; takes a tenth of a second
