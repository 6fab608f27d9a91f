// model_runner.h - runs passes of a model with a cache, without verifier or drafter.
#pragma once
#include <stdint.h>
#include "models/model.h"

struct runner {
    struct backend *backend;
    struct model *model;
    struct kv_cache *cache;
    int vocab;
    float *logits;           // (rows, vocab) of the last pass
    struct tensor on_device; // the same in the backend's memory
};

enum { RUNNER_ROWS = 600, RUNNER_LENGTH = 2304 };

// A CPU of one thread for a group of tests, opened by its set-up and closed by its tear-down, which removes test_directory(), too.
extern struct backend *one_cpu;
int cpu_set_up(void **state);
int cpu_tear_down(void **state);

struct runner runner_open(const char *path, int threads, const char *isa, int slots); // fails the test on error
// The same with a choice of activations and of the type of the cache.
struct runner runner_open_as(const char *path, int threads, const char *isa, int slots, enum activations a,
                             enum type cache);
// On any backend; takes ownership of it.
struct runner runner_open_on(struct backend *b, const char *path, int slots, enum activations a, enum type cache);
// For a model that was opened for RUNNER_ROWS rows; takes ownership of both.
struct runner runner_of(struct backend *b, struct model *m, int slots, enum type cache);
void runner_close(struct runner *r);
// Runs a pass and returns the logits of all rows, borrowed until the next pass. slot NULL: all in slot 0; parent NULL: a chain
// after the prefix.
const float *runner_pass(struct runner *r, int n, const int32_t *token, const int32_t *slot, const int32_t *parent);
// The logits after each token of a text that continues slot 0, one row per pass; free() them. The reference for other ways
// of running the model.
float *runner_one_by_one(struct runner *r, const int32_t *token, int n);
// Fails the test if the logits of a row differ from those of the row alone in any bit. what, n: for the message.
void runner_same_bits(const float *a, const float *b, int vocab, const char *what, int n);
// Appends tokens to the cache of a slot.
void runner_prefill(struct runner *r, int slot, const int32_t *token, int n);
