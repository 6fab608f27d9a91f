// isa.h - the inner loops of each instruction set that this processor can use.
#pragma once
#include "kernels/cpu/matmul_kernels.h"

struct attention_kernels;
struct row_kernels;

struct cpu_kernels { // the inner loops for one instruction set
    const char *name;
    const struct row_kernels *rows;            // row_kernels.h
    const struct attention_kernels *attention; // attention_kernels.h
    const struct matmul_row_kernels *matmul_rows;
    const struct matmul_kernels
        *matmul[ROUNDINGS]; // indexed by the rounding of the rows; NULL: this instruction set has none for it
};

// isa NULL: the fastest. Returns NULL if the processor does not support it, or no instruction set has that name.
const struct cpu_kernels *cpu_kernels_choose(const char *isa);
