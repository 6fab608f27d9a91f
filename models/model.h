// model.h - a transformer's weights on one backend, and the one call that runs it.
//
// Prompt, single token, chain and tree are the same call: rows of tokens, each of which follows either the prefix of its
// slot or one of the slot's pending rows.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/quantize.h"
#include "core/tensor.h"

struct backend;
struct error;
struct kv_cache;
struct kv_shape;
struct model;
struct model_config;
struct device_rows;
struct weights;

enum { ROPES = 2 };
struct model_shape {
    int layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    int experts, experts_used, expert_hidden; // of layers with a mixture of experts; experts 0: none has
    float norm_eps;
    // (1, head_dim / 2) of each RoPE, scaled as the checkpoint says (llama3, linear, or its own table): that of all layers, or of those
    // without a window; and that of layers with one, where it is another (data NULL: it is not)
    struct tensor inverse_frequency[ROPES];
    float angle_factor[ROPES]; // of cosines and sines; 0: 1
    int long_from; // above 0: inverse_frequency[1] replaces [0] where sequences can have more tokens than this (LongRoPE)
};

struct pass {
    int n;
    const int32_t *token;  // (n)
    const int32_t *slot;   // (n)
    const int32_t *parent; // (n) pending row of the slot that this row follows; -1: the prefix
    // Ranges of rows whose tokens and parents are in device memory only (kernels/backend.h). The arrays above hold any
    // token and parent -1 for them.
    const struct device_rows *device_rows; // (n_device_rows)
    int n_device_rows;
};

// Hidden states that a pass returns: the residual stream that enters layer layer[i] (0: the embedding; the number of
// layers: the output of the last one), or, for FINAL_STATE, the normed state that the LM head reads. The states of a row
// are side by side: width * n.
enum { FINAL_STATE = -1, MAX_TAPS = 8 };
struct taps {
    int n;
    int layer[MAX_TAPS];
};

struct states {           // borrowed from the model until its next pass
    struct tensor last;   // (n, width) input of the LM head
    struct tensor tapped; // (n, width * taps.n); data NULL without taps
};

// Whether w has exactly the tensors of the model: names, shapes and types. No numbers are read, except those of an LM head
// that is stored beside a tied embedding: the two must be equal. Returns false and sets err otherwise.
bool model_check(const struct model_config *c, struct weights *w, struct error *err);

// path: a .gguf file or a model directory (models/paths.h resolves names). rows: maximum rows of a pass. Weights that can
// stay mapped are not copied. b: borrowed for the life of the model. a: ACTIVATIONS_DEFAULT is resolved by the type that
// most of the weights have; int8 is an error for a model without quantized weights. Returns NULL and sets err on failure.
struct model *model_open(const char *path, struct backend *b, enum activations a, int rows, struct error *err);
// As model_open. Matrices of floats are quantized as they are loaded (models/tensor_loading.h). message: NULL: without a packed-weight cache
// (models/packed_cache.h): packed weights are read from a file beside the model if it exists and fits, and otherwise packed and written to it.
// A failed write is harmless. *message: a sentence that says which; the caller frees it; unchanged: this backend does not cache packed weights.
struct model *model_open_as(const char *path, struct backend *b, enum activations a, enum quantize quantize, int rows,
                            char **message, struct error *err);
// From now on model_logits gives those of ids id[0] .. id[n - 1] alone: (rows, n). Returns false and
// sets err if the rows cannot be loaded.
bool model_restrict_head(struct model *m, const int32_t *id, int n, struct error *err);
void model_close(struct model *m); // NULL is allowed
const struct model_shape *model_shape(const struct model *m);
struct model_shape model_shape_of(const struct model_config *c); // without inverse_frequency
const struct model_config *model_config(const struct model *m);
struct backend *model_backend(const struct model *m);
int model_rows(const struct model *m); // maximum rows of a pass
// Makes passes of so many rows possible. No sequence is under way, and no result of a pass is read any more. After a failure, for lack of memory,
// passes have as many rows as before.
bool model_reserve(struct model *m, int rows, struct error *err);
size_t model_bytes(const struct model *m); // weights that passes read
// Of these, what a pass reads that reads so many experts, over all layers; and one of n rows, as many experts as are expected
// (config_experts_expected).
double model_bytes_read(const struct model *m, double experts);
double model_pass_bytes(const struct model *m, int n);
int64_t model_experts_touched(const struct model *m); // experts that passes have read so far, over all layers
size_t model_table_bytes(const struct model *m);      // the embedding; 0 if it is also the LM head
size_t model_scratch_bytes(const struct model_shape *s, int rows);
struct hash model_hash(const struct model *m);             // of every byte of its weights (weights_hash)
struct hash model_identity(const struct model *m);         // of its weights and its configuration
const char *model_type(const struct model *m);             // "q4_1": the type that most of the bytes have
enum activations model_activations(const struct model *m); // never ACTIVATIONS_DEFAULT
const char *model_unused(const struct model *m, size_t i); // i-th tensor that the model does not use; NULL: no more
// Shape of a cache for this model, of type F32; the caller may set another type.
struct kv_shape model_kv_shape(const struct model *m, int slots, int length, int pending);
struct kv_shape model_shape_kv(const struct model_shape *s, int slots, int length, int pending); // without windows

// Runs a pass of p->n rows. Admits them to the cache, where they stay pending. taps: NULL: none. Returns false and sets
// err if the device has not enough memory; other faults are reported by the backend's sync().
bool model_forward(struct model *m, struct kv_cache *c, const struct pass *p, const struct taps *taps,
                   struct states *out, struct error *err);

// A pass as by model_forward through layers layer[0] < layer[1] < .. alone, for a draft by a part of the model (drafters/layer_drafts.c): the
// states are those that the LM head reads after the last of them. Only these layers of the cache get the rows. layer: borrowed for the call.
bool model_forward_some(struct model *m, struct kv_cache *c, const struct pass *p, const int *layer, int n,
                        struct states *out, struct error *err);

// Separate from the pass, so that a prompt computes no logits, and a drafter can use the target's embedding and head.
void model_logits(const struct model *m, struct tensor out, struct tensor state); // out (n, vocab)

// (vocab, width), as the backend's take and embed read it. A family that scales its embedding does so in the pass: heads read the table as it is.
struct tensor model_embedding(const struct model *m);
struct tensor model_norm(
    const struct model *m); // (1, width), before the LM head, as it is used: for programs that train heads
