// weights_parts.h - a checkpoint's tensors from the inside, for weights.c and weights_hash.c.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/digest.h"
#include "core/tensor.h"

struct gguf;
struct shards;

struct weight {
    char *name;       // Hugging Face's
    char *stored;     // the file's own
    const char *file; // borrowed from the format's reader
    const char *type_name;
    bool known;          // a type of core/tensor.h
    int ggml;            // GGUF's number of the type; -1: not from GGUF
    const void *in_file; // (bytes) mapped; NULL: a type of GGUF whose size we do not know
    size_t bytes;
    struct tensor tensor; // what weights_get hands out: mapped, or `ours`
    int heads;            // rows lie permuted, head by head; 0: they do not
    void *ours;           // rows in order, or data moved to where they are aligned; NULL: neither was needed
    bool asked, checked;
};

struct weights {
    char *path;
    struct gguf *gguf; // one of the two
    struct shards *shards;
    int head_dim;
    size_t n;
    struct weight *weight; // (n) sorted by name
    bool hashed;
    struct hash hash; // of all of them, once it was asked for
};
