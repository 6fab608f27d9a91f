// shape.h - models with random weights, by name: "shape:llama-1b,type=q8_0,layers=4". They are for measurements in
// which the text does not matter.
//
// They are GGUF files in memory: the architecture's tensors, matrices of one type including the embedding, and only the
// size of a vocabulary. Weights are nearly normal with a standard deviation of 0.02, as in untrained models, which
// keeps activations at the size of trained models. The embedding of a mixture of experts has a deviation of 1.
// Otherwise the output of attention, which is nearly equal for all rows of a text, would choose the experts, and all
// rows would use the same ones. Equal names give equal numbers.
//
// A model is made in a fraction of a second: at most 34 million numbers are random, and all matrices share them
// (core/files/mapped.h). A matrix begins where the previous one ended, and its rows repeat after thousands of others.
// Backends copy weights to their own memory, so no time depends on the sharing.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;

#define SHAPE_NAMES "llama-1b, llama-3b, llama-8b, smollm2-135m or qwen3-30b-a3b"

bool is_shape(const char *name); // whether the name begins with "shape:"
// Returns the path of the file in memory, which the process makes once and keeps until it ends. file_map() shows its
// weights, in this process alone. The caller frees the path. most: bytes of memory that its weights may take; 0: any.
char *shape_path(const char *name, size_t most, struct error *err);
// Returns the path of a whole file, which other processes can open and copy meanwhile. It takes as much memory as it
// has bytes. Call it before the file is mapped.
char *shape_whole_path(const char *name, struct error *err);
