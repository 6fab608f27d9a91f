// source.h - the source checkpoint of a conversion: its tensors as stored, in either format, and the role of each.
//
// models/weights.h is for inference and permutes rows; this module leaves tensors unchanged.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "formats/printable.h"
#include "models/fp8.h"

struct error;
struct gguf;
struct model_config;
struct shards;

// Vectors come first, then matrices.
enum role {
    ROLE_NORM,          // before attention
    ROLE_FFN_NORM,      // before the feed-forward network; in families with norms of outputs, of attention's
    ROLE_PRE_FFN_NORM,  // these have it here
    ROLE_POST_FFN_NORM, // of the feed-forward network's output
    ROLE_LAST_NORM,     // before the head; belongs to no layer
    ROLE_Q_NORM,
    ROLE_K_NORM, // the last of the norms
    ROLE_Q_BIAS,
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_O_BIAS,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_O,
    ROLE_QKV,     // the rows of q, k and v
    ROLE_GATE_UP, // those of gate and up
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_ROUTER,      // of a mixture of experts: llama.cpp never quantizes it, and neither do we
    ROLE_EXPERT_GATE, // of one expert, or in GGUF of all
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_EMBEDDING, // belongs to no layer
    ROLE_HEAD,      // likewise
    ROLES,
    ROLE_ROPE = ROLES, // rope's frequencies, which the head size determines
    ROLE_OTHER,        // not used in the computation
};

struct source_tensor {
    char *name;  // in the file
    char *known; // Hugging Face's name, in a model of texts
    enum role role;
    int layer;            // -1: none
    int expert;           // of one expert's matrix; -1: none
    bool readable;        // whether the type is in core/tensor.h
    struct tensor tensor; // (rows, width) mapped, 1 row for a vector; its type is valid only if readable
    const char *type;     // "q4_1", or the file's own name of the type
    int ggml;             // GGUF: the number of the type; otherwise -1
    const char *dtype;    // safetensors: the name of the type; NULL for a GGUF file
    int dims;
    int64_t dim[8];        // rows first, as in Hugging Face's shapes
    size_t bytes;          // in the file; 0 if the type is unknown
    struct fp8_matrix fp8; // floats of eight bits, with their scales; numbers NULL: it is of another type
    bool is_scale;         // scales of such a matrix
};

struct
    left_out { // tensors of the file that have no effect on texts: Medusa-2's heads (models/unused_tensors.h), those of images
    size_t n;
    struct shown first;
};

struct source_checkpoint {
    const struct model_config *config; // borrowed
    struct gguf *gguf;                 // exactly one of gguf and shards is set
    struct shards *shards;
    struct weights *weights; // the same tensors by name
    size_t n;
    struct source_tensor *tensor; // (n) GGUF: in the order of the file; otherwise sorted by name
    struct left_out left_out;
};

// A checkpoint that is not complete, or has tensors that its model does not use, is an error (model_check).
bool source_open(struct source_checkpoint *o, const struct model_config *c, struct error *err);
// Whether a directory can be written that has the whole model; fails for a model of texts and images.
bool source_is_whole(const struct model_config *c, struct error *err);
void source_close(struct source_checkpoint *o);

bool role_is_matrix(enum role r);
bool role_is_norm(enum role r);
bool role_is_quantized(enum role r); // a matrix whose type quantization changes
// Of a Hugging Face name; *layer is -1 if it belongs to no layer, *expert if it is not one expert's.
enum role role_named(const char *name, int *layer, int *expert);
// The expected shape of such a tensor in a model of these sizes; 1 row for a vector.
void role_shape(enum role r, const struct model_config *c, int64_t *rows, int64_t *width);
