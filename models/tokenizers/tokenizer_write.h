// tokenizer_write.h - the tokenizer of a tokenizer.json in the form of GGUF, for programs that write one.
#pragma once
#include <stdbool.h>

struct error;
struct json;
struct tokenizer;

// Returns whether GGUF can represent the tokenizer of a tokenizer.json; *pre is its tokenizer.ggml.pre. err names what
// GGUF cannot represent.
bool tokenizer_fits_gguf(const struct tokenizer *t, const struct json *file, const char **pre, struct error *err);
// Returns {"tokens": [text or null], "kinds": [enum piece_kind], "merges": ["a b"], "ignore_merges"} of a byte-level
// tokenizer.
struct json *tokenizer_json(const struct tokenizer *t);
