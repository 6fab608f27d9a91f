// target_file.h - the file target.safetensors of `speclab features`: embedding, LM head and final norm as floats, and
// the configuration (docs/training.md).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "models/formats/safetensors.h"

struct error;
struct json;
struct part;
struct speclab_target;
struct weights;

struct target_file {
    const struct speclab_target *target; // borrowed
    struct weights *weights;
    struct safetensor *tensor; // (n) embedding, LM head, norm, layers
    size_t n;
};

enum { OUTER_EMBEDDING, OUTER_HEAD, OUTER_NORM, OUTER_TENSORS }; // tensors outside the layers

// layers: with those of the decoder. Returns false and sets err on failure; target_file_end in any case.
bool target_file_begin(struct target_file *f, const struct speclab_target *t, bool layers, struct error *err);
bool target_file_put(void *f, size_t i, struct part *to, struct error *err); // writes tensor i: a part_put
void target_file_end(struct target_file *f);
struct json *target_file_metadata(const struct speclab_target *t, const char *model); // model: its name, as given

// width 0: a vector. data NULL: a callback writes it. element: bytes.
struct safetensor described(const char *name, const char *dtype, size_t element, int64_t rows, int64_t width,
                            const void *data);
// Adds a text to metadata.
void metadata_set(struct json *j, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
