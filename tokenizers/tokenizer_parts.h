// tokenizer_parts.h - the struct of a tokenizer; for the files that read, write and use one.
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
    struct added raw, normal; // matched in the original text, and in the normalized text
    bool nfc;
    struct pretokenizer cut;
    bool ignore_merges; // a piece that is a token is not merged (as in Llama 3)
    struct bpe bpe;
};

struct tokenizer *tokenizer_from_gguf(const struct gguf *g, struct error *err);
struct tokenizer *tokenizer_from_json(const struct json *j, const char *name, struct error *err);

// Whether GGUF can represent the tokenizer of a tokenizer.json; *pre is its tokenizer.ggml.pre. err names what GGUF cannot
// represent.
bool tokenizer_fits_gguf(const struct tokenizer *t, const struct json *file, const char **pre, struct error *err);
void tokenizer_write_gguf(const struct tokenizer *t, const char *pre, struct gguf_writer *w);
// Whether both encode every text to the same ids: the same tokens, merges and added tokens.
bool tokenizer_equal(const struct tokenizer *a, const struct tokenizer *b);

// Steps shared by both readers, in this order: the tokens of single bytes, looked up in the vocabulary at this point;
// merge number `rank`, of two tokens given by their texts; the final step.
void tokenizer_bytes(struct tokenizer *t);
bool tokenizer_merge(struct tokenizer *t, size_t rank, const char *left, size_t left_n, const char *right,
                     size_t right_n, struct error *err);
bool tokenizer_finish(struct tokenizer *t, struct error *err);
