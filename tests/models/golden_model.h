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
// As F32, with the small tokenizer and its chat template, a vocabulary of CHAT_VOCAB and a context of CHAT_CONTEXT: the same numbers, and rows of
// tokens behind them.
enum { CHAT_VOCAB = 288, CHAT_CONTEXT = 2048 };
char *golden_model_write_chat(const struct json *model);
// The LM head of a directory that one of these wrote is its embedding from now on: other logits.
void golden_model_tie(const char *directory);
