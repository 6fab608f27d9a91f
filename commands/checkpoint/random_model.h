// random_model.h - writes a model of a given shape, or a head for one, with random weights, for benchmarks in which the
// generated text does not matter.
//
// The GGUF file loads in other engines as well: the architecture's tensors, matrices of one type including the embedding, and only
// the size of a vocabulary. Weights are nearly normal with a standard deviation of 0.02, as in untrained models, which
// keeps activations at the size of trained models. The embedding of a mixture of experts has a deviation of 1: otherwise what attention adds,
// which is nearly the same for all rows of a text, would choose the experts, and all rows the same. The same shape, type and seed give the same bytes.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;
struct progress_observer;

struct random_shape {
    const char *name; // "llama-1b"
    int layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    double theta;
    bool tied;
    const char *architecture;                 // NULL: llama
    int experts, experts_used, expert_hidden; // of qwen3moe
};
extern const struct random_shape random_shapes[]; // ends with { 0 }

// Whether its sizes fit each other and the type's blocks.
bool random_shape_check(const struct random_shape *s, enum type type, struct error *err);
// A shape that passes the check, and a type that can_quantize_to supports. `to` must not exist yet; after a failure it does not exist either.
bool random_model_write(const struct random_shape *s, enum type type, uint64_t seed, const char *to,
                        const struct progress_observer *observer, struct error *err);

// Writes an EAGLE-3 head for the model at `target` in the published format: a directory with config.json and
// model.safetensors, one layer of the target's shape, and a draft vocabulary of evenly spaced target ids. type: F32 or
// BF16. `to` as above.
bool random_eagle3_write(const char *target, int draft_vocab, enum type type, uint64_t seed, const char *to,
                         struct error *err);
