// vocabulary_map.h - the tokens that two vocabularies share, and each token of the first one as tokens of the second
// one.
//
// Tokens are the same if they decode to the same bytes, and if both or none of them are special. Timor et al. 2025
// (arXiv 2502.05202, "token-level intersection").
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct tokenizer;

struct vocabulary_map {            // a map from a target's vocabulary to a draft model's
    int common;                    // number of shared tokens
    int32_t *target_id, *draft_id; // (common) ascending target ids, and the draft model's ids of the same tokens
    int tokens;                    // number of the target's tokens: `used`
    int32_t *first,
        *id;     // token t of the target is id[first[t]] .. id[first[t + 1] - 1]: one id if it is shared, otherwise the
                 // longest tokens of the draft model with which its bytes begin, one after the other
    int longest; // length of the longest of these lists
};

// used: ids of the target from this one on are padding. draft_vocab: ids of the draft model from this one on have no
// rows. Returns false and sets err if no token is shared, or a byte has no token in the draft model.
bool vocabulary_map_create(struct vocabulary_map *m, const struct tokenizer *target, int used,
                           const struct tokenizer *draft, int draft_vocab, struct error *err);
bool vocabulary_map_shares(const struct vocabulary_map *m, int32_t token); // whether a token of the target is shared
void vocabulary_map_free(struct vocabulary_map *m);                        // { 0 }: no effect
