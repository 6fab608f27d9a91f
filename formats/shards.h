// shards.h - the tensors of a memory-mapped safetensors or PyTorch checkpoint, in one file or several listed by an index.
//
// The file name decides the format: .safetensors (formats/safetensors.h), otherwise PyTorch (formats/torch.h). Of a
// directory, the first of model.safetensors.index.json, model.safetensors, pytorch_model.bin.index.json and
// pytorch_model.bin that exists is read.
#pragma once
#include "formats/tensor_list.h"

struct shards;

struct shards *shards_open(const char *path, struct error *err);
void shards_close(struct shards *s);
size_t shards_count(const struct shards *s);
const struct safetensor *shards_at(const struct shards *s, size_t i); // sorted by name; NULL beyond the end
const char *shards_file(const struct shards *s, int file);            // its path; NULL beyond the last
