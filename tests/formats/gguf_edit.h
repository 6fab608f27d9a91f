// gguf_edit.h - metadata of GGUF files as JSON, and copies of files with other metadata.
#pragma once
#include "tests/formats/gguf_write.h"

struct json;

// An integer becomes u32, another number f32, a list of integers i32, one of texts texts; null is not written.
void gguf_write_json(struct gguf_writer *w, const char *key, const struct json *value);

struct gguf_vector {
    const char *name;
    uint64_t n;
    int ggml_type;
    const void *data;
    size_t bytes;
};

// Copies a file, with other values of these keys ("{'llama.block_count': 2}", as of json_of(); null: without it), and with one tensor more
// (NULL: none).
void gguf_edit(const char *from, const char *to, const char *values, const struct gguf_vector *more);
