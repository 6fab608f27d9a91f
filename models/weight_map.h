// weight_map.h - the index of a checkpoint in several files: {"weight_map": {"name of a tensor": "file", ...}}.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct weight_map;

// Files are named without a folder: they lie beside the index.
struct weight_map *weight_map_read(const char *path, struct error *err);
void weight_map_close(struct weight_map *m);
size_t weight_map_files(const struct weight_map *m);
const char *weight_map_file(const struct weight_map *m, size_t file); // its name; sorted
size_t weight_map_count(const struct weight_map *m);
const char *weight_map_name(const struct weight_map *m, size_t i); // of a tensor; sorted
size_t weight_map_place(const struct weight_map *m, size_t i);     // which file it should be in
