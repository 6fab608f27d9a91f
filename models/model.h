// model.h - a transformer's weights on one backend, and the one way to run it.
//
// Prompt, single token, chain and tree are the same call: rows of tokens, each following either
// the prefix of its slot or a pending row of it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/tensor.h"

struct backend;
struct error;
struct kv_cache;
struct kv_shape;
struct model;
struct model_config;
struct device_rows;

struct model_shape {
    int layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    float norm_eps;
    // (1, head_dim / 2) of rope, scaled as the checkpoint says (llama3, linear, its own table)
    struct tensor inverse_frequency;
};

struct pass {
    int n;
    const int32_t *token;  // (n)
    const int32_t *slot;   // (n)
    const int32_t *parent; // (n) pending row of the slot that this row follows; -1: its prefix
    // Rows whose tokens and parents are on the device alone (kernels/backend.h); above they have any token, and parent -1.
    const struct device_rows *there;
    int n_device_rows;
};

// Which hidden states a pass leaves behind: the residual stream entering layer layer[i] (0: the embedding; the number
// of
// layers: what the last one leaves), or with FINAL_STATE the normed state that the head reads. Side by side: width * n.
enum { FINAL_STATE = -1, MAX_TAPS = 8 };
struct taps {
    int n;
    int layer[MAX_TAPS];
};

struct states {           // borrowed from the model until its next pass
    struct tensor last;   // (n, width) what the head reads
    struct tensor tapped; // (n, width * taps.n)
};

// path: a .gguf file or a model directory (models/paths.h finds it). rows: most rows that one pass will have. The model
// keeps its own copy of nothing that can stay mapped; backend is borrowed for the model's life. a: DEFAULT is settled by
// the type that most of the weights have; int8 is an error for a model without quantised weights.
struct model *model_open(const char *path, struct backend *b, enum activations a, int rows, struct error *err);
// The same, with its packed weights in a file beside it (models/packed_cache.h): read if they are there and fit, otherwise made and
// written, which may fail without harm. *kept: a sentence that says which; free() it; NULL: the backend has nothing to keep.
struct model *model_open_keeping(const char *path, struct backend *b, enum activations a, int rows, char **kept,
                                 struct error *err);
void model_close(struct model *m);
const struct model_shape *model_shape(const struct model *m);
struct model_shape model_shape_of(const struct model_config *c); // without rope's frequencies
const struct model_config *model_config(const struct model *m);
struct backend *model_backend(const struct model *m);
int model_rows(const struct model *m);           // of a pass, at most
size_t model_bytes(const struct model *m);       // of the weights that a pass reads
size_t model_table_bytes(const struct model *m); // of an embedding that is not the head as well
size_t model_scratch_bytes(const struct model_shape *s, int rows);
struct hash model_hash(const struct model *m);             // of its weights, every byte (weights_hash)
struct hash model_identity(const struct model *m);         // of these and all that its configuration says
const char *model_type(const struct model *m);             // "q4_1": the type most of the bytes have
enum activations model_activations(const struct model *m); // never DEFAULT
// a tensor of the checkpoint that nothing reads; NULL: no more
const char *model_unused(const struct model *m, size_t i);
// of type F32, which whoever wants another changes
struct kv_shape model_kv_shape(const struct model *m, int slots, int length, int pending);

bool model_forward(struct model *m, struct kv_cache *c, const struct pass *p, const struct taps *taps,
                   struct states *out, struct error *err);

// Apart from the pass, so that a prompt computes none, and a drafter can lend the target's own.
void model_embed(const struct model *m, struct tensor out, const struct pass *p); // (n, width) of its tokens
void model_logits(const struct model *m, struct tensor out, struct tensor state); // (n, vocab)
