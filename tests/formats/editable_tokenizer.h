// editable_tokenizer.h - a little tokenizer.json that tests change a line of, and what its tokens look like side by side.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct json;
struct tokenizer;

// The usual one: byte-level BPE with GPT-2's pattern; byte b is token b; merged are "th" 256, "the" 257, " the" 258 and
// "aa" 259; nothing is added or normalised.
struct json *made_json(void);
// Sets the member at the path ("model.unk_token") to the JSON value.
void made_set(struct json *j, const char *path, const char *value);
// Opened; takes j. What cannot be opened fails the test with the sentence that says why.
struct tokenizer *editable_tokenizer(struct json *j);
// Likewise, with one member changed.
struct tokenizer *random_model_with(const char *path, const char *value);

// The text's tokens, by their bytes, with | between: "th|e| cat"; free() it.
char *made_pieces(const struct tokenizer *t, const char *text, size_t n, bool special);
void made_expect(const struct tokenizer *t, const char *text, bool special, const char *pieces);
