// target_file.h - the content of target.safetensors as floats: what a head shares with its target, or, for a copy of it, all
// (docs/training.md).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "formats/safetensors.h"

struct error;
struct json;
struct target;
struct weights;

enum { TARGET_FILE_ENDS = 3 }; // tensors outside the layers

struct target_file {
    const struct target *target; // borrowed
    struct weights *weights;     // of its layers; NULL: they are left out
    struct safetensor *tensor;   // (n) embedding, LM head, norm, layers
    size_t n;
    void *rows;  // a chunk on the device
    float *copy; // the same on the host
};

// model: its name, as given. An object of texts, which the caller frees.
struct json *target_file_metadata(const struct target *t, const char *model);
// layers: with those of the decoder.
bool target_file_begin(struct target_file *f, const struct target *t, bool layers, struct error *err);
bool target_file_put(void *self, size_t i, struct part *to, struct error *err); // a part_put
void target_file_end(struct target_file *f);
