// fused_experts.h - the experts of a layer in two tensors, as transformers 5 has them in memory and saves them with save_original_format=False:
// mlp.experts.gate_up_proj (experts, 2 hidden, width), whose rows of an expert are those of gate and then those of up, and
// mlp.experts.down_proj (experts, width, hidden). Readers of checkpoints see a matrix of each expert instead, under its name in other checkpoints.
#pragma once
#include <stddef.h>

struct architecture;
struct safetensor;

// How many matrices t stands for; 1 for every other tensor, and for one of another shape. a NULL: 1.
size_t fused_experts_parts(const struct architecture *a, const struct safetensor *t);
// Part i of them, in t's data; its name is on the heap, and the caller frees it.
struct safetensor fused_experts_part(const struct architecture *a, const struct safetensor *t, size_t i);
