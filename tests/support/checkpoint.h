// checkpoint.h - opens a checkpoint for a test: configuration and weights; and checks of error messages.
#pragma once
#include "core/memory.h"
#include "models/config.h"
#include "models/weights.h"

struct error;

struct checkpoint {
    struct model_config config;
    struct weights *weights;
};

// A file that cannot be opened, or a tensor that is missing or has another shape, fails the test with the error message.
struct checkpoint checkpoint_open(const char *path);
void checkpoint_close(struct checkpoint *o);
struct tensor checkpoint_tensor(const struct checkpoint *o, const char *name, int64_t rows, int64_t width);

// Fails the test unless the error message contains this path and these words.
void assert_error_mentions(const struct error *err, const char *path, const char *words);

// Faults of a file, "KEY=VALUE (WORDS); KEY=VALUE; KEY= ..": what is changed in it, and what the error says. ' in the words becomes ".
struct fault {
    char *key, *value, *words; // value "": the key is missing; words NULL: none
};
bool fault_next(char **rest, struct fault *to); // takes the first from *rest, which it changes

// The bytes of a file; free() the text.
struct text checkpoint_bytes(const char *path);
