// plain_stages.h - for tests of sampling stages: stages from texts, logits, and a reference in double with sorted ids.
#pragma once
#include "sampling/sampling.h"

struct settings;

// Makes {key: value, ...} from pairs of texts that end with NULL.
struct settings *stages_mapping(const char *const *pair);
// Takes ownership of s; fails the test if it cannot be read.
struct sampling stages_read(struct settings *s);
#define SAMPLING(...) stages_read(stages_mapping((const char *const[]){ __VA_ARGS__, NULL }))

// Logits of a kind given by which % 5: smooth, in steps of 1/2 (many ties), all equal, with tokens at -INFINITY, steep.
void make_logits(float *logit, int n, int which);

void plain_softmax(double *p, const double *x, int n);
void sort_ids(int *id, const double *x, int n); // id (n): ids of x by descending value; ties by ascending id
