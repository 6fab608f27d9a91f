// top_k.h - the largest probabilities of rows of logits at temperature 1.
#pragma once
#include <stdint.h>
#include "core/workers.h"

// For each row of x (rows, vocab), writes its k largest logits' ids, in descending order (ties: the lowest id first), and
// their probabilities under the softmax over the first used_vocab ids: id and p (rows, k), k <= used_vocab. x is overwritten.
// A row in which no token remains is one-hot on token 0, as everywhere (sampling/logits.h). Rows are jobs of the workers.
void top_k_rows(struct workers w, float *x, int rows, int vocab, int used_vocab, int k, int32_t *id, float *p);
