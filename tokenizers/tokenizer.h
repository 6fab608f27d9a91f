// tokenizer.h - text to token ids and back, as the checkpoint's own tokenizer does it.
//
// Byte-level BPE, from GGUF metadata or from tokenizer.json: added tokens are found first, the rest is normalised
// (NFC where the file says so), cut by the pre-tokenizer's patterns (PCRE2, UTF and UCP), mapped to byte characters and
// merged by rank. A tokenizer is immutable and may be shared.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"

struct error;
struct tokenizer;

struct ids { // start with { 0 }; free() the array
    int32_t *id;
    size_t n, capacity;
};
void ids_add(struct ids *ids, int32_t id);

// A .gguf file or a model directory with tokenizer.json. Kinds we do not have (sentencepiece, unigram, wordpiece;
// unknown pre-tokenizers) are errors that say what was found and what is known.
struct tokenizer *tokenizer_open(const char *path, struct error *err);
void tokenizer_close(struct tokenizer *t);
struct hash tokenizer_hash(const struct tokenizer *t); // of all that its reader was handed (formats/identity.h)

int tokenizer_size(const struct tokenizer *t); // ids are 0 .. size - 1
// Of a token's text as the checkpoint writes it: "<|im_end|>", and " the" in byte letters ("Ġthe"); -1: none.
int32_t tokenizer_id(const struct tokenizer *t, const char *token);
const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *n); // its bytes; NULL: no such id
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

// Appends the ids of the text; text that is not UTF-8 is an error that says at which byte. special: text such as
// "<|im_end|>" becomes that token (a rendered chat); otherwise special tokens are read as ordinary text, added tokens
// that are not special are still found.
bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *to,
                      struct error *err);

// Ids back to bytes, a stretch at a time: `hold` keeps the bytes of a character that is not yet complete (start with {
// 0 }).
struct decoding {
    unsigned char held[4];
    int n;
};
struct text;
void tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool special, struct decoding *hold,
                      struct text *to);
void tokenizer_decode_end(struct decoding *hold, struct text *to); // what is still held comes out as U+FFFD
// Whether two vocabularies are one: every id both know means the same bytes (one may be padded). The message says where
// they part.
bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b, struct error *err);
