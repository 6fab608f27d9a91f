// shards.h - the tensors of a checkpoint of safetensors or of PyTorch, one file or those that an index lists, mapped.
//
// A file is read as its name says: .safetensors (formats/safetensors.h), all else PyTorch's (formats/torch.h). A directory
// has model.safetensors.index.json, model.safetensors, pytorch_model.bin.index.json or pytorch_model.bin; the first of
// them that is there is read.
#pragma once
#include "formats/tensor_list.h"

struct shards;

struct shards *shards_open(const char *path, struct error *err);
void shards_close(struct shards *s);
size_t shards_count(const struct shards *s);
const struct safetensor *shards_at(const struct shards *s, size_t i); // sorted by name; NULL: no more
const struct safetensor *shards_find(const struct shards *s, const char *name);
int shards_files(const struct shards *s);
const char *shards_file(const struct shards *s, int file); // its path
