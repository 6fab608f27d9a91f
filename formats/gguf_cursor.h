// gguf_cursor.h - a bounds-checked cursor over the header of a GGUF file; private to gguf.c.
//
// A read beyond the end of the file is an error that names the item being read and its byte offset.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "formats/gguf.h"

struct gguf_cursor {
    const char *path; // for messages
    const uint8_t *at, *end;
    size_t size;     // of the whole file
    char where[128]; // what is being read, for messages
    struct error *err;
};

// Sets `where`: "tensor 3", followed by (name) unless name is NULL.
void cursor_set_where(struct gguf_cursor *c, const char *what, uint64_t i, const struct gguf_string *name);
// A name from the file for a message: control characters become '?', and the name is cut to the capacity.
void cursor_show(char *to, size_t capacity, const struct gguf_string *name);

const uint8_t *cursor_take(struct gguf_cursor *c, uint64_t n); // the next n bytes; NULL: there are fewer
bool cursor_u32(struct gguf_cursor *c, uint32_t *to);
bool cursor_u64(struct gguf_cursor *c, uint64_t *to);
bool cursor_string(struct gguf_cursor *c, struct gguf_string *to);
// Reads a non-empty name and sets `where` to "what i (name)".
bool cursor_key(struct gguf_cursor *c, const char *what, uint64_t i, struct gguf_string *to);
