// inflate.h - a larger checkpoint that computes the same function: what a model of that size costs, with the texts, and
// so the acceptance, of a model that is at hand. Every such checkpoint is marked as one (config.h: inflated).
//
// Where the numbers go. Of width w made W: the residual stream has zeros behind its w numbers, for all that writes into
// it (embedding, o, down) has rows of zeros there, and all that reads it (q, k, v, gate, up, head) columns of zeros. An
// RMS norm now divides the same sum of squares by W: with eps' = eps w / W and gains g' = g sqrt(w / W),
//
//     x g' / sqrt(sum / W + eps') = x g / sqrt(sum / w + eps).
//
// Added heads and hidden units are copies of those that are there, and o and down have columns of zeros for them;
// key-value head j keeps its own heads, which are the first of its larger group. Added layers are copies whose o and
// down are zeros. So everything that is added is computed, is finite, and is multiplied by zero; the sums' other terms
// are the same as before.
//
// The factor rounds, so that logits differ in their last bits, and where activations are rounded to eight bits some
// texts do. Made four times as wide (or sixteen) it is a half: then every bit is the same.
//
// Blocks are copied as they are, and blocks of zero bytes, whose scale is zero, are zeros in every format.
#pragma once
#include <stdbool.h>

struct backend;
struct error;
struct model_config;
struct step_observer;

struct sizes { // 0: as the model has it
    int width, hidden, heads, kv_heads, layers;
};

// Fills in what is 0. false: these sizes cannot be had of this model, or `to` cannot be its name; the sentence is about
// the call.
bool inflate_resolve(const struct model_config *c, struct sizes *s, const char *to, struct error *err);
bool inflate_is_exact(const struct model_config *c, const struct sizes *s); // to the last bit
// A GGUF file becomes a GGUF file, a directory a directory. `to` must not exist yet; after a failure it does not exist
// either. The backend, any, only dequantises the norms.
bool inflate_model(const char *from, const struct sizes *s, const char *to, struct backend *b,
                   const struct step_observer *observer, struct error *err);
