// weights_parts.h - the fields of struct weights, shared by weights.c and weights_hash.c; internal.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/digest.h"
#include "core/tensor.h"
#include "models/config.h"

struct gguf;
struct shards;

struct weight {
    char *name;       // Hugging Face's
    char *stored;     // as stored in the file
    const char *file; // borrowed from the format's reader
    const char *type_name;
    bool known;          // its type is one of core/tensor.h
    int ggml;            // GGUF's type number; -1: not from GGUF
    const void *in_file; // (bytes) mapped; NULL: a type of GGUF of unknown size
    size_t bytes;
    struct tensor tensor; // what weights_get returns: mapped, or `copy`
    int heads;            // number of heads whose rows are permuted; 0: the rows are in order
    void *copy;           // data with rows in order, or aligned; NULL: the mapped data are used
    bool requested, checked;
    bool fp8; // floats of eight bits, whose scales are another tensor: as blocks in `copy`
};

struct weights {
    char *path;
    struct gguf *gguf; // one of the two
    struct shards *shards;
    int head_dim;
    const struct architecture *architecture; // of a model
    struct fp8 fp8;                          // likewise
    size_t n, of_images;                     // of_images: tensors that were left out (weights_text_name)
    struct weight *weight;                   // (n) sorted by name
    bool hashed;
    struct hash hash; // of all tensors, if `hashed`
};

struct weight *weights_find(const struct weights *w, const char *name); // NULL: there is none
