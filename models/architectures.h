// architectures.h - the architectures that can be run: one row each, with what differs between them in names and files.
//
// Readers, loaders and conversions ask this table; none of them compares names of architectures.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// The two numbers of a head that RoPE rotates together, in the rows of q and k of a GGUF file (llama.cpp: llama_rope_type).
enum gguf_rope {
    GGUF_ROPE_NORM, // numbers 2i and 2i + 1: llama.cpp's converter moves the rows of Hugging Face's q and k (permute)
    GGUF_ROPE_NEOX, // numbers i and i + head_dim / 2, as in Hugging Face's checkpoints
};

struct architecture {
    const char *name;       // GGUF: general.architecture, and what its keys begin with ("llama.block_count")
    const char *model_type; // config.json
    const char *classes[4]; // config.json: `architectures` is one of these; NULL: no more
    enum gguf_rope gguf_rope;
};

// NULL: not supported. The name has n bytes.
const struct architecture *architecture_of_gguf(const char *name, size_t n);
const struct architecture *architecture_of_model_type(const char *model_type);
bool architecture_has_class(const struct architecture *a, const char *class);
// What messages say is expected, such as "llama"; free() it. gguf: names of GGUF; otherwise values of model_type, as JSON.
char *architectures_supported(bool gguf);
