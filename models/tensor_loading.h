// tensor_loading.h - loads a checkpoint's tensors to a backend: matrices in the form that it prepares (packed), vectors
// as floats. tensor_loader_release frees all of them.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/quantize.h"
#include "core/tensor.h"

struct backend;
struct block;
struct error;
struct packed_cache;
struct model_config;
struct model_shape;
struct weights;

struct tensor_loader {
    struct backend *backend; // borrowed, like the next two
    struct weights *weights;
    struct packed_cache *cache; // packed-weight cache; NULL: none
    bool check_only;            // only names, shapes and types are checked: no number is read, and no backend is needed
    enum activations activations;
    // Matrices of floats are quantized as they are loaded, unless their row length is no multiple of the block size.
    enum quantize quantize;
    size_t bytes, bytes_by_type[TYPES]; // bytes of the tensors that a pass reads: all loaded ones except tables
    size_t expert_bytes;                // bytes of experts among these: a pass reads those that its rows use
    struct tensor **matrix;             // (matrices) destinations, in the order of loading
    struct tensor **vector;             // (vectors)
    int matrices, vectors;
    void **made; // (n_made) numbers that are not the checkpoint's: quantized matrices, chosen rows
    int n_made;
};

// Begins loading. Resolves ACTIVATIONS_DEFAULT by the type that most of the bytes have once loaded. Returns false and
// sets err if that type is not quantized and activations are int8, or if the device has not enough memory for the
// weights. path: the checkpoint's, for messages.
bool tensor_loader_begin(struct tensor_loader *c, const char *path, struct error *err);

// Each loads one tensor to *to, which must not move before tensor_loader_release. They return false and set err on
// failure: file, tensor, expected and found.
bool load_matrix(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, struct tensor *to,
                 struct error *err);
// Loads rows first .. first + n of a matrix.
bool load_part_of_matrix(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, int64_t first,
                         int64_t n, struct tensor *to, struct error *err);
bool load_vector(struct tensor_loader *c, const char *name, int64_t width, struct tensor *to, struct error *err);
// Loads a matrix whose rows are also read one by one: an embedding. It does not count among the bytes that a pass
// reads.
bool load_table(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, struct tensor *to,
                struct error *err);
// Loads the weight of an RMSNorm of this model: safetensors of some families store it minus one.
bool load_norm(struct tensor_loader *c, const struct model_config *config, const char *name, int64_t width,
               struct tensor *to, struct error *err);
// Loads the inverse frequencies of every RoPE that the layers use, as in model_shape.inverse_frequency: to (ROPES).
bool load_ropes(struct tensor_loader *c, const struct model_config *config, struct tensor *to, struct error *err);
// Loads rows id[0] .. id[n - 1] of a matrix as a separate matrix.
bool load_some_rows(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, const int32_t *id, int n,
                    struct tensor *to, struct error *err);
// Counts a tensor that load_table loaded among the bytes that a pass reads: an embedding that is also the LM head.
void load_count(struct tensor_loader *c, struct tensor w);

struct block_load {
    const struct model_config *config;
    int layer;
    const char *prefix; // "model.layers.3."
    int64_t in;         // width of the input of attention
    bool input_norm;    // the layer has an input norm, of the residual stream's width
    // Biases of q, k, v and o are those that the checkpoint has; otherwise those that its configuration declares.
    bool found_biases;
};
// Loads a layer's tensors (layer_tensors.h). to: all zeros. blocks_free frees an array of layers, with what they own in
// addition to tensors.
bool load_block(struct tensor_loader *c, const struct block_load *what, const struct model_shape *s, struct block *to,
                struct error *err);

void blocks_free(struct block *block, int n); // NULL is allowed

// Writes the packed matrices to the cache, unless all of them were read from it.
void tensor_loader_write_cache(struct tensor_loader *c);
void tensor_loader_release(struct tensor_loader *c);
