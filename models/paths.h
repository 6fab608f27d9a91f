// paths.h - finds the files of a model on this machine.
//
// "shape:NAME" is a model with random weights, made in memory (shape.h). Other names are looked up in this order:
//
//     an existing file or directory; relative names are first looked up in `beside`, the directory of the experiment's
//     file, and ~/ is the home directory
//     a bare name under ${XDG_CACHE_HOME:-~/.cache}/speclab/models/ (NAME, NAME.gguf)
//     org/name[@revision] in the Hugging Face cache: the first of $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub
//     and ${XDG_CACHE_HOME:-~/.cache}/huggingface/hub that is set
//
// A repository without config.json stands for its only GGUF file. Nothing is downloaded: the error lists all places
// searched, and the command that fetches the model (`./run model NAME`).
#pragma once
#include <stdbool.h>

struct error;
// The caller frees the path. Returns NULL and sets err if nothing is found. beside may be NULL.
char *model_path(const char *name, const char *beside, struct error *err);
bool model_is_shape(const char *name); // a shape has no file: messages give its name, not its path
char *model_cache(void);               // the directory of bare names; the caller frees it
char *weights_cache(void); // the directory of cached hashes of weights (weights_hash.c); the caller frees it
