// safetensors.h - reads a mapped safetensors file, or writes one.
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
struct json;
struct part;

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
// Returns the metadata of a file that safetensors_read has accepted: an object of texts, empty if there are none. The
// caller frees it.
struct json *safetensors_metadata(const struct mapping *file);

// Writes all bytes of tensor i of a checkpoint. Returns false and sets err if the tensor cannot be produced.
typedef bool part_put(void *context, size_t i, struct part *to, struct error *err);
// Writes one file; names and data are borrowed for the call. metadata: an object of texts, taken over, or NULL. The
// callback `put` writes each tensor whose data is NULL; if put is NULL every tensor has data.
bool safetensors_write(const char *path, const struct safetensor *t, size_t n, struct json *metadata, part_put *put,
                       void *context, struct error *err);
// Writes the file to a stream, after its number of bytes as a little-endian u64. part_failed tells whether the writes
// failed.
bool safetensors_stream(struct part *to, const struct safetensor *t, size_t n, struct json *metadata, part_put *put,
                        void *context, struct error *err);
