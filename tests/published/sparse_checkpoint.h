// sparse_checkpoint.h - checkpoints with real names, types and sizes, whose data are holes in sparse files: gigabytes that need no
// disk space.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct sparse_tensor {
    char name[96];
    const char *dtype;   // as safetensors names it
    int64_t rows, width; // rows 0: a vector
    int ones;            // number of leading bytes that are 1; all others are 0
};

struct sparse {
    int n, capacity;
    struct sparse_tensor *tensor; // (n)
};

struct sparse_tensor *sparse_add(struct sparse *s, const char *dtype, int64_t rows, int64_t width, const char *name);
void sparse_free(struct sparse *s);
size_t sparse_bytes(const struct sparse *s);

// Creates the directory, with config.json and the tensors in one safetensors file, or in several with an index.
void sparse_write(const char *directory, const struct sparse *s, int files, const char *config);
