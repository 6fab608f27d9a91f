// editable_tokenizer.h - a small tokenizer.json that tests modify, and helpers that compare its tokens.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct json;
struct tokenizer;

// The default tokenizer: byte-level BPE with GPT-2's pattern; byte b is token b; merges make "th" 256, "the" 257, " the"
// 258 and "aa" 259; no added tokens, no normalization.
struct json *editable_json(void);
// Sets the member at the path ("model.unk_token") to the JSON value, as of json_of().
void editable_set(struct json *j, const char *path, const char *value);
// Opens it; takes ownership of j. A failure fails the test with the error message.
struct tokenizer *editable_tokenizer(struct json *j);
// The default tokenizer with one member changed.
struct tokenizer *editable_tokenizer_with(const char *path, const char *value);

// The bytes of the text's tokens, separated by |: "th|e| cat"; free() it.
char *editable_pieces(const struct tokenizer *t, const char *text, size_t n, bool special);
void editable_expect(const struct tokenizer *t, const char *text, bool special, const char *pieces);
