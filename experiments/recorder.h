// recorder.h - an experiment's listener on the decoder: records the steps of each sequence until it is done and can be
// stored.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "engine/engine.h"
#include "results/store.h"

struct drafter;
struct expecter;
struct recorder;

// trials: record acceptance tests. rows: ROWS_NONE, or record every draft with so many entries of its rows
// (packed_rows.h).
struct recorder *recorder_create(int slots, bool trials, int rows);
// Must be called before the first step. If the drafter has parts, draft tokens are recorded by the parts that proposed
// them; d is borrowed for the call. e: records expectations of every step, and the recorder owns it; NULL: none are
// recorded.
void recorder_set_drafter(struct recorder *r, const struct drafter *d, struct expecter *e);
void recorder_destroy(struct recorder *r); // NULL: no effect
// observes: rows or expectations are recorded.
struct speclab_listener recorder_listener(struct recorder *r, bool observes);

void recorder_set_round(struct recorder *r, int round); // applies to the steps that follow (table slice)
int64_t recorder_tokens(
    const struct recorder *r); // number of tokens in all steps so far, including those of sequences that are not
                               // recorded
void recorder_begin(struct recorder *r, int64_t sequence); // starts recording the sequence; a slot must be free
// Takes a finished sequence: fills tokens, times, stop reason and steps of the row, which are valid until the next
// recorder_begin. The caller fills the other fields. Returns its number; -1: none is finished.
int64_t recorder_take(struct recorder *r, struct sequence_row *to);
