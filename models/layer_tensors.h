// layer_tensors.h - the tensors of a decoder layer: the families that have them, their names, shapes and fields in
// struct block. Also the names of all tensors of a model in GGUF and in Hugging Face's checkpoints.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "models/block.h"

struct architecture;

// Numbers of rows or columns. OF_HEADS: rows of q; OF_KV: rows of k and of v; OF_NONE: 0.
enum layer_size {
    OF_NONE,
    OF_WIDTH,
    OF_IN,
    OF_HEADS,
    OF_KV,
    OF_HEADS_KV,
    OF_QKV,
    OF_HIDDEN,
    OF_GATE_UP,
    OF_Q_NORM,
    OF_K_NORM,
    OF_SIZES
};

// Takes the place of `to` for the matrices of a mixture, which are loaded together.
enum { OF_EXPERTS = sizeof(struct block) };

struct layer_tensor {
    const char *gguf, *hf;          // names without ".weight" or ".bias"
    unsigned of;                    // bits of the families that have it; 0: all
    size_t to, bias;                // its offset in struct block, and that of its bias; bias 0: it has none
    enum layer_size rows, width;    // rows OF_NONE: the weight of a norm
    enum layer_size first, of_rows; // the tensor has rows first .. first + rows of a matrix of so many; OF_NONE: all
};
extern const struct layer_tensor layer_tensors[], *const layer_tensors_end;
bool layer_tensor_of(const struct layer_tensor *t,
                     const struct architecture *a); // whether layers of the family have it

// Returns the name of a tensor in the other format: blk.3.attn_q.weight is model.layers.3.self_attn.q_proj.weight. An
// unknown name is returned unchanged. The caller frees the result.
char *weights_name(const struct architecture *a, const char *gguf_name);
char *weights_gguf_name(const struct architecture *a, const char *name);
// Returns the name in a model of texts of a tensor in a model of texts and images; NULL: a tensor of images, which
// texts do not use.
char *weights_text_name(const char *stored);
// For "model.layers.3.mlp.up_proj.weight" and `before` "model.layers.": returns ".mlp.up_proj.weight", *layer is 3.
// NULL if the name does not match. Large numbers saturate above any valid layer.
const char *weights_layer(const char *name, const char *before, int *layer);
