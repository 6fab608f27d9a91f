// inflate.h - writes a larger checkpoint that computes the same function: it has the cost of a model of that size, and the
// texts and therefore the acceptance of the original. Such checkpoints are marked (config.h: inflated).
//
// Width w becomes W: the residual stream is zero beyond its first w numbers, since everything that writes to it
// (embedding, o, down) has rows of zeros there, and everything that reads it (q, k, v, gate, up, head) columns of zeros.
// An RMS norm now divides the same sum of squares by W: with eps' = eps w / W and gains g' = g sqrt(w / W),
//
//     x g' / sqrt(sum / W + eps') = x g / sqrt(sum / w + eps).
//
// Added heads and hidden units are copies of existing ones, and o and down have columns of zeros for them; key-value head
// j keeps its own query heads as the first of its larger group. Added layers are copies whose o and down are zeros. So
// everything added is computed, is finite, and is multiplied by zero; the other terms of all sums are unchanged.
//
// The factor sqrt(w / W) is rounded, so logits differ in their last bits, and with int8 activations some texts differ. At
// four or sixteen times the width the factor is a power of two and every bit is equal.
//
// Quantized blocks are copied unchanged; a block of zero bytes, whose scale is zero, is zeros in every format.
#pragma once
#include <stdbool.h>

struct backend;
struct error;
struct left_out;
struct model_config;
struct progress_observer;

struct sizes { // 0: the model's own
    int width, hidden, heads, kv_heads, layers;
};

// Resolves sizes of 0. Returns false if the sizes are impossible for this model or `to` has the wrong suffix; err then
// describes a mistake in the call.
bool inflate_resolve(const struct model_config *c, struct sizes *s, const char *to, struct error *err);
bool inflate_is_exact(const struct model_config *c, const struct sizes *s); // to the last bit
// A GGUF file becomes a GGUF file, a directory a directory. `to` must not exist yet; after a failure it does not exist
// either. Any backend will do: it only dequantizes the norms. left_out: set to the tensors that are not written, on success; NULL:
// not wanted.
bool inflate_model(const char *from, const struct sizes *s, const char *to, struct backend *b,
                   const struct progress_observer *observer, struct left_out *left_out, struct error *err);
