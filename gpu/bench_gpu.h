// bench_gpu.h - what kernels (bench_gpu.c), passes (bench_passes.c) and those of a step (bench_steps.c) are measured with.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/model.h"

struct backend;

// Whose products they are. Everything else is the same code.
struct engine {
    const char *name; // "speclab", "cublas"
    struct backend *b;
    bool failed; // it was said how; it is left out from then on
};

struct model_size {
    const char *name;
    struct model_shape shape;
};

enum { MAX_ENGINES = 4, TIMES = 15 };
enum { MOST_ROWS = 64, PROMPT = 512, N_ROWS = 6 };
// Rows of passes; and of kernels, which are timed with a prompt's as well.
extern const int bench_rows[N_ROWS + 1];

// So many bytes of random blocks with small scales; free() them.
uint8_t *random_blocks(enum type type, size_t bytes);
double median_seconds(int64_t *ns, int n); // sorts them

struct stock { // what all matrices of a type are made from, on every engine
    enum type type;
    uint8_t *blocks;
    size_t bytes; // of them
};
struct stock stock_of(enum type type, const struct model_shape *s); // free() its blocks
// A matrix of its own. data NULL: the engine failed.
struct tensor matrix(struct engine *e, const struct stock *s, int64_t m, int64_t k);
// Waits for the device. false: it failed, which is said.
bool engine_well(struct engine *e);

// Of one engine, as the weights of two need not fit. few: contexts for a try on the CPU.
void passes(struct engine *e, const struct model_size *of, enum type type, bool few);

// argv: the words behind `steps`. Answers the exit status.
int bench_steps(int argc, char **argv);
