// datastore.h - a text as token ids with its suffix array, in a file that is mapped. `speclab features --datastore`
// writes it, and `rest` reads it.
//
// The file is little-endian: the header, the tokens (16 or 32 bits each), zeros up to a multiple of 8 bytes, the suffix
// array (32 bits each). The suffix array has the positions in the order of the texts that begin there, compared token
// by token, a text before its continuations. A document ends with the id `vocab`, which is no token.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/files/mapped.h"

struct error;

#define DATASTORE_MAGIC "speclab-datastore-2"
enum { DATASTORE_MAGIC_BYTES = 24 };

struct datastore_header {
    char magic[DATASTORE_MAGIC_BYTES];
    uint32_t token_bytes, vocab;  // 2 or 4; ids are below vocab
    uint64_t tokens, documents;   // separators are counted among the tokens
    struct hash text, vocabulary; // hash of the tokens; hash of the texts of all ids of the tokenizer that made them
};

struct datastore { // start with { 0 }
    struct mapping file;
    const struct datastore_header *header;
    const void *token;      // (tokens)
    const uint32_t *suffix; // (tokens)
};

// Opens the file without reading it: a page is read when a search needs it. Numbers in the file are not trusted: those
// that are no tokens or positions are found when they are read, and end a match.
bool datastore_open(struct datastore *s, const char *path, struct error *err);
void datastore_close(struct datastore *s);
int32_t datastore_token(const struct datastore *s, uint64_t i); // header->vocab: the end of a document, or of the text
// Finds the range of the suffix array whose texts begin with token (n). Returns the number of these texts.
uint64_t datastore_find(const struct datastore *s, const int32_t *token, int n, uint64_t *from);
