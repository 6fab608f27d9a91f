// golden_model.h - the models of tests/cases/architectures.jsonl as checkpoints on the disk.
#pragma once
#include <stddef.h>
#include "core/tensor.h"

struct json;

// The lines of the file: an array of n pointers, each json_free'd by golden_models_free.
struct json **golden_models(size_t *n);
void golden_models_free(struct json **models, size_t n);
// Writes config.json and model.safetensors of a line, with the numbers that its generator made, rounded to BF16 if that is `type`, else as
// F32, to a directory of test_directory(). Returns its path; free() it.
char *golden_model_write(const struct json *model, enum type type);
