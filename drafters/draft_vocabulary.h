// draft_vocabulary.h - what the vocabulary of a draft model is to the target's: the same, one with tokens in common, or one that the text is encoded
// in again.
#pragma once
#include <stdbool.h>
#include "drafters/retokenize.h"
#include "tokenizers/vocabulary_map.h"

struct drafter_env;
struct error;
struct hash;
struct model;

enum vocabularies { SAME, COMMON, RETOKENIZE }; // as in small's option `vocabulary`

struct draft_vocabulary { // initialize with { 0 }
    bool mapped;          // of COMMON, unless the tokens are the same
    struct vocabulary_map map;
    struct retokenizer retokenizer; // of RETOKENIZE
};

// Opens the tokenizer at `path`, which is the draft model's, and restricts the LM head of `m` to the tokens in common. longest: of the draft model's
// tokens that one of the target's may be. Adds the tokenizer to *identity where drafts depend on it. Call close also after failure.
bool draft_vocabulary_open(struct draft_vocabulary *v, enum vocabularies kind, struct model *m, int longest,
                           const struct drafter_env *env, const char *path, struct hash *identity, struct error *err);
void draft_vocabulary_close(struct draft_vocabulary *v);
