// unused_tensors.h - refuses a checkpoint of which some tensors were not loaded: computing without them would give other results
// than the checkpoint's, silently.
#pragma once
#include <stdbool.h>

struct error;
struct weights;

enum loaded_kind { LOADED_MODEL, LOADED_EAGLE, LOADED_MEDUSA, LOADED_MEDUSA_2 }; // MEDUSA_2: heads beside their model

struct loaded { // what the tensors were loaded for
    enum loaded_kind kind;
    const char *reason;              // "not supported in architecture llama": ends the message
    const char *config, *layers_key; // file and key that state the number of layers; NULL: none does
    int layers;
};

// Called after everything was loaded. Returns false and sets err if a tensor was not, unless it is known to have no effect.
bool unused_tensors_refuse(const struct weights *w, const struct loaded *l, struct error *err);
