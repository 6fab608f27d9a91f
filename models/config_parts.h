// config_parts.h - what config.c, config_gguf.c and config_hf.c share; for nobody else.
#pragma once
#include "models/config.h"

struct digest;
struct fields;

// Larger models than these do not exist; smaller numbers keep every product of two sizes far from overflow.
enum {
    MOST_LAYERS = 1024,
    MOST_HEADS = 1 << 14,
    MOST_SIZE = (1 << 24) - 1,
    MOST_CONTEXT = 1 << 24,
    MOST_VOCAB = 1 << 20
}; // as many draws as an address of chance has (sampling/rng.h)

// Each fills what its format says, and adds all that it was handed to d; config_read() then checks what holds for every
// format.
bool config_from_gguf(const char *path, struct digest *d, struct model_config *to, struct error *err);
bool config_from_directory(const char *path, struct digest *d, struct model_config *to, struct error *err);
// Sizes, norms, biases and rope alone, from an object that has them as config.json does.
bool config_from_json(const struct fields *f, struct model_config *to);
bool config_check(const struct model_config *c, const char *file, struct error *err); // what holds for every format

// One more id that ends a text, as `key` of `file` has it; ids that are there already are not added again.
bool config_add_end(struct model_config *c, const char *file, const char *key, int64_t id, struct error *err);
// Whether a token of this text ends an answer whatever the checkpoint says: llama.cpp's list.
bool config_ends_by_name(const char *s, size_t n);
