// quantize_parts.h - shared by quantize.c and convert.c; private to them.
#pragma once
#include "core/tensor.h"
#include "models/config.h"
#include "models/fp8.h"
#include "commands/checkpoint/quantize.h"
#include "commands/checkpoint/writer.h"

struct backend;
struct gguf_writer;
struct source_checkpoint;

struct expert_source { // one expert's matrix; fp8 as below
    struct tensor tensor;
    struct fp8_matrix fp8;
};

struct conversion {        // of one tensor
    struct tensor from;    // mapped, in its own type; 1 row for a vector
    struct fp8_matrix fp8; // from's numbers, if they are of F8_E4M3
    // (config->experts) instead: those of all experts, one after the other; owned. NULL: none
    struct expert_source *experts;
    enum type to;
    int heads; // permute rows (a vector's numbers) to llama.cpp's order of q and k with this many heads; 0: no permutation
    float more; // added to every number: a norm's weight that the source has less one
};

struct quantizing {
    const struct model_config *config;
    enum type type;
    struct backend *backend;
    struct rewrite rewrite;
    struct conversion *job; // (rewrite.n) set for tensors without data
    struct quantize_summary *done;
    char *mark;    // names the source model
    float *divide; // rope's divisors for a GGUF file; NULL: none
    struct tokenizer *tokenizer;
    const char *pre; // its tokenizer.ggml.pre
};

// The new type of a matrix; counts it in q->done. A matrix whose width is not a multiple of the block size keeps its type.
enum type quantized_type(struct quantizing *q, struct tensor matrix, const char *name);
size_t settings_of_type(enum type type, const char *mark, struct setting to[3]); // returns their number

// From a directory to a GGUF file, with llama.cpp's names and row order.
bool convert_plan(struct quantizing *q, const struct source_checkpoint *o, struct error *err);
void convert_metadata(void *of, struct gguf_writer *w);
bool convert_agrees(const struct quantizing *q, const char *made, struct error *err);
void convert_free(struct quantizing *q);
