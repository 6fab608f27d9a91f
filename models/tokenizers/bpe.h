// bpe.h - byte-pair encoding: merges the bytes or characters of a piece of text pairwise into tokens.
//
// Training finds pairs of adjacent tokens, the most frequent first; this order is their rank. Encoding repeatedly
// merges the adjacent pair of the lowest rank, the leftmost first, until no pair can be merged. Merges are either a
// table of pairs (Hugging Face), or every two symbols merge whose texts form a token, with that token's rank
// (SentencePiece, tiktoken). Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/hash_map.h"

struct ids;
struct vocabulary;

struct merge {
    int32_t left, right; // the pair
    uint32_t rank;
    int32_t merged; // the resulting token
};

#define NEVER_MADE UINT32_MAX // the rank of a token that no merge makes

struct bpe {
    const struct vocabulary *characters; // borrowed: the first symbols are characters, looked up here; NULL: bytes
    uint32_t *rank; // (its size) ranks of the tokens, owned; NEVER_MADE: never made. NULL: pairs merge as `merge` says
    bool *unused;   // (its size) whether a token is made and then taken apart again, owned; NULL: no token is
    size_t longest; // bytes of the longest token with a rank
    int32_t byte[256];   // the token of each single byte; of characters: of their bytes if they have no token; -1: none
    int32_t unknown;     // the token for text that has none; -1: such bytes or characters are dropped
    bool fuse_unknown;   // one `unknown` for a run of them
    struct merge *merge; // (merges)
    int32_t merges;
    struct hash_table by_pair; // indices of merges
};

void bpe_init(struct bpe *b, size_t merges); // capacity for `merges` merges; no byte has a token yet
// Initializes merges by text: first symbols are characters. Takes rank and unused over.
void bpe_init_texts(struct bpe *b, const struct vocabulary *v, uint32_t *rank, bool *unused);
void bpe_free(struct bpe *b);
void bpe_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank,
               int32_t merged); // overwrites an earlier rank of the pair

struct bpe_work {                  // workspace, reused for each piece; start with { 0 }
    struct symbol *symbol;         // (symbols)
    struct candidate *heap;        // (candidates)
    size_t symbols, candidates, n; // two capacities; n: candidates in the heap
    int32_t *left; // (size of the vocabulary) bytes of the left part of an unused token; NULL: not needed yet
};
// Appends the ids of UTF-8 text, or of bytes (n).
void bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n, struct ids *to);
void bpe_work_free(struct bpe_work *w);
