// unused_tensors.h - refuses a checkpoint some of whose tensors were not loaded: computing without them would silently
// give other results than the checkpoint's.
#pragma once
#include <stdbool.h>

struct error;
struct weights;

struct loaded { // the purpose for which the tensors were loaded
    // Names, as in weights.h, of tensors without effect, and a NULL. A name that ends with a dot stands for all names
    // that begin so. NULL: none.
    const char *const *ignored;
    const char *reason;              // the end of the message: "not supported in architecture llama"
    const char *config, *layers_key; // file and key that state the number of layers; NULL: none does
    int layers;
};

// Is called after everything was loaded. Returns false and sets err if a tensor was not loaded, unless it is known to
// have no effect.
bool unused_tensors_refuse(const struct weights *w, const struct loaded *l, struct error *err);
