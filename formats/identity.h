// identity.h - what of a checkpoint's files decides what is computed: everything that a reader of configuration is handed.
//
// By construction, not by a list of keys: a reader gets a file through here; keys that mean nothing are on a list, and hidden
// from it; all else is in the hash, whether anybody reads it today or not. So a key that the engine begins to read is in
// the hash before it does.
#pragma once
#include <stdbool.h>

struct digest;
struct error;
struct gguf;
struct json;

// Whether such a key means nothing. file: "config.json" (a head's too), "generation_config.json", "tokenizer_config.json",
// "tokenizer.json"; NULL: GGUF metadata.
bool identity_ignores(const char *file, const char *key);

// The JSON object in a file without those keys; json_free() it. Its name and what is left of it are added to d. A file
// that holds no object is an error.
struct json *identity_json(const char *path, struct digest *d, struct error *err);
// Adds a GGUF file's metadata to d. From then on gguf_find and all that go by a key do not find what means nothing.
void identity_gguf(struct gguf *g, struct digest *d);
