// quantise_parts.h - what quantise.c and convert.c share; for nobody else.
#pragma once
#include "core/tensor.h"
#include "models/config.h"
#include "commands/checkpoint/quantise.h"
#include "commands/checkpoint/writer.h"

struct backend;
struct gguf_writer;
struct origin;

struct conversion {     // one tensor on its way
    struct tensor from; // mapped, in its own type; rows 1 for a vector
    enum type to;
    int heads; // rows (a vector's numbers) go into the order of llama.cpp's q and k; 0: they stay
};

struct quantising {
    const struct model_config *config;
    enum type type;
    struct backend *backend;
    struct rewrite rewrite;
    struct conversion *job; // (rewrite.n) of those tensors that have no data
    struct quantised *done;
    char *mark;    // what it was made from
    float *divide; // rope's divisors for a GGUF file; NULL: none
    struct tokenizer *tokenizer;
    const char *pre; // its family, as GGUF names it
};

// The type that a matrix will have; counts it, and notes a width that is no whole number of blocks.
enum type quantised_type(struct quantising *q, struct tensor matrix, const char *name);
size_t settings_of_type(enum type type, const char *mark, struct setting to[3]); // how many

// From a directory to a GGUF file, under llama.cpp's names and in its order.
bool convert_plan(struct quantising *q, const struct origin *o, struct error *err);
void convert_metadata(void *of, struct gguf_writer *w);
bool convert_agrees(const struct quantising *q, const char *made, struct error *err);
void convert_forget(struct quantising *q);
