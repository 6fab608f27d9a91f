// logits.h - a row of logits on its way to probabilities, cut into stretches that are worked on side by side.
//
// The cut is always the same, and what stretches give is put together in order: a row does not depend on who worked on
// it. Of each stretch the largest logit is known throughout, so that a stretch in which every token is ruled out (all
// but one at temperature 0) is not looked at again.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/workers.h"

enum { LOGITS_CHUNK = 4096, LOGITS_CHUNKS = 256, MAX_VOCAB = LOGITS_CHUNK * LOGITS_CHUNKS };

struct logits {
    int n;
    float *x;                  // (n) borrowed
    float most[LOGITS_CHUNKS]; // of each stretch. -INFINITY: all of it is, whatever stands there
    struct workers workers;
};

// Takes x over as numbers and -INFINITY: NaN says nothing about its token and rules it out, padding (from live on) has
// no word to its name, INFINITY is as large as a number can be. n: at most MAX_VOCAB.
struct logits logits_of(float *x, int n, int used_vocab, struct workers w);

float logits_largest(const struct logits *l);
float logits_at(const struct logits *l, int i);
void logits_set(struct logits *l, int i, float value); // no NaN
void logits_scale(struct logits *l, double by);        // x := (x - largest) * by; by > 0
// Rule out: what is less; of those equal to value all but the first `stay`; all but the first of the largest.
void logits_drop_below(struct logits *l, double least);
void logits_drop_ties(struct logits *l, float value, int stay);
void logits_keep_argmax(struct logits *l);
// The places of those that are at least `least`, ascending; -1: there are more than room.
int logits_from(const struct logits *l, float least, int32_t *place, int capacity);
double logits_weight(const struct logits *l); // sum of e^(x - largest)
// x becomes probabilities. Where nothing is left to choose from (a model that overflowed, stages that ruled everything
// out) the row is one-hot on token 0: wrong in the same way on every path, and plain to see in the text.
void logits_softmax(struct logits *l);
