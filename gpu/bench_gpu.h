// bench_gpu.h - shared by the benchmarks of kernels (bench_gpu.c), passes (bench_passes.c) and steps (bench_steps.c).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/model.h"

struct backend;

// The implementation of matrix products; all other code is the same.
struct engine {
    const char *name; // "speclab", "cublas"
    struct backend *b;
    bool failed; // the error was printed; it is not measured any more
};

struct model_size {
    const char *name;
    struct model_shape shape;
};

enum { MAX_ENGINES = 4, TIMES = 15 };
enum { MAX_PASS_ROWS = 64, PROMPT = 512, N_ROWS = 6 };
// Numbers of rows of passes; kernels are also timed with PROMPT rows, the last entry.
extern const int bench_rows[N_ROWS + 1];

// Random blocks with small scales; to be freed.
uint8_t *random_blocks(enum type type, size_t bytes);
double median_seconds(int64_t *ns, int n); // sorts them

struct stock { // random blocks that all matrices of a type are copied from, on every engine
    enum type type;
    uint8_t *blocks;
    size_t bytes; // of them
};
struct stock stock_of(enum type type, const struct model_shape *s); // free() its blocks
// A new matrix. data NULL: the engine failed.
struct tensor matrix(struct engine *e, const struct stock *s, int64_t m, int64_t k);
// Waits for the device. Returns false if it failed, after printing the error.
bool engine_sync(struct engine *e);

// Times passes of one engine, as the weights of two may not fit. few: small contexts, to try it on the CPU.
void passes(struct engine *e, const struct model_size *of, enum type type, bool few);

// argv: the arguments after `steps`. Returns the exit status.
int bench_steps(int argc, char **argv);
