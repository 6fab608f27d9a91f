// plain_quantize.h - a simple quantizer to GGUF's block formats: one scale by the largest magnitude, then round to nearest.
//
// llama.cpp searches for better scales; any valid blocks will do here, since the tests are about reading them. Types that core/quantize.h has alone
// are its.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

void plain_quantize_row(enum type type, const float *x, int64_t n, void *to); // n is a multiple of the block size
