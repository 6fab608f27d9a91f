// random_tensors.h - random numbers, blocks of weights and tensors on them, for tests of operations. What a function returns here lasts until
// scratch_free(), weights too.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

struct backend;

uint64_t next(void);    // 64 random bits
void seed(uint64_t to); // all tensors that follow are made of it

void *scratch(int64_t bytes); // zeros
void scratch_free(void);
float *zeros(int64_t n);
double *doubles(int64_t n); // zeros
float *copied(const float *x, int64_t n);
int32_t *each_row(int64_t n);                                 // 0, 1, 2 ..
float *uniforms(int64_t n);                                   // in [-1, 1)
uint8_t *blocks(enum type type, int64_t rows, int64_t width); // random blocks with plausible scales
struct tensor floats(float *x, int64_t rows, int64_t width);
struct tensor prepared(struct backend *b, void *data, enum type type, int64_t rows, int64_t width, enum activations a);
