// vocabulary.h - tokens by id, and ids by the text that the checkpoint writes for them.
//
// A token has two faces. Its text is what stands in the file: "Ġthe", "<|im_end|>". Its bytes are what it decodes to:
// " the", "<|im_end|>". Merges and look-ups go by the text, decoding by the bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/memory.h"

struct error;

enum { VOCABULARY_MOST = 1 << 24 }; // ids are smaller than this: one that is not is a damaged file

enum token_kind {
    TOKEN_NONE, // no token has this id
    TOKEN_PLAIN,
    TOKEN_ADDED,   // looked for in the text before it is cut
    TOKEN_SPECIAL, // likewise, and left out of decoded text on request
};

struct token {
    uint32_t text, text_n; // where in `strings`
    uint32_t bytes, bytes_n;
    uint8_t kind; // enum token_kind
    bool beside;  // not one of those that merging makes: it stands beside them
};

struct vocabulary {      // start with vocabulary_init
    int size;            // ids are 0 .. size - 1, with holes
    struct token *token; // (size)
    struct text strings;
    int32_t *slot; // (room) open addressing by text; -1: free
    size_t capacity;
};

void vocabulary_init(struct vocabulary *v, int size, size_t tokens); // ids below size, at most so many of them
void vocabulary_free(struct vocabulary *v);
// A token whose text is in byte letters, or is taken as it is where it cannot be. Of two with one text the later is
// found.
bool vocabulary_add(struct vocabulary *v, int32_t id, const char *text, size_t n, struct error *err);
// A token that is added: its text is taken literally, and decodes to itself. Raises the kind of one that is there.
bool vocabulary_add_literal(struct vocabulary *v, int32_t id, const char *text, size_t n, enum token_kind kind,
                            struct error *err);
int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t n); // -1: none
const struct token *vocabulary_token(const struct vocabulary *v, int32_t id);    // NULL: none

// A token's text as a message may show it: quoted, shortened, control characters escaped; free() it.
char *printable_text(const char *s, size_t n);
