// model_runner.h - a model with a cache, fed by tests row by row: what the verifier and the drafters do, without either.
#pragma once
#include <stdint.h>
#include "models/model.h"

struct runner {
    struct backend *backend;
    struct model *model;
    struct kv_cache *cache;
    int vocab;
    float *logits;           // (rows, vocab) of the last pass
    struct tensor on_device; // the same, where the backend has them
};

enum { RUNNER_ROWS = 600, RUNNER_LENGTH = 2304 };

struct runner runner_open(const char *path, int threads, const char *isa, int slots); // ends the test on failure
// The same with what rows are rounded to, and the cache's type.
struct runner runner_open_as(const char *path, int threads, const char *isa, int slots, enum activations a,
                             enum type cache);
// On any backend, which is the runner's from then on.
struct runner runner_open_on(struct backend *b, const char *path, int slots, enum activations a, enum type cache);
// Of a model that was opened for RUNNER_ROWS rows; both are the runner's from then on.
struct runner runner_of(struct backend *b, struct model *m, int slots, enum type cache);
void runner_close(struct runner *r);
// A pass; logits of every row, borrowed until the next. slot NULL: all in slot 0; parent NULL: a chain behind the
// prefix.
const float *runner_pass(struct runner *r, int n, const int32_t *token, const int32_t *slot, const int32_t *parent);
// The logits after each token of a text behind slot 0's prefix, one row a pass; free() them. What everything else is
// compared with.
float *runner_one_by_one(struct runner *r, const int32_t *token, int n);
// Ends the test if a row's logits are not the bits it has alone. what, n: for the sentence.
void runner_same_bits(const float *a, const float *b, int vocab, const char *what, int n);
// Feeds a certain stretch into a slot and keeps it.
void runner_feed(struct runner *r, int slot, const int32_t *token, int n);
