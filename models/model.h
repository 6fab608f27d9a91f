// model.h - a transformer's weights on one backend, and the one call that runs it.
//
// Prompt, single token, chain and tree are the same call: rows of tokens, each of which follows either the prefix of
// its slot or one of the slot's pending rows.
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
    int experts, experts_used, expert_hidden; // layers with a mixture of experts; experts 0: no layer has one
    float norm_eps;
    // (1, head_dim / 2) inverse frequencies of each RoPE, scaled as the checkpoint requires (llama3, linear, or its own
    // table). The first is used by all layers, or by those without a window; the second, if it differs, by layers with
    // a window (data NULL: it does not differ).
    struct tensor inverse_frequency[ROPES];
    float angle_factor[ROPES]; // factors of cosines and sines; 0: 1
    int long_from; // 0: never; otherwise inverse_frequency[1] replaces [0] if sequences can have more tokens than this
                   // (LongRoPE)
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

// The hidden states that a pass returns: the residual stream that enters layer layer[i] (0: the embedding; the number
// of layers: the output of the last one), or, for FINAL_STATE, the normed state that the LM head reads. The states of a
// row are concatenated: width * n.
enum { FINAL_STATE = -1, MAX_TAPS = 8 };
struct taps {
    int n;
    int layer[MAX_TAPS];
};

struct states {           // borrowed from the model until its next pass
    struct tensor last;   // (n, width) input of the LM head
    struct tensor tapped; // (n, width * taps.n); data NULL without taps
};

// Returns whether w has exactly the tensors of the model: names, shapes and types. It reads no numbers, except those of
// an LM head that is stored in addition to a tied embedding: the two must be equal. Otherwise returns false and sets
// err.
bool model_check(const struct model_config *c, struct weights *w, struct error *err);

// Opens a model. path: a .gguf file or a model directory (models/paths.h resolves names). rows: maximum rows of a pass.
// Weights that can remain mapped are not copied. b: borrowed for the life of the model. a: ACTIVATIONS_DEFAULT is
// resolved by the type that most of the weights have; int8 is an error for a model without quantized weights. Returns
// NULL and sets err on failure.
struct model *model_open(const char *path, struct backend *b, enum activations a, int rows, struct error *err);
// Opens a model as model_open does, and quantizes matrices of floats as they are loaded (models/tensor_loading.h).
// Packed weights are read from a file next to the model if it exists and fits, and are otherwise packed and written to
// it (models/packed_cache.h). A failed write is harmless. *message: a sentence that tells which, and that the caller
// frees; unchanged if this backend does not cache packed weights. message NULL: no packed-weight cache is used.
struct model *model_open_as(const char *path, struct backend *b, enum activations a, enum quantize quantize, int rows,
                            char **message, struct error *err);
// Restricts model_logits to the ids id[0] .. id[n - 1] from now on: (rows, n). Returns false and sets err if the rows
// cannot be loaded.
bool model_restrict_head(struct model *m, const int32_t *id, int n, struct error *err);
void model_close(struct model *m); // NULL is allowed
const struct model_shape *model_shape(const struct model *m);
struct model_shape model_shape_of(const struct model_config *c); // omits inverse_frequency
const struct model_config *model_config(const struct model *m);
struct backend *model_backend(const struct model *m);
int model_rows(const struct model *m); // maximum rows of a pass
// Makes passes of so many rows possible. There must be no sequence under way, and no result of a pass in use. After a
// failure, for lack of memory, passes have as many rows as before.
bool model_reserve(struct model *m, int rows, struct error *err);
size_t model_bytes(const struct model *m); // bytes of weights that passes read
// Return the bytes that a pass reads that uses so many experts, over all layers, and the bytes that a pass of n rows
// reads with the expected number of experts (config_experts_expected).
double model_bytes_read(const struct model *m, double experts);
double model_pass_bytes(const struct model *m, int n);
int64_t model_experts_touched(const struct model *m); // experts that passes have read so far, over all layers
size_t model_table_bytes(const struct model *m);      // bytes of the embedding; 0 if it is also the LM head
size_t model_scratch_bytes(const struct model_shape *s, int rows);
struct hash model_hash(const struct model *m);             // hash of every byte of its weights (weights_hash)
struct hash model_identity(const struct model *m);         // hash of its weights and its configuration
const char *model_type(const struct model *m);             // "q4_1": the type that most of the bytes have
enum activations model_activations(const struct model *m); // never ACTIVATIONS_DEFAULT
const char *model_unused(const struct model *m, size_t i); // i-th tensor that the model does not use; NULL: no more
// Returns the shape of a cache for this model, of type F32; the caller may set another type.
struct kv_shape model_kv_shape(const struct model *m, int slots, int length, int pending);
struct kv_shape model_shape_kv(const struct model_shape *s, int slots, int length, int pending); // omits windows

// Runs a pass of p->n rows. Admits them to the cache, where they remain pending. taps: NULL: none. Returns false and
// sets err if the device has not enough memory. The backend's sync() reports other faults.
bool model_forward(struct model *m, struct kv_cache *c, const struct pass *p, const struct taps *taps,
                   struct states *out, struct error *err);

// Continues a slot's sequence by n tokens, at most MAX_APPENDED: runs a pass over them, waits for it, keeps its rows.
enum { MAX_APPENDED = 512 };
bool model_append(struct model *m, struct kv_cache *c, int slot, const int32_t *token, int n, const struct taps *taps,
                  struct states *out, struct error *err);

// Runs a pass through layers layer[0] < layer[1] < .. alone, for a draft by a part of the model
// (drafters/layer_drafts.c). The states are those that the LM head reads after the last of these layers. Only these
// layers of the cache get the rows. layer: borrowed for the call.
bool model_forward_some(struct model *m, struct kv_cache *c, const struct pass *p, const int *layer, int n,
                        struct states *out, struct error *err);

// Logits are separate from the pass, so that a prompt computes none, and a drafter can use the target's embedding and
// head.
void model_logits(const struct model *m, struct tensor out, struct tensor state); // out (n, vocab)

// Returns the embedding (vocab, width) for the backend's take and embed. A family that scales its embedding does so in
// the pass: heads read the table unscaled.
struct tensor model_embedding(const struct model *m);
struct tensor model_norm(
    const struct model *m); // the weight (1, width) that precedes the LM head, for programs that train heads
