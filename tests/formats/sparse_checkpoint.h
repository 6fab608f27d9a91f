// sparse_checkpoint.h - checkpoints of true names, types and sizes whose numbers are holes in a file: gigabytes without a disk.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct sparse_tensor {
    char name[96];
    const char *dtype;   // safetensors' word
    int64_t rows, width; // rows 0: a vector
    int ones;            // so many of its first bytes are 1; all others are 0
};

struct sparse {
    int n, capacity;
    struct sparse_tensor *tensor; // (n)
};

struct sparse_tensor *sparse_add(struct sparse *s, const char *dtype, int64_t rows, int64_t width, const char *name);
void sparse_free(struct sparse *s);
size_t sparse_bytes(const struct sparse *s);

enum sparse_form { SPARSE_SAFETENSORS, SPARSE_TORCH };
// config.json, and the tensors in one file or, if there are more, with an index; the directory is made. As torch writes
// them files are ZIP64 where they must be; of the storages the CRC-32 is not computed: nobody reads that far.
void sparse_write(const char *directory, const struct sparse *s, enum sparse_form form, int files, const char *config);
