// weights.h - the tensors of a checkpoint under Hugging Face's names, in any format.
//
// GGUF names are translated (blk.3.attn_q.weight is model.layers.3.self_attn.q_proj.weight), and rows of q and k that
// llama.cpp's converter moved (architectures.h) are put back in order, so that one RoPE serves all formats. All other
// data stay mapped, in their own type.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/tensor.h"
#include "models/config.h"

struct architecture;
struct error;
struct gguf;
struct shards;

struct weight {
    char *name;       // Hugging Face's name
    char *stored;     // name as stored in the file
    const char *file; // borrowed from the format's reader
    const char *type_name;
    bool known;          // its type is one of core/tensor.h
    int ggml;            // GGUF's type number; -1: not from GGUF
    const void *in_file; // (bytes) mapped; NULL: a type of GGUF of unknown size
    size_t bytes;
    struct tensor tensor; // what weights_get returns: mapped, or `copy`
    int heads;            // number of heads whose rows are permuted; 0: the rows are in order
    void *copy;           // data with rows in order, or aligned; NULL: the mapped data are used
    bool requested, checked;
    bool fp8; // eight-bit floats, whose scales are another tensor: stored as blocks in `copy`
};

struct weights {
    char *path;
    struct gguf *gguf; // one of these two is set
    struct shards *shards;
    int head_dim;
    const struct architecture *architecture; // the model's architecture
    struct fp8 fp8;                          // FP8 settings of a model's matrices
    size_t n, of_images;                     // of_images: number of tensors that were left out (layer_tensors.h)
    struct weight *weight;                   // (n) sorted by name
    bool made; // a shape (models/formats/shape.h): its numbers are finite, and a sample identifies them
    bool hashed;
    struct hash hash; // hash of all tensors, if `hashed`
};

// Opens the tensors of a model. Returns NULL and sets err on failure.
struct weights *weights_open(const struct model_config *c, struct error *err);
// Opens the files of a head, not of a model: a .safetensors file, or a directory with one or with shards. rename: maps
// a tensor's stored name to its name here, on the heap; NULL: the tensor is left out.
typedef char *weights_renamed(const char *stored);
struct weights *weights_open_files(const char *path, weights_renamed *rename, struct error *err);
void weights_close(struct weights *w); // NULL is allowed

// Gets a tensor, which must have this shape (rows 1: a vector) and a type of core/tensor.h. All its floats (block
// scales included) are checked to be finite. Returns false and sets err on failure: file, tensor, expected and found.
bool weights_get(struct weights *w, const char *name, int64_t rows, int64_t width, struct tensor *to,
                 struct error *err);
// Gets a tensor without reading, checking or reordering its numbers: for shapes, and where a packed form exists.
bool weights_get_unchecked(struct weights *w, const char *name, int64_t rows, int64_t width, struct tensor *to,
                           struct error *err);
// Frees what weights_get made from a matrix of FP8 once nothing reads it any more. A later weights_get makes it again.
void weights_drop(struct weights *w, const char *name);
// Finds a tensor of any type; NULL: there is none.
struct weight *weights_find(const struct weights *w, const char *name);
bool weights_has(const struct weights *w, const char *name);
// Reads a tensor of n integers or booleans (I64, I32, U8, BOOL), each from min to max.
bool weights_integers(struct weights *w, const char *name, int64_t n, int64_t min, int64_t max, int64_t *to,
                      struct error *err);
size_t weights_bytes(const struct weights *w); // bytes of all tensors in the files
// Returns the hash of names, types, shapes and all bytes of all tensors. It identifies the weights of a run
// (weights_hash.c) and is computed once per opening. For large checkpoints it is cached next to the model cache, until
// a file's identity, size, times or a sample of its data change.
struct hash weights_hash(struct weights *w);
// Returns a hash of the files' sizes and modification times, which detects changed files without reading them.
struct hash weights_stamp(const struct weights *w);
// Returns the i-th tensor that was not requested so far, omitting stored frequencies of RoPE (unused_tensors.c). NULL:
// no more.
const char *weights_unused(const struct weights *w, size_t i);
