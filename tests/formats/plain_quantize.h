// plain_quantize.h - numbers into GGUF's blocks, plainly: one scale by the largest magnitude, then round to nearest.
//
// llama.cpp searches for better scales; any valid blocks will do here, as what is tested is how they are read.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

void quantize_row(enum type type, const float *x, int64_t n, void *to); // n is a whole number of blocks
