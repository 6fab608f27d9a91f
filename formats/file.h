// file.h - memory-mapped input files, and what is known of a path. Output files are in core/files/part.h.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/files/part.h"

struct error;

struct mapping {       // start with { 0 }
    const uint8_t *at; // (n) read-only
    size_t n;
};
bool file_map(const char *path, struct mapping *to, struct error *err); // regular files that are not empty
void file_unmap(struct mapping *m);

bool file_exists(const char *path); // of any type; follows symbolic links
bool file_is_directory(const char *path);
bool file_make_folders(const char *path); // creates the parent folders of path; false if one could not be created
char *file_text(const char *path, size_t *n, struct error *err); // the content of a small file and a NUL; free() it

// Writes all bytes of tensor i of a checkpoint. Returns false and sets err if the tensor cannot be produced.
typedef bool part_put(void *context, size_t i, struct part *to, struct error *err);
