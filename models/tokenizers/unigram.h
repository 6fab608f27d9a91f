// unigram.h - the unigram language model: the segmentation of a text whose tokens' scores (log probabilities) have the
// largest sum.
//
// Kudo, "Subword Regularization" (2018). A character that no token covers costs 10 more than the worst token. A run of
// such characters becomes one unknown token, or its bytes' tokens.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ids;
struct vocabulary;

struct unigram {
    const struct vocabulary *vocabulary; // borrowed
    double *score;                       // (size of the vocabulary) owned; NAN: the token is not a candidate
    size_t longest;                      // bytes of the longest token
    double unknown_score;
    int32_t unknown;   // -1: none
    int32_t byte[256]; // the tokens of bytes; -1: none
    bool single;       // sums are rounded to float, as in SentencePiece
};

// score: taken over. unknown, byte and single are set by the caller.
void unigram_init(struct unigram *u, const struct vocabulary *v, double *score);
// Makes the token a candidate with the score of SentencePiece's user-defined pieces, 0.1 for every byte except the
// first. Log probabilities are below 0, so it nearly always wins. (Measured with sentencepiece 0.2.3; releases differ.)
void unigram_user_defined(struct unigram *u, int32_t id);
void unigram_free(struct unigram *u);
// Appends the ids of UTF-8 text (n). Returns false if a character has no token, not even an unknown one.
bool unigram_encode(const struct unigram *u, const char *s, size_t n, struct ids *to);
