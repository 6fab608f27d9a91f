// cpu.h - what the files of the CPU backend share: cpu.c has the table and the operations on rows, matmul.c packed
// weights and products, attention in attention_kernels.c.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "kernels/backend.h"

struct arena;
struct lanes;
struct threads;

struct buffer { // grows, at a multiple of 64
    void *data;
    size_t bytes;
};

struct cpu {
    struct backend backend; // first
    const struct lanes *lanes;
    struct threads *threads;
    struct buffer *scratch; // (threads) each thread's own
    struct buffer rounded;  // a matmul's rows as it reads them
    struct buffer second;   // of gated, where it cannot be fused
    struct arena *arena;    // packed weights
    struct packed *before;  // the weight of the last matmul; NULL: none, or gone
    struct buffer views;    // attention: what each row of a pass sees, in numbers
    struct buffer partial;  // and stretches of long texts
    char description[64];
    int64_t stamp[MAX_STAMPS];
};

void *buffer_reserve(struct buffer *b, size_t bytes);

int cpu_shares(const struct cpu *c, int64_t work); // of so many floats touched; 1: not worth waking a thread for
// row(job, i, thread) for every i < rows, in cpu_shares(work) shares
void cpu_each_row(struct cpu *c, int64_t rows, int64_t work, void (*row)(void *job, int64_t i, int thread), void *job);

struct tensor cpu_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err);
void cpu_unprepare(struct backend *b, struct tensor w);
void *cpu_packed(struct backend *b, struct tensor w, size_t *bytes);
void cpu_matmul(struct backend *b, struct tensor x, const struct product *p, int count);
void cpu_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up);
void cpu_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency);
void cpu_store(struct backend *b, struct tensor q, struct tensor k, struct tensor v, struct tensor angles,
               struct tensor keys, struct tensor values, const struct layout *s);
void cpu_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                const struct layout *s, int head_dim);
