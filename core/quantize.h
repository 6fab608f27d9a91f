// quantize.h - converts floats to the block formats of GGUF.
//
// Q8_0 and Q4_0 equal ggml's reference byte for byte (quantize_row_q8_0_ref, quantize_row_q4_0_ref), BF16 equals its
// ggml_compute_fp32_to_bf16, MXFP4 equals gguf-py's; tests/formats/test_quantize.c compares with gguf-py. IQ4_NL and
// IQ4_XS are made without llama.cpp's search for better scales; they are for models with random weights.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

// The type to which matrices of floats are quantized as they are loaded (models/tensor_loading.h).
enum quantize { QUANTIZE_NONE, QUANTIZE_Q8_0, QUANTIZE_Q4_0 };
#define QUANTIZE_CHOICES "none|q8_0|q4_0"

// The types to which quantize_floats converts.
#define CONVERTED_CHOICES "q4_0|q8_0|bf16|f32|iq4_nl|iq4_xs|mxfp4"
// Converts n numbers, a multiple of the block size. Returns false if a number or a block's scale is not finite in that
// type.
bool quantize_floats(enum type type, const float *x, int64_t n, void *to);
