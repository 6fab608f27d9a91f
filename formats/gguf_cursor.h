// gguf_cursor.h - a walk through the header of a GGUF file that cannot leave it; for gguf.c alone.
//
// Whatever is asked for beyond the end is an error that says what was being read, at which byte.
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

// Says what is read from now on: "tensor 3", and (name) behind it unless that is NULL.
void cursor_reads(struct gguf_cursor *c, const char *what, uint64_t i, const struct gguf_string *name);
// A name of the file for a message: what would upset a terminal is shown as '?', what does not fit is left out.
void cursor_show(char *to, size_t capacity, const struct gguf_string *name);

const uint8_t *cursor_take(struct gguf_cursor *c, uint64_t n); // the next n bytes; NULL: there are fewer
bool cursor_u32(struct gguf_cursor *c, uint32_t *to);
bool cursor_u64(struct gguf_cursor *c, uint64_t *to);
bool cursor_string(struct gguf_cursor *c, struct gguf_string *to);
// a name, read as "what i"
bool cursor_key(struct gguf_cursor *c, const char *what, uint64_t i, struct gguf_string *to);
