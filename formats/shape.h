// shape.h - models with random weights, by name: "shape:llama-1b,type=q8_0,layers=4". For measurements in which the text does not matter.
//
// They are made in memory, as a GGUF file that other engines load as well: the architecture's tensors, matrices of one type including the
// embedding, and only the size of a vocabulary. Weights are nearly normal with a standard deviation of 0.02, as in untrained models, which
// keeps activations at the size of trained models. The embedding of a mixture of experts has a deviation of 1: otherwise what attention adds,
// which is nearly the same for all rows of a text, would choose the experts, and all rows the same. The same name gives the same bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;

#define SHAPE_NAMES "llama-1b, llama-3b, llama-8b, smollm2-135m or qwen3-30b-a3b"

bool is_shape(const char *name); // whether it begins with "shape:"
// The path of the file in memory, which the process keeps to its end, and makes once; other processes can open it meanwhile. The caller frees it.
// most: bytes of memory that its weights may take; 0: any.
char *shape_path(const char *name, size_t most, struct error *err);
