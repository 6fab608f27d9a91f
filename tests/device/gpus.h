// gpus.h - the GPUs that tests can run on: the emulated one and a real one, each with our own products and with cuBLAS's.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct backend;
struct error;

enum { MAX_GPUS_HERE = 4 };
struct gpu_here {
    const char *name; // "emulated", "emulated-cublas", "cuda", "cublas"
    struct backend *(*open)(struct error *err);
    bool emulated; // hence slow, and in the host's memory
    bool varies;   // as backend.varies: not for tests of bits
};
int gpus_here(struct gpu_here to[MAX_GPUS_HERE]); // returns their number; prints those that are not available
// Those whose bits are the same in every pass. A program's arguments [COUNT [SEED]] make a long run of it, on the emulated one only if
// there is no real one; they are stored if given (seed NULL: the program takes none).
int gpus_of_bits(struct gpu_here to[MAX_GPUS_HERE], int argc, char **argv, int *count, uint64_t *seed);
struct backend *gpu_open(const struct gpu_here *g); // fails the test on error
void gpu_close(struct backend *b);                  // fails the test if an operation failed
