// random_parts.h - what random_model.c and random_head.c share; for nobody else.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;
struct part;

struct made_tensor {
    bool vector; // of ones, in F32
    int64_t rows, width;
};
uint64_t made_stream(uint64_t seed, size_t tensor); // where the numbers of the so-many-th tensor come from
bool made_put(const struct made_tensor *t, enum type type, uint64_t stream, struct part *to, struct error *err);
