// tensor_loading.h - a checkpoint's tensors on a backend: matrices as the backend likes them, vectors as floats. What was claimed
// is given back at once, by tensor_loader_release.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/tensor.h"

struct backend;
struct block;
struct error;
struct packed_cache;
struct model_config;
struct model_shape;
struct weights;

struct tensor_loader {
    struct backend *backend; // borrowed, as the next two are
    struct weights *weights;
    bool looking; // names, shapes and types are checked and nothing else: no number is read, no backend needed
    struct packed_cache *kept; // packed weights of an earlier time; NULL: nobody asked for them
    enum activations activations;
    size_t bytes, bytes_by_type[TYPES]; // of what was claimed, but for tables
    struct tensor **matrix;             // (matrices) where they went, in the order in which they were claimed
    struct tensor **vector;             // (vectors)
    int matrices, vectors;
};

// Before anything is claimed: DEFAULT becomes what the type that most of the bytes have allows; int8 is an error where that is
// not quantised, and so are weights for which the device has no room. path: of the checkpoint, for messages.
bool tensor_loader_finish(struct tensor_loader *c, const char *path, struct error *err);

// Each goes to *to, which must stay where it is until tensor_loader_release. false: err names file, tensor, expected and found.
bool load_matrix(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, struct tensor *to,
                 struct error *err);
bool load_vector(struct tensor_loader *c, const char *name, int64_t width, struct tensor *to, struct error *err);
// A matrix whose rows are read as they are, too: an embedding. It is not counted among the bytes that a pass reads.
bool load_table(struct tensor_loader *c, const char *name, int64_t rows, int64_t width, struct tensor *to,
                struct error *err);
// Rope's inverse frequencies (1, head_dim / 2), from what the configuration says. divisors: as config_rope's.
bool load_rope(struct tensor_loader *c, const struct model_config *config, const float *divisors, struct tensor *to,
               struct error *err);
// A tensor that load_table gave is read in every pass, too: as the head.
void load_count(struct tensor_loader *c, struct tensor w);

enum block_biases { NO_BIASES, ALL_BIASES, N_BIASES }; // of q, k, v and o
struct block_load {
    const char *prefix; // "model.layers.3."
    int64_t in;         // width of what attention reads
    bool input_norm;    // there is one, of the stream's width
    enum block_biases biases;
};
bool load_block(struct tensor_loader *c, const struct block_load *what, const struct model_shape *s, struct block *to,
                struct error *err);

void tensor_loader_keep(
    struct tensor_loader *c); // the packed matrices, for the next time, if they did not come from there
void tensor_loader_release(struct tensor_loader *c);
