// weights.h - a checkpoint's tensors under Hugging Face's names, wherever they lie.
//
// GGUF names are translated (blk.3.attn_q.weight is model.layers.3.self_attn.q_proj.weight), and llama's
// permuted q and k rows are put back in order, so that one rope serves every format. Everything else
// stays mapped, in its own type.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/tensor.h"

struct error;
struct model_config;
struct weights;

struct weights *weights_open(const struct model_config *c, struct error *err);
// Of files that are no model: a speculator's, a .safetensors, .pt or .bin file, or a directory with one or with shards. rename: a tensor's
// stored name as it is to be known, on the heap; NULL: it is left out.
typedef char *weights_renamed(const char *stored);
struct weights *weights_open_files(const char *path, weights_renamed *rename, struct error *err);
void weights_close(struct weights *w);

// The tensor, which must have this shape (rows 1 for a vector) and a type of core/tensor.h; every float in it (block
// scales included) is checked to be finite. The error names file, tensor, expected and found.
bool weights_get(struct weights *w, const char *name, int64_t rows, int64_t width, struct tensor *to,
                 struct error *err);
// As weights_get, but of its numbers nothing is looked at, moved or promised: for whoever has them already.
bool weights_look(struct weights *w, const char *name, int64_t rows, int64_t width, struct tensor *to,
                  struct error *err);
bool weights_has(const struct weights *w, const char *name);
// rows and width of a tensor of any type; false: there is none.
bool weights_shape(const struct weights *w, const char *name, int64_t *rows, int64_t *width);
// n whole numbers or truth values (I64, I32, U8, BOOL), each from least to most.
bool weights_whole(struct weights *w, const char *name, int64_t n, int64_t least, int64_t most, int64_t *to,
                   struct error *err);
size_t weights_bytes(const struct weights *w); // of all tensors in the files
// Of names, types, shapes and every byte of every tensor: which weights a run used (weights_hash.c). Taken once of what was
// opened; of large checkpoints it is remembered beside the model cache, until a file's identity, size, times or a sample of its
// data change.
struct hash weights_hash(struct weights *w);
// Of the files' sizes and times: whether they are still the same.
struct hash weights_stamp(const struct weights *w);
// Tensors of the checkpoint for inspect: i-th name, type name ("q4_1"), rows, width, bytes. false: no more.
bool weights_list(const struct weights *w, size_t i, const char **name, const char **type, int64_t *rows,
                  int64_t *width, size_t *bytes);
// The same tensor's name in the other format: blk.3.attn_q.weight is model.layers.3.self_attn.q_proj.weight. A name
// that is not known stays as it is; free() it.
char *weights_name(const char *gguf_name);
char *weights_gguf_name(const char *name);
bool weights_type(const char *dtype, enum type *to); // safetensors' "BF16"; false: none of core/tensor.h
// Names of tensors that nothing asked for so far: a model that ignores part of its checkpoint says so. NULL: none.
const char *weights_unused(const struct weights *w, size_t i);
