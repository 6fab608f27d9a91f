// random_tensors.h - random numbers, blocks of weights and tensors on them, for tests of operations.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

uint64_t next(void);                                          // 64 random bits
void seed(uint64_t to);                                       // of all that follow
float *uniforms(int64_t n);                                   // in [-1, 1); free() them
uint8_t *blocks(enum type type, int64_t rows, int64_t width); // random blocks with plausible scales; free() them
struct tensor floats(float *x, int64_t rows, int64_t width);
