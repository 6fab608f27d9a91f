// texts.h - reads training texts: JSON Lines of conversations with `input_ids` and `loss_mask` (docs/training.md).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/files/json_lines.h"

struct error;

struct texts {                     // conversations end to end; start with { 0 }
    int64_t first;                 // number of the first in the file, from 0
    int n;                         // conversations
    int64_t *offset;               // (n + 1) conversation i has tokens offset[i] .. offset[i + 1] - 1
    int32_t *id;                   // (offset[n]) what the model saw and wrote
    uint8_t *mask;                 // (offset[n]) 1: the target wrote it as an answer
    int64_t tokens, conversations; // capacities
};
void texts_begin(struct texts *t);                                          // a conversation without tokens
void texts_add(struct texts *t, const int32_t *id, size_t n, uint8_t mask); // appends to the last conversation
void texts_free(struct texts *t);

struct text_reader {
    struct json_lines lines;
    int vocab, context; // maximum id + 1, maximum tokens; longer texts are cut at the end
    int64_t limit;      // conversations to read; 0: all
    int64_t read, cut;  // conversations so far, and those of them that were cut
};

// path: a regular file. context, limit: as in the struct. Returns false and sets err on failure.
bool text_reader_open(struct text_reader *r, const char *path, int vocab, int context, int64_t limit,
                      struct error *err);
void text_reader_close(struct text_reader *r); // { 0 }: no effect
// Replaces the texts by the next conversations, until they have at least this many tokens. t->n is 0 at the end. Errors
// name file and line.
bool text_reader_next(struct text_reader *r, int64_t tokens, struct texts *t, struct error *err);
