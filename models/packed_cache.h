// packed_cache.h - packed weights kept in a file beside the model, for whoever asks for it: read, they need not be made again.
//
// The file holds what the backend made of each matrix, in the order in which model.c asks for them, and what it was made
// from: the weights' hash, and size and time of each of the checkpoint's files. Whatever does not fit, or whose sum does
// not come out, is not used; the model is then packed as ever, and the file written anew.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;
struct packed_cache;
struct model_config;
struct weights;

// Never fails: there may be no such file, or one that does not fit. layout: backend.h's packed_layout.
struct packed_cache *packed_cache_open(const struct model_config *c, struct weights *w, int layout);
void packed_cache_close(struct packed_cache *k);           // NULL is fine
bool packed_cache_is_usable(const struct packed_cache *k); // there may be something to read
bool packed_cache_is_whole(const struct packed_cache *k);  // everything so far came from the file
// Whether the next matrix's packed form is in the file, in so many bytes. false, once, means false from then on.
bool packed_cache_has(struct packed_cache *k, struct tensor w, size_t bytes);
bool packed_cache_read(struct packed_cache *k, void *to); // that one, and goes on to the next
// What became of it, as a sentence for the person who asked; free() it.
char *packed_cache_sentence(const struct packed_cache *k);

// Written under a name of its own and renamed: no other program ever sees a half file. n packed matrices in order.
struct packed_bytes {
    struct tensor w; // its type and shape
    const void *data;
    size_t bytes;
};
void packed_cache_write(struct packed_cache *k, const struct packed_bytes *p, size_t n);
