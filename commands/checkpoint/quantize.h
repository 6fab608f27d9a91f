// quantize.h - writes a checkpoint whose matrices have a given type (core/quantize.h).
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
