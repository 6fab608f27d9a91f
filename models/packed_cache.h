// packed_cache.h - the packed-weight cache: packed weights in a file next to the model, which are read instead of
// packed again.
//
// The file holds the packed form of each matrix, in the order in which model.c loads them, and identifies their source:
// the hash of the weights, and size and time of each file of the checkpoint. A file that does not fit, or whose
// checksums do not match, is not used. The model is then packed as without a cache, and the file is written anew.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/tensor.h"

struct packed_cache;
struct model_config;
struct weights;

// Opens the cache. It never fails: without a file, or with one that does not fit, there is nothing to read. layout: the
// backend's packed_layout (kernels/backend.h).
struct packed_cache *packed_cache_open(const struct model_config *c, struct weights *w, int layout);
void packed_cache_close(struct packed_cache *k);             // NULL is allowed
bool packed_cache_is_usable(const struct packed_cache *k);   // the file fits so far
bool packed_cache_is_complete(const struct packed_cache *k); // every matrix of the file has been read
// Reads the next matrix in the file, which must be w's packed form, of `bytes` bytes. Returns false if it is not, or is
// damaged. The file is not used any more then.
bool packed_cache_read(struct packed_cache *k, struct tensor w, void *to, size_t bytes);
// Returns a sentence for the user: whether the weights were read or written, and why a file was not used. The caller
// frees it.
char *packed_cache_message(const struct packed_cache *k);

struct packed_matrix {
    struct tensor w; // type and shape of the matrix
    const void *data;
    size_t bytes;
};
// Writes the file: n packed matrices in order. It is written under a temporary name and renamed, so no other program
// sees an incomplete file. A failure is reported by packed_cache_message only.
void packed_cache_write(struct packed_cache *k, const struct packed_matrix *p, size_t n);
