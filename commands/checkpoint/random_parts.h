// random_parts.h - shared by random_model.c and random_head.c; private to them.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;
struct part;

struct random_tensor {
    bool vector; // of ones, in F32
    int64_t rows, width;
    float deviation; // of its numbers; 0: 0.02
};
uint64_t random_tensor_stream(uint64_t seed, size_t tensor); // the seed of a tensor's numbers
bool random_tensor_write(const struct random_tensor *t, enum type type, uint64_t stream, struct part *to,
                         struct error *err);
