// draft_vocabulary.h - the relation of a draft model's vocabulary to the target's: it is the same, it has tokens in
// common, or the text is encoded again for it.
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

// ---- text between two vocabularies: the text that a draft model of another tokenizer reads, and its draft tokens as
// tokens of the target

// The text is decoded, and encoded by the draft model's tokenizer. Its draft is decoded, and encoded by the target's
// (arXiv 2502.05202, string-level; "universal assisted decoding"). The encoding of a draft depends on several tokens at
// once, so its tokens have no q: they are deterministic.
enum { WORD_TOKENS = 16 };

struct retokenizer {                // start with { 0 }
    const struct tokenizer *target; // borrowed
    struct tokenizer *draft;        // owned
    struct vocabulary_map map;      // tokens 0: there is none
    int used, draft_vocab;          // ids from these on are not in the models
    int32_t target_bos, draft_bos;  // -1: none; a text that begins with one begins with the other
};
// draft: the draft model's tokenizer, which the retokenizer owns from then on. The other parameters are those of
// vocabulary_map_create.
void retokenizer_begin(struct retokenizer *t, const struct tokenizer *target, int used, struct tokenizer *draft,
                       int draft_vocab);
void retokenizer_free(struct retokenizer *t);

// Appends the draft model's ids of a text. Up to the last word these are those of its tokenizer. The last word may be
// unfinished, and the beginning of a word is often divided differently than the word, so each of its tokens is encoded
// separately (at most WORD_TOKENS). Returns false if there are no such ids: the text ends within a character, or has a
// token that the draft model lacks.
bool retokenize_text(const struct retokenizer *t, const int32_t *token, int n, struct ids *to);
// Appends the target's ids of `count` draft tokens after that text. These are the ids that its tokenizer finds for text
// and draft together if one of them begins with the draft; otherwise those of the draft alone. Special tokens end a
// draft. Nothing is appended if there is no such division.
void retokenize_draft(const struct retokenizer *t, const int32_t *token, int n, const int32_t *draft, int count,
                      struct ids *to);

// The draws of a retokenized draft have separate addresses (FOR_OWN). Whether there is a draft depends on them, and
// then another drafter may be asked for one (ladder.c), whose draws must not depend on them.
struct own_rng {
    struct rng rng; // must be first
    struct rng *of; // borrowed
};
struct own_rng retokenize_rng(struct rng *of);

// ---- the choice among the three relations

enum vocabularies { SAME, COMMON, RETOKENIZE }; // the values of small's option `vocabulary`

struct draft_vocabulary { // initialize with { 0 }
    bool mapped;          // COMMON: the tokens differ and are mapped
    struct vocabulary_map map;
    struct retokenizer retokenizer; // used for RETOKENIZE
};

// Opens the draft model's tokenizer at `path`, and restricts the LM head of `m` to the common tokens. longest: maximum
// number of the draft model's tokens for one of the target's. Adds the tokenizer to *identity if drafts depend on it.
// Call close in any case, also after failure.
bool draft_vocabulary_open(struct draft_vocabulary *v, enum vocabularies kind, struct model *m, int longest,
                           const struct drafter_env *env, const char *path, struct hash *identity, struct error *err);
void draft_vocabulary_close(struct draft_vocabulary *v);
