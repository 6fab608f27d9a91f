// unused_tensors.h - refuses a checkpoint of which some tensors were not loaded: computing without them would give other results
// than the checkpoint's, silently.
#pragma once
#include <stdbool.h>

struct error;
struct weights;

struct loaded { // what the tensors were loaded for
    // Names, as in weights.h, of tensors without effect, and a NULL; with a dot at the end: all names that begin so. NULL: none.
    const char *const *ignored;
    const char *reason;              // "not supported in architecture llama": ends the message
    const char *config, *layers_key; // file and key that state the number of layers; NULL: none does
    int layers;
};

// Called after everything was loaded. Returns false and sets err if a tensor was not, unless it is known to have no effect.
bool unused_tensors_refuse(const struct weights *w, const struct loaded *l, struct error *err);
