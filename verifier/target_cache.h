// target_cache.h - a target's cache that several verifiers use one after another, with the results of the last prompt's
// passes.
//
// Cells that are compared decode the same prompts. In one slot the rows of a prompt remain in the cache when its text
// is over, and the states that drafters read of them (taps) are kept with them, so a prompt is computed once for all
// cells. The time that a row took is charged to every text that has it. Rows have the same bits in every pass, so
// nothing else changes.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/kv_cache.h"
#include "models/model.h"

struct error;
struct target_cache;

enum { TARGET_CHUNK = 256 };
// Returns the tokens of a prompt in one pass: TARGET_CHUNK, if passes may have as many rows.
int target_chunk(const struct model *target);

// taps: all taps that any verifier will request. prompts: keep the rows of prompts; it has no effect with several
// slots. Borrows the model.
struct target_cache *target_cache_create(struct model *m, const struct kv_shape *shape, const struct taps *taps,
                                         bool prompts, struct error *err);
void target_cache_destroy(struct target_cache *t); // NULL is allowed
size_t target_cache_bytes(const struct model *m, const struct kv_shape *shape, const struct taps *taps, bool prompts);
struct kv_cache *target_cache_rows(struct target_cache *t);

// ---- rows of prompts, in slot 0

bool target_cache_shares(const struct target_cache *t);
// Ends a text: the slot keeps the prompt's rows.
void target_cache_forget(struct target_cache *t);
void target_cache_clear(struct target_cache *t); // keeps no rows: another pair comes next
// Returns how many first tokens of a prompt of n tokens have rows in the slot, at most all but the last. Rows of other
// tokens are dropped.
int target_cache_common(struct target_cache *t, const int32_t *token, int n);
// Computes rows from .. from + n - 1 of a prompt after those that the slot has.
bool target_cache_extend(struct target_cache *t, const int32_t *token, int from, int n, struct error *err);
// Returns the states of rows from .. from + n - 1, (n, width * taps.n), borrowed until the next call; data is NULL
// without taps.
struct tensor target_cache_states(struct target_cache *t, const struct taps *taps, int from, int n);
int64_t target_cache_ns(const struct target_cache *t, int from, int n); // nanoseconds that computing the rows took
