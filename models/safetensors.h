// safetensors.h - safetensors files, one or the shards that model.safetensors.index.json lists, mapped.
//
// Checked when opened: header length and JSON, known types, sizes that match shapes, regions that neither
// overlap nor leave holes, the file's end; all arithmetic guarded against overflow.
// https://github.com/huggingface/safetensors (format section of its README).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "models/files.h"

struct error;
struct safetensors;

struct safetensor {
    const char *name;
    const char *dtype; // "F32", "BF16", "I64", ... as in the file
    int dims;
    int64_t dim[8];
    const void *data; // mapped, borrowed; alignment is the file's
    size_t bytes;
    int file; // which shard
};

struct safetensors *safetensors_open(const char *path, struct error *err); // a .safetensors file or a model directory
void safetensors_close(struct safetensors *s);
size_t safetensors_count(const struct safetensors *s);
const struct safetensor *safetensors_at(const struct safetensors *s, size_t i); // sorted by name
const struct safetensor *safetensors_find(const struct safetensors *s, const char *name);
int safetensors_files(const struct safetensors *s);
const char *safetensors_file(const struct safetensors *s, int file); // path of a shard

// Writing one file: names and data are borrowed for the call. metadata_json: an object of texts, or NULL.
bool safetensors_write(const char *path, const struct safetensor *t, size_t n, const char *metadata_json,
                       struct error *err);
// The same, with data that are NULL written by `put` when their turn comes.
bool safetensors_write_with(const char *path, const struct safetensor *t, size_t n, const char *metadata_json,
                            part_put *put, void *of, struct error *err);
