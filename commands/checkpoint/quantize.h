// quantize.h - quantizes floats, and writes a checkpoint whose matrices have a given type.
//
// Q8_0 and Q4_0 equal ggml's reference byte for byte (quantize_row_q8_0_ref, quantize_row_q4_0_ref), BF16 equals its
// ggml_compute_fp32_to_bf16; tests/formats/test_quantize.c compares with gguf-py.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "commands/checkpoint/source.h"
#include "core/tensor.h"

struct backend;
struct error;
struct model_config;
struct progress_observer;

bool can_quantize_to(enum type type); // whether the type is supported: F32, BF16, Q8_0, Q4_0
// Converts n numbers, a multiple of the block size, to `type`. Returns false if a number or a block's scale is not finite
// in that type.
bool quantize_floats(enum type type, const float *x, int64_t n, void *to);

struct quantize_summary {
    int changed, same; // number of matrices converted, and of those that had the type already
    int unchanged;     // number of matrices that keep their type: their row length is not a multiple of the block size
    char *unchanged_names; // names of the first of these; NULL if there are none; free() it
    size_t before, after;  // bytes of all tensors
    struct left_out left_out;
};

// Whether a model of this configuration can be written to `to` in this type. If not, err describes a mistake in the call.
bool quantize_check_output(const struct model_config *c, enum type type, const char *to, struct error *err);

// `type`: BF16, Q8_0 or Q4_0, for every matrix; norms and biases are unchanged. A GGUF file becomes a GGUF file; a Hugging
// Face directory a directory (BF16 only) or, if `to` ends with ".gguf", a GGUF file. Any backend will do: it only
// dequantizes. `to` must not exist yet; after a failure it does not exist either.
bool quantize_model(const char *from, enum type type, const char *to, struct backend *b,
                    const struct progress_observer *observer, struct quantize_summary *done, struct error *err);
