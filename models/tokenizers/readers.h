// readers.h - the parts of a tokenizer, and the readers that make one from each form of files. tokenizer_open.c chooses
// the reader.
#pragma once
#include "core/digest.h"
#include "models/tokenizers/added_tokens.h"
#include "models/tokenizers/bpe.h"
#include "models/tokenizers/normalizer.h"
#include "models/tokenizers/pretokenize.h"
#include "models/tokenizers/unigram.h"
#include "models/tokenizers/vocabulary.h"

struct error;
struct gguf;
struct json;

enum drops { // spaces that are removed where a decoded text begins
    DROPS_NOTHING,
    DROPS_SPACE,       // one space, wherever it comes from (a tokenizer.json's Strip)
    DROPS_FIRST_TOKEN, // all spaces of the first token (its Metaspace)
    DROPS_PREFIX,      // one space of a token that is not a byte (SentencePiece's add_dummy_prefix)
    DROPS_LEADING,     // one space of every such token until the text begins (its remove_extra_whitespaces)
};

struct tokenizer {
    char *name; // name of the file, for messages; owned
    struct hash hash;
    struct vocabulary vocabulary;
    struct added raw, normal; // tokens matched in the original text, and in the normalized text
    struct normalizer normalizer;
    struct pretokenizer cut;
    bool ignore_merges; // a piece that is a token is not merged (as in Llama 3)
    bool byte_letters;  // bpe merges byte letters as characters
    struct bpe bpe;     // used if there is no unigram model
    bool unigram_model;
    struct unigram unigram;
    enum drops drops;
};

enum piece_kind { // numbered as in SentencePiece and GGUF
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN = 2,
    PIECE_CONTROL = 3,
    PIECE_USER_DEFINED = 4,
    PIECE_UNUSED = 5,
    PIECE_BYTE = 6,
};

struct piece {
    const char *text;
    size_t n;
    double score;
    int kind; // enum piece_kind
};

struct piece_model { // the data that SentencePiece stores, in its own files or in GGUF
    bool unigram;    // otherwise BPE
    bool prefix;     // a space before the text
    bool collapse;   // extra spaces are removed
    bool spaces;     // a space in a user-defined piece is U+2581, as in GGUF
    const void *map; // (map_n) precompiled_charsmap
    size_t map_n;
    const struct piece *piece; // (n)
    size_t n;
};
// Makes a tokenizer of them (sentencepiece.c).
bool tokenizer_of_pieces(struct tokenizer *t, const struct piece_model *m, struct error *err);

// The source of a tokenizer: one of these is set.
struct tokenizer_source {
    struct json *json;
    struct gguf *gguf;
    const char *bytes; // (n) the file
    size_t n;
};
// Each fills a new tokenizer. On failure err describes the error, and the caller puts the name of the file before it.
// The readers are in tokenizer_json.c, tokenizer_gguf.c and sentencepiece.c; tiktoken.c has both of its forms.
typedef bool tokenizer_reader(struct tokenizer *t, const struct tokenizer_source *s, struct error *err);
tokenizer_reader tokenizer_read_json, tokenizer_read_tekken, tokenizer_read_gguf, tokenizer_read_sentencepiece,
    tokenizer_read_tiktoken;
bool tokenizer_in_gguf(const struct gguf *g); // the model is not llama.cpp's "none"
// Makes a tokenizer from a parsed tokenizer.json (tokenizer_open.c). name: for messages.
struct tokenizer *tokenizer_from_json(struct json *j, const char *name, struct error *err);

// llama.cpp takes as many tokens as the embedding has rows. Unused ones fill the list, and this key gives the number of
// tokens before them.
#define TOKENS_GGUF "speclab.token_count"

// These steps are shared by readers. They add a token that is matched in the text before anything else; set the tokens
// of single bytes, as byte letters or "<0x00>" .. "<0xFF>", looked up in the vocabulary at this point, -1: none; and
// add merge number `rank`, of two tokens given by their texts.
bool tokenizer_add_raw(struct tokenizer *t, int32_t id, const char *text, size_t n, enum token_kind kind,
                       struct error *err);
void tokenizer_find_bytes(const struct tokenizer *t, bool letters, int32_t byte[256]);
bool tokenizer_merge(struct tokenizer *t, size_t rank, const char *left, size_t left_n, const char *right,
                     size_t right_n, struct error *err);
