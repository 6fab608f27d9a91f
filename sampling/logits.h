// logits.h - a row of logits in chunks that are processed in parallel, up to its softmax.
//
// Chunks have a fixed size and their results are combined in order, so the result does not depend on the number of
// workers. The maximum of each chunk is kept up to date. A chunk whose tokens are all at -INFINITY (all chunks but one
// at temperature 0) is not processed again.
#pragma once
#include <stdint.h>
#include "core/workers.h"

enum { LOGITS_CHUNK = 4096, LOGITS_CHUNKS = 256, MAX_VOCAB = LOGITS_CHUNK * LOGITS_CHUNKS };

struct logits {
    int n;
    float *x;                 // (n) borrowed
    float max[LOGITS_CHUNKS]; // per chunk. -INFINITY: all its logits count as -INFINITY, and x is not read there
    struct workers workers;
};

// Prepares x in place: NaN and padding ids (used_vocab and above) become -INFINITY, INFINITY becomes FLT_MAX.
// n <= MAX_VOCAB.
struct logits logits_of(float *x, int n, int used_vocab, struct workers w);

float logits_largest(const struct logits *l);
float logits_at(const struct logits *l, int i);
void logits_set(struct logits *l, int i, float value); // value is not NaN
void logits_scale(struct logits *l, double by);        // x := (x - max) * by; by > 0
// These set logits to -INFINITY: all below `min`; all that equal `value` except the first `keep`; all except the first
// of the largest.
void logits_drop_below(struct logits *l, double min);
void logits_drop_ties(struct logits *l, float value, int keep);
void logits_keep_argmax(struct logits *l);
// Writes the ids of all logits >= min, ascending, and returns their number; -1: more than capacity.
int logits_from(const struct logits *l, float min, int32_t *id, int capacity);
double logits_weight(const struct logits *l); // sum of e^(x - max)
// Turns x into probabilities. If no token remains (a model that overflowed, stages that dropped every token), the row
// becomes one-hot on token 0, on every path alike, which is visible in the text.
void logits_softmax(struct logits *l);

// For each row of x (rows, vocab), writes the ids of its k largest logits in descending order (ties: the lowest id
// first), and their probabilities under the softmax over the first used_vocab ids: id and p (rows, k), k <= used_vocab.
// x is overwritten. A row in which no token remains is one-hot on token 0. Rows are jobs of
// the workers.
void top_k_rows(struct workers w, float *x, int rows, int vocab, int used_vocab, int k, int32_t *id, float *p);
