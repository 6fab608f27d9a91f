// draft_vocabulary.h - what the vocabulary of a draft model is to the target's: the same, one with tokens in common, or one that the text is encoded
// in again.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "sampling/rng.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/vocabulary_map.h"

struct drafter_env;
struct error;
struct hash;
struct model;

// ---- the text between two vocabularies: what a draft model of another tokenizer reads, and what its draft tokens are for the target

// The text is decoded, and encoded by the draft model's tokenizer; its draft is decoded and encoded by the target's (arXiv 2502.05202,
// string-level; "universal assisted decoding"). What a draft becomes depends on several tokens at once, so its tokens have no q: they are
// deterministic.
enum { WORD_TOKENS = 16 };

struct retokenizer {                // start with { 0 }
    const struct tokenizer *target; // borrowed
    struct tokenizer *draft;        // owned
    struct vocabulary_map map;      // tokens 0: there is none
    int used, draft_vocab;          // ids from here on are not in the models
    int32_t target_bos, draft_bos;  // -1: none; a text that begins with one begins with the other
};
// draft: the draft model's tokenizer, which the retokenizer then owns. The other parameters are those of vocabulary_map_create.
void retokenizer_begin(struct retokenizer *t, const struct tokenizer *target, int used, struct tokenizer *draft,
                       int draft_vocab);
void retokenizer_free(struct retokenizer *t);

// Appends the draft model's ids of a text: those of its tokenizer up to the last word, and of that, which may be unfinished, those of each of
// its tokens (a word's beginning is often divided in another way than the word; at most WORD_TOKENS). False: there are none, as the text ends
// within a character, or has a token that the draft model lacks.
bool retokenize_text(const struct retokenizer *t, const int32_t *token, int n, struct ids *to);
// Appends the target's ids of `count` draft tokens after that text: those that its tokenizer finds in the text and the draft together, where
// one begins with the draft, otherwise those of the draft alone. Special tokens end a draft. None if there is no such division.
void retokenize_draft(const struct retokenizer *t, const int32_t *token, int n, const int32_t *draft, int count,
                      struct ids *to);

// The draws of a draft that is retokenized have addresses of their own (FOR_OWN): whether there is a draft depends on them, and then another
// drafter may be requested for one (ladder.c), whose draws must not.
struct own_rng {
    struct rng rng; // first
    struct rng *of; // borrowed
};
struct own_rng retokenize_rng(struct rng *of);

// ---- which of the three

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
