// vocabulary.h - tokens by id, and ids by the text that the checkpoint stores for them.
//
// A token has a text and bytes. The text is what the file stores: "Ġthe", "<|im_end|>". The bytes are what it decodes
// to: " the", "<|im_end|>". Merges and lookups use the text, decoding uses the bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/hash_map.h"
#include "core/memory.h"

struct error;

#define METASPACE "\xE2\x96\x81" // U+2581, a space in SentencePiece's tokens

enum { VOCABULARY_MAX = 1 << 24 }; // upper bound of ids; larger ones indicate a damaged file

enum token_kind {
    TOKEN_NONE, // an unused id
    TOKEN_PLAIN,
    TOKEN_ADDED,   // matched in the text before pre-tokenization
    TOKEN_SPECIAL, // matched like TOKEN_ADDED, and optionally omitted from decoded text
};

struct token {
    uint32_t text, text_n; // offset and length in `strings`
    uint32_t bytes, bytes_n;
    uint8_t kind; // enum token_kind
    bool literal; // added outside the model's vocabulary; merges never produce it
};

struct vocabulary {      // start with vocabulary_init
    int size;            // ids are 0 .. size - 1, with holes
    struct token *token; // (size)
    struct text strings;
    struct hash_table by_text; // ids
};

void vocabulary_init(struct vocabulary *v, int size, size_t tokens); // tokens: maximum number of tokens
void vocabulary_free(struct vocabulary *v);
enum token_form { // the form to which a token's text decodes
    FORM_TEXT,    // the text itself
    FORM_LETTERS, // the bytes of its byte letters; the text itself if it has other characters
    FORM_SPACES,  // the text, with a space for U+2581
    FORM_BYTE,    // the byte of "<0x0A>" (byte_of_token)
};
// Adds a token of the model's vocabulary. Of two tokens with the same text the later is found.
bool vocabulary_add(struct vocabulary *v, int32_t id, const char *text, size_t n, enum token_form form,
                    struct error *err);
void vocabulary_decode_spaces(struct vocabulary *v, int32_t id); // U+2581 in an added token decodes to a space as well
int byte_of_token(const char *text, size_t n);                   // 10 for "<0x0A>"; -1: another text
// Adds an added token: its text is literal and decodes to itself. Raises the kind of a token that exists already.
bool vocabulary_add_literal(struct vocabulary *v, int32_t id, const char *text, size_t n, enum token_kind kind,
                            struct error *err);
int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t n); // -1: none
// Looks up many texts with a common beginning. hash: fnv of the text.
int32_t vocabulary_find_hashed(const struct vocabulary *v, const char *text, size_t n, uint64_t hash);
const struct token *vocabulary_token(const struct vocabulary *v, int32_t id); // NULL: none

// GPT-2's mapping of bytes to printable characters (bytes_to_unicode). Checkpoints store the tokens of a byte-level
// tokenizer as text, so every byte is mapped to a letter: printable Latin-1 characters map to themselves, the other 68
// bytes in order to U+0100, U+0101, ... A space is U+0120 (Ġ), a line feed U+010A (Ċ).
int byte_to_letter(unsigned char byte, char to[2]); // writes the letter's UTF-8; returns its length, 1 or 2
void bytes_to_letters(const char *bytes, size_t n, struct text *to);
// Appends the bytes of the letters. Returns false and appends nothing if a character is not a letter of a byte.
bool letters_to_bytes(const char *s, size_t n, struct text *to);

// Returns a token's text for a message: quoted, shortened, control characters escaped; free() it.
char *printable_text(const char *s, size_t n);
