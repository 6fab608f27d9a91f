// recorder.h - an experiment's listener on the decoder: records the steps of each sequence until it is done and can be stored.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "decode/decode.h"
#include "results/store.h"
#include "verifier/verifier.h"

struct drafter;
struct recorder;

struct recorder *recorder_create(int slots, bool trials);
// Record expectations of every step (expectation.h), or its draft and rows (packed_rows.h): pass the observer to the verifier, and set the
// expecter, which the recorder then owns, or the entries of a row that are kept.
struct expecter;
struct step_observer recorder_observer(struct recorder *r);
void recorder_set_expecter(struct recorder *r, struct expecter *e);
void recorder_set_rows(struct recorder *r, int entries);
// The drafter's parts, if it has any: draft tokens are recorded by the parts that proposed them. d is borrowed for the call.
void recorder_set_drafter(struct recorder *r, const struct drafter *d);
void recorder_destroy(struct recorder *r); // NULL: no effect
struct listener recorder_listener(struct recorder *r);

void recorder_set_round(struct recorder *r, int round); // for the steps that follow (table slice)
int64_t recorder_tokens(
    const struct recorder *r); // in all steps so far, those of sequences that are not recorded included
void recorder_begin(struct recorder *r, int64_t sequence); // starts recording it; a slot must be free
// Takes a finished sequence: fills tokens, times, stop reason and steps of the row, which stay valid until the next
// recorder_begin; the caller fills the rest. Returns its number; -1: none is finished.
int64_t recorder_take(struct recorder *r, struct sequence_row *to);
