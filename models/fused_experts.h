// fused_experts.h - the experts of a layer in two tensors. transformers 5 has them so in memory, and saves them so with
// save_original_format=False: mlp.experts.gate_up_proj (experts, 2 hidden, width), in which an expert's rows of gate
// precede those of up, and mlp.experts.down_proj (experts, width, hidden). Readers of checkpoints see a matrix of each
// expert instead, under its name in other checkpoints.
#pragma once
#include <stddef.h>

struct architecture;
struct safetensor;

// Returns how many matrices t stands for; 1 for every other tensor, and for a tensor of another shape. a NULL: 1.
size_t fused_experts_parts(const struct architecture *a, const struct safetensor *t);
// Returns matrix i of them, in t's data. Its name is on the heap, and the caller frees it.
struct safetensor fused_experts_part(const struct architecture *a, const struct safetensor *t, size_t i);
