// published.h - targets and heads with the names, shapes and configurations of published ones, as sparse files in their published form.
#pragma once
#include <stdbool.h>
#include "models/model.h"
#include "tests/published/sparse_checkpoint.h"

struct known_target {
    const char *name;
    int layers, width, hidden, heads, kv_heads, vocab;
    bool old; // with the keys of older configurations
    int files;
    double min_gb; // of all files
    int head_dim;  // 0: width / heads
    // Of other families than Llama's: the configuration as published, and what its layers have.
    const char *config;
    bool qkv_bias, head_norms, output_norms, tied;
    int experts, expert_hidden;
    const char *router; // "mlp.": Qwen3-MoE; "block_sparse_moe.": Mixtral
    bool images;        // a text model among images
};

extern const struct known_target vicuna_7b, vicuna_13b, llama_8b, llama_70b;

void published_target(const char *directory, const struct known_target *t);
// The target's shape, read from its files, which are written first; all its tensors are checked to exist with their shapes.
struct model_shape published_shape(const struct known_target *t);

void published_eagle1(const char *directory, const struct known_target *t);
void published_eagle2(const char *directory, const struct known_target *t);
void published_eagle3(const char *directory, const struct known_target *t);
void published_eagle3_speculators(const char *directory, const struct known_target *t);
void published_eagle_speculators(const char *directory, const struct known_target *t);
void published_medusa(const char *directory, const struct known_target *t);
void published_medusa_shared(const char *directory, const struct known_target *t); // of the target's output
