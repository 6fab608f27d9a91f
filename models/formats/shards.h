// shards.h - the tensors of a memory-mapped safetensors checkpoint, in one file or several listed by an index.
//
// A directory's model.safetensors.index.json is read or, without it, model.safetensors. PyTorch's files are refused
// with the command that converts them.
#pragma once
#include "models/formats/safetensors.h"

struct shards;

struct shards *shards_open(const char *path, struct error *err);
void shards_close(struct shards *s);
size_t shards_count(const struct shards *s);
const struct safetensor *shards_at(const struct shards *s, size_t i); // sorted by name; NULL after the last
const char *shards_file(const struct shards *s, int file);            // path of the file; NULL after the last
