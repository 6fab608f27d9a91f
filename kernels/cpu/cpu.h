// cpu.h - declarations that the files of the CPU backend share: cpu.c has the table, rows.c the operations on rows,
// matmul.c packed weights and products, attention.c attention and the KV cache. The arithmetic is in the *_kernels.c
// files, among which isa.c chooses by instruction set.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "kernels/backend.h"
#include "kernels/operations.h"

struct arena;
struct cpu_kernels;
struct threads;

struct buffer { // enlarged on demand; aligned to 64
    void *data;
    size_t bytes;
};

struct cpu {
    struct backend backend; // must be first
    const struct cpu_kernels *kernels;
    struct threads *threads;
    struct buffer *scratch;     // (threads) one per thread
    struct buffer rounded;      // rounded rows of a matmul
    struct buffer gated;        // workspace of gated, if it cannot be fused
    struct buffer groups;       // jobs of grouped
    struct arena *arena;        // packed weights
    struct packed *last_weight; // weight of the last matmul; NULL: none, or freed
    // Rows whose columns were divided among the threads as they were computed: each thread has its columns in its
    // caches.
    const void *by_columns;
    struct buffer positions; // positions of each row of a pass, for attention
    struct buffer partial;   // results of splits, for attention
    char description[64];
    int64_t stamp[MAX_STAMPS];
};

static inline float *at(struct tensor t, int64_t row) // a row of floats
{
    return (float *)t.data + row * t.width;
}

void *buffer_reserve(struct buffer *b, size_t bytes); // contents are lost when the buffer is enlarged

int cpu_shares(const struct cpu *c, int64_t work); // number of jobs for `work` floats touched; 1: too few for threads
// Calls row(job, i, thread) for every i < rows, in cpu_shares(work) jobs.
void cpu_each_row(struct cpu *c, int64_t rows, int64_t work, void (*row)(void *job, int64_t i, int thread), void *job);

struct tensor cpu_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err);
void cpu_unprepare(struct backend *b, struct tensor w);
void *cpu_packed(struct backend *b, struct tensor w, size_t *bytes);

#define DECLARE_VOID(name, SIGNATURE) void cpu_##name OPERATION_PARAMETERS(SIGNATURE);
#define DECLARE_VALUE(name, SIGNATURE) struct tensor cpu_##name OPERATION_PARAMETERS(SIGNATURE);
ALL_OPERATIONS(DECLARE_VOID, DECLARE_VALUE)
#undef DECLARE_VOID
#undef DECLARE_VALUE
