// bpe.h - byte-pair encoding: the bytes of a piece of text, merged two by two.
//
// Training found pairs of neighbouring tokens, the most frequent first; that order is their rank. Encoding replays it:
// of all neighbours that may be merged, those of the lowest rank are, the leftmost first, until none are left.
// Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ids;

struct merge {
    int32_t left, right; // the pair; left -1: the slot is free
    uint32_t rank;
    int32_t whole; // the token it becomes
};

struct bpe {
    int32_t byte[256];   // the token of a single byte; -1: none
    int32_t unknown;     // stands for a byte without a token; -1: such a byte is dropped
    bool fuse_unknown;   // one for a run of them
    struct merge *merge; // (room) open addressing by pair
    size_t capacity;
};

void bpe_init(struct bpe *b, size_t merges); // room for so many; no byte has a token yet
void bpe_free(struct bpe *b);
void bpe_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t whole); // a pair's last rank counts

struct bpe_work {                  // memory that one piece leaves to the next; start with { 0 }
    struct symbol *symbol;         // (symbols)
    struct candidate *heap;        // (candidates)
    size_t symbols, candidates, n; // n: candidates there are
};
void bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n, struct ids *to);
void bpe_work_free(struct bpe_work *w);
