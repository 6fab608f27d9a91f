// steps.h - what the last few steps did, until it is reported.
//
// A GPU is behind the host: what a step took is known later, and by then the host should have queued the next one. So a step
// is noted here, and reported when its times are known. A note has what the host has; rows and states are another step's by
// then.
#pragma once
#include <stdint.h>
#include "core/draft.h"
#include "verifier/rules/rule.h"

// The one at hand, the one that the device may still be at, and the one that it has done.
enum { STEPS_NOTED = 3 };

struct note { // of one sequence in one step
    int64_t sequence;
    int slot, position, kept;         // position: of the root; kept: tokens that are in the text
    struct draft draft;               // (nodes) where the drafter grows it
    struct verification verification; // (nodes) a copy, without room to work in
};

struct noted_step {
    int number;      // below STEPS_NOTED, no other's that is noted: which stamps are its own
    int n;           // sequences
    struct note *of; // (slots)
    int64_t watched_ns;
};

struct steps {
    int slots, first, n; // n: noted, from step[first] on, coming round
    struct noted_step step[STEPS_NOTED];
};

void steps_create(struct steps *s, int slots, int nodes);
void steps_destroy(struct steps *s);                          // { 0 } is fine
struct noted_step *steps_at_hand(struct steps *s);            // room for it; not noted yet
void steps_note(struct steps *s);                             // the one at hand
const struct noted_step *steps_oldest(const struct steps *s); // there has to be one
void steps_drop(struct steps *s);                             // the oldest

void note_verification(struct note *to, const struct verification *j);
