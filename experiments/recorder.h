// recorder.h - the decoder's listener of an experiment: takes down what each step did, until the sequence is done and
// its
// row can go into the database.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "decode/decode.h"
#include "results/store.h"
#include "verifier/verifier.h"

struct recorder;

struct recorder *recorder_create(int slots, bool trials);
// From now on with what every step is worth to this rule and others (expectation.h): hand `watch` to the verifier. The
// expecter is the recorder's own.
struct expecter;
struct step_observer recorder_watch(struct recorder *r);
void recorder_expects(struct recorder *r, struct expecter *e);
void recorder_destroy(struct recorder *r); // NULL is fine
struct listener recorder_listener(struct recorder *r);

void recorder_expect(struct recorder *r, int64_t sequence); // from now on: a slot must be free
// A sequence that is done, written over by the next recorder_expect: token, times, stop and steps of the row, -1 when
// none
// is left. The caller adds the rest.
int64_t recorder_take(struct recorder *r, struct sequence_row *to);
