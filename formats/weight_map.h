// weight_map.h - the index of a checkpoint in several files: {"weight_map": {"name of a tensor": "file", ...}}.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct safetensor;
struct weight_map;

// File names have no folder: the files lie beside the index.
struct weight_map *weight_map_read(const char *path, struct error *err);
void weight_map_close(struct weight_map *m);
size_t weight_map_files(const struct weight_map *m);
const char *weight_map_file(const struct weight_map *m, size_t file); // its name; sorted
// Filters the n tensors of its files, sorted by name, to those that the index lists, each in the file that it names
// (tensor[i].file is a file index as above). A listed tensor that is missing there is an error. Names of tensors that are
// not listed are freed. `index` is the index's path, for messages.
bool weight_map_filter(const struct weight_map *m, const char *directory, const char *index, struct safetensor *tensor,
                       size_t *n, struct error *err);
