// safetensors.h - a safetensors file, read from its mapping or written.
//
// Checked when read: header length and JSON, known types, sizes that match shapes, regions that neither
// overlap nor leave holes, the file's end; all arithmetic guarded against overflow.
// https://github.com/huggingface/safetensors (format section of its README).
#pragma once
#include "formats/file.h"
#include "formats/tensor_list.h"

// Adds its tensors, with `number` as their file; their data are borrowed from the mapping. After a failure the list may
// hold some of them.
bool safetensors_read(const char *path, const struct mapping *file, int number, struct tensor_list *to,
                      struct error *err);

// Writing one file: names and data are borrowed for the call. metadata_json: an object of texts, or NULL.
bool safetensors_write(const char *path, const struct safetensor *t, size_t n, const char *metadata_json,
                       struct error *err);
// The same, with data that are NULL written by `put` when their turn comes.
bool safetensors_write_with(const char *path, const struct safetensor *t, size_t n, const char *metadata_json,
                            part_put *put, void *of, struct error *err);
