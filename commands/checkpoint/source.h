// source.h - the checkpoint that another one is made from: its tensors as its files have them, in either format, and
// what each of them is in the model.
//
// models/weights.h serves those who compute and puts rows in order for them; here nothing is moved.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;
struct gguf;
struct model_config;
struct shards;

// Vectors come first, then matrices.
enum role {
    ROLE_NORM, // before attention
    ROLE_FFN_NORM,
    ROLE_LAST_NORM, // before the head; of no layer
    ROLE_Q_BIAS,
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_O_BIAS,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_O,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_EMBEDDING, // of no layer
    ROLE_HEAD,      // likewise
    ROLES,
    ROLE_ROPE = ROLES, // rope's frequencies, which follow from the size of heads alone
    ROLE_OTHER,        // nothing that we compute with
};

struct stored {
    char *name;  // the file's own
    char *known; // Hugging Face's name for it
    enum role role;
    int layer;            // -1: of none
    bool readable;        // a type of core/tensor.h
    struct tensor tensor; // (rows, width) mapped, rows 1 for a vector; the type only if readable
    const char *type;     // "q4_1", or the file's own word for it
    int ggml;             // the format's number for the type, or ...
    const char *dtype;    // ... its name; NULL: a GGUF file
    int dims;
    int64_t dim[8]; // rows first, as Hugging Face writes shapes
    size_t bytes;   // in the file; 0 if the type is unknown
};

struct origin {
    const struct model_config *config; // borrowed
    struct gguf *gguf;                 // one of the two
    struct shards *shards;
    size_t n;
    struct stored *tensor; // (n) in the order of the file, or by name
};

bool origin_open(struct origin *o, const struct model_config *c, struct error *err);
void origin_close(struct origin *o);

bool role_is_matrix(enum role r);
enum role role_named(const char *name, int *layer); // of a name of Hugging Face's; *layer -1: of none
// The shape that such a tensor must have in a model of these sizes; rows 1 for a vector.
void role_shape(enum role r, const struct model_config *c, int64_t *rows, int64_t *width);
// "model.layers.3.mlp.up_proj.weight" with "model.layers.": ".mlp.up_proj.weight", *layer 3; NULL: no such name.
const char *layer_of_name(const char *name, const char *before, int *layer);
// Whether all that a model of this configuration needs is there in the shape it needs; the sentence names the tensor.
bool origin_complete(const struct origin *o, struct error *err);
