// checkpoint.h - a checkpoint opened for a test: its configuration and its weights; or what is said of one
// that cannot be.
#pragma once
#include "core/memory.h"
#include "models/config.h"
#include "models/weights.h"

struct error;

struct checkpoint {
    struct model_config config;
    struct weights *weights;
};

// What cannot be opened, or is not there in this shape, fails the test with the sentence that says why.
struct checkpoint checkpoint_open(const char *path);
void checkpoint_close(struct checkpoint *o);
struct tensor checkpoint_tensor(const struct checkpoint *o, const char *name, int64_t rows, int64_t width);

// The error is a sentence about this path with these words in it, or the test fails.
void assert_says(const struct error *err, const char *path, const char *words);

// The bytes of a file; free() the text.
struct text checkpoint_bytes(const char *path);
