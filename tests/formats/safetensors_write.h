// safetensors_write.h - writes the tests' safetensors files.
#pragma once
#include "models/formats/safetensors.h"

struct json;

// Writes one file, tensors in the given order; names and data are borrowed for the call. metadata: an object of texts, taken over, or
// NULL.
bool safetensors_write(const char *path, const struct safetensor *t, size_t n, struct json *metadata,
                       struct error *err);
