// quantise.h - numbers into smaller types, and a checkpoint whose matrices have one.
//
// Q8_0 and Q4_0 are byte for byte what ggml's reference quantiser gives (quantize_row_q8_0_ref, quantize_row_q4_0_ref),
// BF16 what its ggml_compute_fp32_to_bf16 does; tests/formats/test_quantise.c compares with gguf-py.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;
struct error;
struct model_config;
struct step_observer;

bool quantise_to(enum type type); // whether there is a way to it: F32, BF16, Q8_0, Q4_0
// n numbers, a whole number of blocks, as `type`. false: one of them, or a block's scale, is not finite there.
bool quantise_row(enum type type, const float *x, int64_t n, void *to);

struct quantised {        // what became of the tensors
    int changed, same;    // matrices made anew, and those that had the type already
    int odds;             // matrices whose rows are no whole number of blocks: they stay
    char *odd;            // the names of the first of them; NULL: there are none; free() it
    size_t before, after; // bytes of all tensors
};

// Whether a model of this configuration can become `to` in this type; if not, the sentence is about the call.
bool quantise_fits(const struct model_config *c, enum type type, const char *to, struct error *err);

// `type`: BF16, Q8_0 or Q4_0, for every matrix; norms and biases stay as they are. A GGUF file becomes a GGUF file; a
// Hugging Face directory a directory (BF16 only) or, if `to` ends with ".gguf", a GGUF file. The backend, any, only
// dequantises. `to` must not exist yet; after a failure it does not exist either.
bool quantise_model(const char *from, enum type type, const char *to, struct backend *b,
                    const struct step_observer *observer, struct quantised *done, struct error *err);
