// tokenizer.h - encodes text to token ids and back, exactly as the checkpoint's own tokenizer does.
//
// Tokenizers are BPE over bytes or characters, and unigram, from tokenizer.json, GGUF metadata, SentencePiece's
// tokenizer.model, tiktoken's file and tekken.json. Added tokens are matched first. The remaining text is normalized,
// split by the pre-tokenizer's patterns (PCRE2, UTF and UCP), and merged by rank, or segmented by scores. A tokenizer
// is immutable and may be shared.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/memory.h"

struct error;
struct tokenizer;

// Opens a .gguf file, a tokenizer.json or tekken.json, a tokenizer.model of SentencePiece or tiktoken, or a model
// directory with one. Unsupported kinds (WordPiece, unknown pre-tokenizers) are errors that name what was found and
// what is supported.
struct tokenizer *tokenizer_open(const char *path, struct error *err);
// Returns whether there is one to open, good or bad. (tokenizer_open.c has these two.)
bool tokenizer_present(const char *path);
void tokenizer_close(struct tokenizer *t);
struct hash tokenizer_hash(
    const struct tokenizer *t); // hash of everything that can influence it (models/formats/identity.h)

int tokenizer_size(const struct tokenizer *t); // ids are 0 .. size - 1
// Returns the id of a token's text in the checkpoint's form: "<|im_end|>", or " the" in byte letters ("Ġthe"); -1:
// none.
int32_t tokenizer_id(const struct tokenizer *t, const char *token);
// Hash of the texts of all ids: equal if ids mean the same.
struct hash tokenizer_tokens_hash(const struct tokenizer *t);
// The token's bytes; NULL if there is no such id.
const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *n);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

// Appends the ids of the text. Text that is not UTF-8 is an error that names the byte. special: text such as
// "<|im_end|>" becomes that token (for a rendered chat); otherwise special tokens are encoded as ordinary text. Added
// tokens that are not special always match.
bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *to,
                      struct error *err);

// Decodes ids to text, a chunk at a time. struct decoding holds the bytes of an incomplete character between calls;
// start with { 0 }. Malformed bytes become one U+FFFD for each maximal subpart (Unicode, 3.9), as in byte-level
// decoders. SentencePiece writes one for each byte of byte pieces.
struct decoding {
    unsigned char held[4];
    int n;
    bool begun; // the text has begun: SentencePiece's tokenizers drop spaces before it
};
struct text;
void tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool special, struct decoding *state,
                      struct text *to);
// Decodes bytes of tokens.
void tokenizer_decode_bytes(struct decoding *state, const char *bytes, size_t n, struct text *to);
void tokenizer_decode_end(struct decoding *state, struct text *to); // writes U+FFFD for an incomplete character
// Returns whether two vocabularies agree: every id in both has the same bytes (one may be padded). err names the first
// difference.
bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b, struct error *err);
