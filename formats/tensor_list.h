// tensor_list.h - the tensors of a checkpoint's files, described in safetensors terms for every format.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

struct safetensor {
    const char *name;
    const char *dtype; // safetensors name: "F32", "BF16", "I64", ...
    int dims;
    int64_t dim[8];
    const void *data; // in the mapping, borrowed; aligned as in the file
    size_t bytes;
    int file; // index of the file
};

struct tensor_list {
    size_t n, capacity;
    struct safetensor *at; // (n) owns the names
};

// Appends a tensor that is zero except for name and file. Takes ownership of the name.
struct safetensor *tensor_list_add(struct tensor_list *l, char *name, int file);
void tensor_list_sort(struct tensor_list *l); // by name
void tensor_list_free(struct tensor_list *l); // frees the names as well
