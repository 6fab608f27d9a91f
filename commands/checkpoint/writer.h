// writer.h - writes a checkpoint derived from another one: some tensors and settings are new, everything else is copied.
//
// The callers (prune, quantize, inflate) define the tensors and the settings that change. This module copies the
// tokenizer's files, never overwrites, and leaves nothing behind after a failure.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "formats/file.h"
#include "formats/gguf.h"

struct error;
struct json;
struct source_checkpoint;

struct new_tensor { // a tensor of the new checkpoint
    char *name;     // in the new file; owned
    int dims;
    int64_t dim[8];    // rows first
    int ggml;          // GGUF: the number of its type
    const char *dtype; // safetensors: the name of its type
    size_t bytes;
    const void *data; // (bytes) copied unchanged; if NULL, `put` writes them
};

// Called after each tensor with the bytes written so far and in total.
struct progress_observer {
    void (*progress)(void *context, size_t done, size_t total);
    void *context;
};

struct rewrite {
    const struct source_checkpoint *from;
    bool gguf; // write a GGUF file; otherwise a directory with one safetensors file
    size_t n;
    struct new_tensor *tensor;                              // (n)
    void (*metadata)(void *context, struct gguf_writer *w); // for a GGUF file: writes all keys
    void (*config)(void *context, struct json *config);     // for a directory: updates config.json
    part_put *put;
    void *context;
    const struct progress_observer *observer; // NULL: no observer
};

bool rewrite_write(const struct rewrite *r, const char *to, struct error *err);
void rewrite_free(struct rewrite *r); // frees the tensors
// Tensor i unchanged under a new name; takes ownership of the name.
struct new_tensor rewrite_copy_tensor(const struct source_checkpoint *o, size_t i, char *name);

// Checks that `to` does not exist yet and is not the source model.
bool rewrite_check_output(const char *from, const char *to, struct error *err);
// The part after the last slash, which is stored as the name of the source model.
const char *path_base_name(const char *path);

// A key of GGUF metadata to set, whether it exists or not.
struct setting {
    const char *key;
    enum gguf_type type; // GGUF_F32, GGUF_STRING, or the integer type if the key does not exist
    int64_t number;
    float real;
    const char *text;
};
void rewrite_settings(struct gguf_writer *w, const struct gguf *g, const struct setting *s, size_t n);
bool gguf_key_is(const struct gguf_value *v, const char *key);
// Updates the lists of config.json with one entry per layer: layer i of the new model is layer keep[i] of the old one.
void rewrite_layer_lists(struct json *config, int layers, const int *keep, int n);
