// stages.h - sampling stages read from words, logits to put through them, and what a row should become, plainly: a
// softmax in double and ids that are sorted.
#pragma once
#include "sampling/sampling.h"

struct settings;

// {key: value, ...} from pairs of texts that end with NULL.
struct settings *stages_mapping(const char *const *pair);
// Takes s; what cannot be read fails the test.
struct sampling stages_read(struct settings *s);
#define SAMPLING(...) stages_read(stages_mapping((const char *const[]){ __VA_ARGS__, NULL }))

// Logits of every kind by which % 5: smooth, in steps of 1/2 (many ties), all equal, with dead tokens, steep.
void make_logits(float *logit, int n, int which);

void plain_softmax(double *p, const double *x, int n);
void sort_ids(int *id, const double *x, int n); // id (n): those of x, the likeliest first; of equals the lowest id
