// weight_map.h - the index of a checkpoint in several files: {"weight_map": {"name of a tensor": "file", ...}}.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct safetensor;
struct weight_map;

// Files are named without a folder: they lie beside the index.
struct weight_map *weight_map_read(const char *path, struct error *err);
void weight_map_close(struct weight_map *m);
size_t weight_map_files(const struct weight_map *m);
const char *weight_map_file(const struct weight_map *m, size_t file); // its name; sorted
size_t weight_map_count(const struct weight_map *m);
const char *weight_map_name(const struct weight_map *m, size_t i); // of a tensor; sorted
// Of the n tensors in its files, sorted by name, those that it lists stay, each in the file it should be in (tensor[i].file is
// a place as above): one that is not there is an error. A file may hold more: those names are freed. index: of messages.
bool weight_map_keep(const struct weight_map *m, const char *directory, const char *index, struct safetensor *tensor,
                     size_t *n, struct error *err);
size_t weight_map_place(const struct weight_map *m, size_t i); // which file it should be in
