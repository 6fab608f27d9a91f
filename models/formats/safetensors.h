// safetensors.h - reads a mapped safetensors file.
//
// The reader checks the header's length and JSON, that dtypes are known, that sizes match shapes, and that data regions
// neither overlap nor leave holes and end with the file. All arithmetic is guarded against overflow.
// https://github.com/huggingface/safetensors (format section of its README).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/files/mapped.h"

struct error;

struct safetensor {
    const char *name;
    const char *dtype; // safetensors name: "F32", "BF16", "I64", ...
    int dims;
    int64_t dim[8];
    const void *data; // data in the mapping, borrowed; aligned as in the file
    size_t bytes;
    int file; // index of the file
};

struct tensor_list {
    size_t n, capacity;
    struct safetensor *at; // (n) owns the names
};

void tensor_list_sort(struct tensor_list *l); // sorts by name
void tensor_list_free(struct tensor_list *l); // frees the names as well

// Appends the file's tensors to the list, with `number` as their file index; data is borrowed from the mapping. After a
// failure the list may hold some of them.
bool safetensors_read(const char *path, const struct mapping *file, int number, struct tensor_list *to,
                      struct error *err);
