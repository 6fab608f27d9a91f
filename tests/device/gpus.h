// gpus.h - the devices, besides the CPU, that tests can run on here: the emulated GPU, and a real one, each with our
// own products and with a library's.
#pragma once
#include <stdbool.h>

struct backend;
struct error;

enum { MAX_GPUS_HERE = 4 };
struct gpu_here {
    const char *name; // "emulated", "emulated-cublas", "cuda", "cublas"
    struct backend *(*open)(struct error *err);
    bool emulated; // hence slow, and in the host's memory
    bool varies;   // as backend.varies: nothing for tests of bits
};
int gpus_here(struct gpu_here to[MAX_GPUS_HERE]); // how many; says on stdout what is not on this machine
// Of those the ones whose bits are the same in every pass, for tests of the kernels that all share; if it is to take long, the
// emulated one only where there is no other.
int gpus_of_bits(struct gpu_here to[MAX_GPUS_HERE], bool long_run);
struct backend *gpu_open(const struct gpu_here *g); // or the test has failed
void gpu_close(struct backend *b);                  // which must have nothing to complain of
