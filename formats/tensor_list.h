// tensor_list.h - tensors as the files of a checkpoint have them, in safetensors' words whatever the format is.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

struct safetensor {
    const char *name;
    const char *dtype; // "F32", "BF16", "I64", ... as safetensors calls it
    int dims;
    int64_t dim[8];
    const void *data; // mapped, borrowed; alignment is the file's
    size_t bytes;
    int file; // which one
};

struct tensor_list {
    size_t n, capacity;
    struct safetensor *at; // (n) the names are owned
};

// A new one at the end, all zeros but name and file. Takes the name, which is on the heap.
struct safetensor *tensor_list_add(struct tensor_list *l, char *name, int file);
void tensor_list_sort(struct tensor_list *l); // by name
void tensor_list_free(struct tensor_list *l); // with the names
