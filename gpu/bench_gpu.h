// bench_gpu.h - shared by the benchmarks (bench_gpu.c) of kernels (bench_kernels.c), passes (bench_passes.c) and steps (bench_steps.c).
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
    bool graphs; // CUDA graphs, not given up so far
};

struct model_size {
    const char *name;
    struct model_shape shape;
};

enum { MAX_ENGINES = 4, TIMES = 15 };
enum { MAX_PASS_ROWS = 64, PROMPT = 512, MAX_LIST = 8 };

struct plan { // what to measure; lists of names are separated by commas
    const char *devices, *models, *types;
    int n_rows, n_contexts, rows[MAX_LIST], contexts[MAX_LIST];
    bool quick; // small shapes and contexts, to try it on the CPU
};

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

bool takes(const struct engine *e, enum type type); // cuBLAS takes bf16 weights only
// What follows an engine's name, for work that was queued as a graph or without.
const char *manner(const struct engine *e, bool graph);

// Times the products of a model's layer and head.
void kernels(struct engine *engine, int n, const struct model_size *of, enum type type, const struct plan *p);
// Times passes of one engine, as the weights of two may not fit.
void passes(struct engine *e, const struct model_size *of, enum type type, const struct plan *p);
// Launches "matmul" or "attend" of the 8B shape a few times. false: it failed, as printed.
bool run_once(struct engine *e, const char *what);

// argv: the arguments after `steps`. Returns the exit status.
int bench_steps(int argc, char **argv);
