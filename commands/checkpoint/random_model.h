// random_model.h - a model of some shape, or a head for one, whose weights are chance: for measuring, where what it says does
// not matter.
//
// A GGUF file that other engines load as well: Llama's tensors, matrices of one type, the embedding included, and no
// vocabulary but its size. Weights are nearly normal with a standard deviation of 0.02, as untrained models have, so
// that activations stay of the size that trained ones have. The same shape, type and seed give the same bytes.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;
struct step_observer;

struct random_shape {
    const char *name; // "llama-1b"
    int layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    double theta;
    bool tied;
};
extern const struct random_shape random_shapes[]; // ends with { 0 }

// type: one that quantise_to has. `to` must not exist yet; after a failure it does not exist either.
bool random_model_write(const struct random_shape *s, enum type type, uint64_t seed, const char *to,
                        const struct step_observer *observer, struct error *err);

// An EAGLE-3 head for the model at `target`, as such heads are published: a directory with config.json and
// model.safetensors, its one layer of the target's shape, its vocabulary every so-many-th of the target's ids. type: F32
// or BF16. `to` as above.
bool random_eagle3_write(const char *target, int draft_vocab, enum type type, uint64_t seed, const char *to,
                         struct error *err);
