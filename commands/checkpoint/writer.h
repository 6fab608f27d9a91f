// writer.h - a checkpoint made from another one: some of its tensors and settings anew, everything else as it was.
//
// Who makes one (prune, quantise, inflate) says what each tensor is to be and which settings change. That the files of
// the tokenizer go along, that nothing is overwritten, and that after a failure nothing is left behind is the same for
// all, and is here.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "formats/file.h"
#include "formats/gguf.h"

struct error;
struct json;
struct origin;

struct fresh {  // a tensor of the new checkpoint
    char *name; // as its file will have it; owned
    int dims;
    int64_t dim[8];    // rows first
    int ggml;          // its type, in GGUF's number ...
    const char *dtype; // ... or safetensors' name, as the format has it
    size_t bytes;
    const void *data; // (bytes) as they are; NULL: `put` writes them
};

// Told after each tensor: bytes written, of how many.
struct step_observer {
    void (*progress)(void *of, size_t done, size_t total);
    void *of;
};

struct rewrite {
    const struct origin *from;
    bool gguf; // a GGUF file is made, otherwise a directory with one safetensors file
    size_t n;
    struct fresh *tensor;                              // (n)
    void (*metadata)(void *of, struct gguf_writer *w); // of a GGUF file: writes all keys
    void (*config)(void *of, struct json *config);     // of a directory: changes config.json's where they change
    part_put *put;
    void *of;
    const struct step_observer *observer; // NULL: nobody is told
};

bool rewrite_write(const struct rewrite *r, const char *to, struct error *err);
void rewrite_free(struct rewrite *r); // the tensors
// The tensor unchanged, under a name of its own, which it takes.
struct fresh rewrite_same(const struct origin *o, size_t i, char *name);

// That `to` is not there yet, and is not the model that it is to be made from.
bool rewrite_is_free(const char *from, const char *to, struct error *err);
bool rewrite_names_gguf(const char *path); // it ends with ".gguf"
// What stands behind a path's last slash: a model's name, for those who are told what another one was made from.
const char *rewrite_base(const char *path);

// A key of GGUF metadata that is set, whether it was there or not.
struct setting {
    const char *key;
    enum gguf_type type; // of an integer that was not there; GGUF_F32 and GGUF_STRING: a real, a text
    int64_t number;
    float real;
    const char *text;
};
void rewrite_settings(struct gguf_writer *w, const struct gguf *g, const struct setting *s, size_t n);
bool gguf_key_is(const struct gguf_value *v, const char *key);
// Lists of config.json that have one entry for each layer: layer i of the new one is layer keep[i] of the old.
void rewrite_layer_lists(struct json *config, int layers, const int *keep, int n);
