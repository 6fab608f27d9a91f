// block.h - one decoder layer, the target's and a drafter's own alike, in backend operations.
//
// Llama's: attention over normed input, residual, SwiGLU over normed stream, residual (Touvron et al. 2023). What
// attention reads is handed in, because drafters differ there: EAGLE-1's comes unnormed, EAGLE-3's is twice as wide.
#pragma once
#include <stdbool.h>
#include "core/tensor.h"

struct backend;
struct kv_cache;
struct layout;
struct model_shape;

struct block {
    struct tensor input_norm, ffn_norm; // (1, width)
    struct tensor q, k, v, o; // (heads * head_dim, in) (kv_heads * head_dim, in) twice, (width, heads * head_dim)
    struct tensor q_bias, k_bias, v_bias, o_bias; // (1, rows of the weight); data NULL: none
    struct tensor gate, up, down;                 // (hidden, width) twice, (width, hidden)
};

struct scratch {          // room for a pass; tensors have as many rows as the pass at hand
    struct tensor h;      // (n, width)
    struct tensor q, o;   // (n, heads * head_dim)
    struct tensor k, v;   // (n, kv_heads * head_dim)
    struct tensor gate;   // (n, hidden)
    struct tensor angles; // (n, head_dim) of this pass: block_angles
};

bool scratch_create(struct scratch *t, struct backend *b, const struct model_shape *s, int rows); // false: no room
void scratch_destroy(struct scratch *t, struct backend *b);
void scratch_fit(struct scratch *t, int n);

// Before the layers of a pass, once.
void block_angles(struct backend *b, const struct model_shape *s, const struct layout *see, struct scratch *t);
// x (n, width), in place. layer: its number in cache c. input (n, in) is what attention reads.
void block_forward(struct backend *b, const struct block *w, const struct model_shape *s, int layer, struct kv_cache *c,
                   const struct layout *see, struct scratch *t, struct tensor x, struct tensor input);
