// tokenizer_parts.h - a tokenizer from the inside, for the files that make one.
#pragma once
#include "models/added.h"
#include "models/bpe.h"
#include "models/pretokenize.h"
#include "models/vocabulary.h"

struct error;
struct gguf;
struct json;

struct tokenizer {
    char *name; // of the file, for messages; owned
    struct vocabulary vocabulary;
    struct added raw, normal; // looked for in the text as it is, and after it was normalised
    bool nfc;
    struct pretokenizer cut;
    bool whole_pieces; // a piece that is a token needs no merging (Llama 3's ignore_merges)
    struct bpe bpe;
};

struct tokenizer *tokenizer_from_gguf(const struct gguf *g, struct error *err);
struct tokenizer *tokenizer_from_json(const struct json *j, const char *name, struct error *err);

// The steps that both take, in this order: the tokens of single bytes, from the vocabulary as it is then; merge number
// `rank`, of two tokens given by their texts; what is left to do at the end.
void tokenizer_bytes(struct tokenizer *t);
bool tokenizer_merge(struct tokenizer *t, size_t rank, const char *left, size_t left_n, const char *right,
                     size_t right_n, struct error *err);
bool tokenizer_ready(struct tokenizer *t, struct error *err);
