// medusa_heads.h - drafters of heads in Medusa's file form (models/heads/medusa.h): medusa, blockwise.
#pragma once
#include "core/quantize.h"
#include "core/tensor.h"
#include "drafters/trees/tree_builder.h"

struct drafter;
struct drafter_env;
struct error;

struct medusa_heads_options {
    char *weights;
    int activations, quantize; // enum activations, enum quantize
};

// Rows for a drafter's option table: MEDUSA_HEADS_OPTIONS(struct medusa_options, heads).
// clang-format off
#define MEDUSA_HEADS_OPTIONS(type, member) \
    { "weights", OPTION_PATH, offsetof(type, member.weights), NULL, "the heads: a folder or a .safetensors file", 0, 0, NULL }, \
    { "activations", OPTION_CHOICE, offsetof(type, member.activations), "default", \
      "type that matmul inputs are rounded to; default: by the type of its weights", 0, 0, ACTIVATIONS_CHOICES }, \
    { "quantize", OPTION_CHOICE, offsetof(type, member.quantize), "none", \
      "type that its matrices of floats are quantized to as they are loaded", 0, 0, QUANTIZE_CHOICES }
// clang-format on

// Drafts of the shape `tree` (texts borrowed). what: "drafter medusa", for messages. Returns NULL and sets err on failure.
struct drafter *medusa_heads_create(const struct drafter_env *env, const struct medusa_heads_options *o,
                                    const struct tree_options *tree, const char *what, struct error *err);
void medusa_heads_destroy(struct drafter *d);
