// config_parts.h - functions that config.c, config_gguf.c, config_hf.c, config_json.c and config_json_rope.c share;
// internal.
#pragma once
#include "models/config.h"

struct digest;
struct fields;
struct wrapper;

// No larger models exist, and smaller numbers keep every product of two sizes far from overflow.
enum {
    LIMIT_LAYERS = MAX_LAYERS,
    LIMIT_HEADS = 1 << 14,
    LIMIT_EXPERTS = 1 << 12,
    LIMIT_SIZE = (1 << 24) - 1,
    LIMIT_CONTEXT = 1 << 24,
    LIMIT_VOCAB = 1 << 20 // the number of uniforms that an address of the random source has (sampling/rng.h)
};

// Each sets the fields that its format specifies, and adds all content that it reads to d. text: read only what
// concerns text (BOS, end tokens, chat template, special tokens), and require no file of a directory. config_read()
// calls config_check() afterwards.
bool config_from_gguf(const char *path, bool text, struct digest *d, struct model_config *to, struct error *err);
bool config_from_directory(const char *path, bool text, struct digest *d, struct model_config *to, struct error *err);
// Reads the architecture that model_type names. If it is missing and not required, as in a head's configuration, the
// architecture is llama.
bool config_read_family(const struct fields *f, bool required, struct model_config *to);
// Sets *text to the fields of text_config, and the architecture to that of its model_type.
bool config_read_wrapper(const struct fields *f, const struct wrapper *w, struct fields *text, struct model_config *to);
// Reads only sizes, norms, biases and RoPE, from an object with the keys of config.json.
bool config_from_json(const struct fields *f, struct model_config *to);
// Reads quantization_config. Without it, to->fp8 remains unset. Anything except FP8 with scales of weights alone is
// refused (config_fp8.c).
bool config_read_fp8(const struct fields *f, struct model_config *to);
bool config_read_rope(const struct fields *f, struct model_config *to); // reads RoPE alone (config_json_rope.c)
bool config_check(const struct model_config *c, struct error *err);     // checks conditions that all formats share

// Adds an end-of-text id, found as `key`, unless it is already in the list.
bool config_add_end_token(struct model_config *c, const char *key, int64_t id, struct error *err);
// Returns whether a token with this text ends an answer even if the checkpoint does not say so: llama.cpp's list.
bool config_is_end_token(const char *s, size_t n);
