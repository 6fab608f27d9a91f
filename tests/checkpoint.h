// checkpoint.h - a checkpoint opened for a test: its configuration and its weights.
#pragma once
#include "core/memory.h"
#include "models/config.h"
#include "models/weights.h"

struct checkpoint {
    struct model_config config;
    struct weights *weights;
};

// What cannot be opened, or is not there in this shape, fails the test with the sentence that says why.
struct checkpoint checkpoint_open(const char *path);
void checkpoint_close(struct checkpoint *o);
struct tensor checkpoint_tensor(const struct checkpoint *o, const char *name, int64_t rows, int64_t width);

// The bytes of a file; free() the text.
struct text checkpoint_bytes(const char *path);
