// block.h - one decoder layer, of the target or of a drafter, in backend operations.
//
// The base is Llama's layer: attention over the normed input, residual, SwiGLU over the normed residual stream,
// residual (Touvron et al. 2023). Other families change it by the fields of the layer: norms of outputs and of heads, a
// window, no RoPE, another gate. The input of attention is an argument because drafters differ there: EAGLE-1's is not
// normed, EAGLE-3's is twice as wide.
#pragma once
#include <stdbool.h>
#include "core/tensor.h"
#include "kernels/backend.h"
#include "models/experts.h"
#include "models/model.h"

struct kv_cache;
struct layout;

struct block {
    // (1, width); data NULL: none. out_norm and ffn_out_norm apply to the outputs of attention and of the feed-forward
    // network.
    struct tensor input_norm, out_norm, ffn_norm, ffn_out_norm;
    struct tensor q_norm,
        k_norm; // weights over each head (1, head_dim), or over all: (1, heads * head_dim), (1, kv_heads * head_dim);
                // data NULL: none
    struct tensor q, k, v, o; // (heads * head_dim, in) (kv_heads * head_dim, in) twice, (width, heads * head_dim)
    struct tensor q_bias, k_bias, v_bias, o_bias; // (1, rows of the weight); data NULL: no bias
    struct tensor gate, up, down;                 // (hidden, width) twice, (width, hidden); data NULL: experts instead
    struct experts experts;
    struct attention attention;
    int rope; // number of its RoPE; -1: none
    enum gate_function f;
    float residual_scale; // factor of what is added to the residual stream; 0: 1
};

struct scratch {        // the workspace of a pass; n: rows of the current pass
    struct tensor h;    // (n, width)
    struct tensor q, o; // (n, heads * head_dim)
    struct tensor k, v; // (n, kv_heads * head_dim)
    struct tensor gate; // (n, hidden)
    struct expert_scratch experts;
    struct tensor angles[ROPES]; // (n, head_dim), written by block_angles
};

// rows: maximum rows of a pass. Returns false if the device has not enough memory. scratch_destroy is valid in any
// case.
bool scratch_create(struct scratch *t, struct backend *b, const struct model_shape *s, int rows);
void scratch_destroy(struct scratch *t, struct backend *b);
void scratch_fit(struct scratch *t, int n); // sets the number of rows of all tensors

// Computes the rotary cosines and sines of a pass into t->angles. It is called once, before the layers.
void block_angles(struct backend *b, const struct model_shape *s, const struct layout *layout, struct scratch *t);
// x (n, width): the residual stream, updated in place. layer: index in cache c. input (n, in): the input of attention.
void block_forward(struct backend *b, const struct block *w, const struct model_shape *s, int layer, struct kv_cache *c,
                   const struct layout *layout, struct scratch *t, struct tensor x, struct tensor input);
