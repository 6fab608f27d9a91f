// identity.h - a hash of everything in a checkpoint's configuration that can influence the computation.
//
// Configuration readers open files through this module. Keys without influence are listed here and hidden from the
// readers. All other keys are hashed, whether they are read today or not, so the hash already includes any key that the
// engine starts to read.
#pragma once
#include <stdbool.h>

struct digest;
struct error;
struct gguf;
struct json;

// Returns whether a key is ignored. file: "config.json" (a head's too), "generation_config.json",
// "tokenizer_config.json", "tokenizer.json"; NULL: GGUF metadata.
bool identity_ignores(const char *file, const char *key);

// Returns the JSON object in a file without the ignored keys; json_free() it. Adds the file's name and the remaining
// keys to d. A file that holds no object is an error.
struct json *identity_json(const char *path, struct digest *d, struct error *err);
// Adds a GGUF file's metadata to d and hides the ignored keys from lookups by key.
void identity_gguf(struct gguf *g, struct digest *d);
