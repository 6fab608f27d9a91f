// tokenizer_parts.h - a tokenizer from the inside, for the files that make one.
#pragma once
#include "core/digest.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/bpe.h"
#include "tokenizers/pretokenize.h"
#include "tokenizers/vocabulary.h"

struct error;
struct gguf;
struct gguf_writer;
struct json;

struct tokenizer {
    char *name; // of the file, for messages; owned
    struct hash hash;
    struct vocabulary vocabulary;
    struct added raw, normal; // looked for in the text as it is, and after it was normalised
    bool nfc;
    struct pretokenizer cut;
    bool whole_pieces; // a piece that is a token needs no merging (Llama 3's ignore_merges)
    struct bpe bpe;
};

struct tokenizer *tokenizer_from_gguf(const struct gguf *g, struct error *err);
struct tokenizer *tokenizer_from_json(const struct json *j, const char *name, struct error *err);

// A tokenizer.json's as GGUF can say it: *pre is its family there. The sentence names what GGUF has no word for.
bool tokenizer_fits_gguf(const struct tokenizer *t, const struct json *file, const char **pre, struct error *err);
void tokenizer_write_gguf(const struct tokenizer *t, const char *pre, struct gguf_writer *w);
// Whether both give every text the same ids: the same tokens, merges, added tokens and order of things.
bool tokenizer_alike(const struct tokenizer *a, const struct tokenizer *b);

// The steps that both take, in this order: the tokens of single bytes, from the vocabulary as it is then; merge number
// `rank`, of two tokens given by their texts; what is left to do at the end.
void tokenizer_bytes(struct tokenizer *t);
bool tokenizer_merge(struct tokenizer *t, size_t rank, const char *left, size_t left_n, const char *right,
                     size_t right_n, struct error *err);
bool tokenizer_ready(struct tokenizer *t, struct error *err);
