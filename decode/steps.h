// steps.h - a queue of the last few steps that are not reported yet.
//
// A GPU runs behind the host: the times of a step are known only after the host should have queued the next one. A step is
// therefore recorded here and reported when its times are known. A record holds data in host memory only: rows of
// probabilities and hidden states belong to another step by then.
#pragma once
#include <stdint.h>
#include "core/draft.h"
#include "verifier/rules/rule.h"

// The current step, the step that the device may still be running, and the step that it has finished.
enum { MAX_PENDING_STEPS = 3 };

struct sequence_record { // one sequence in one step
    int64_t sequence;
    int slot, position, kept;         // position: of the root; kept: tokens that belong to the text
    int64_t at_ns;                    // of struct step
    struct draft draft;               // (nodes) the drafter builds it here
    struct verification verification; // (nodes) a copy, without the work rows
};

struct step_record {
    int number;                      // below MAX_PENDING_STEPS, unique among pending steps: selects the time stamps
    int n;                           // sequences
    struct sequence_record *of;      // (slots)
    int64_t observer_ns, untimed_ns; // not counted: of the verifier's observer, of the drafter
    int64_t experts;                 // that the target's pass read
};

struct steps {
    int slots, first, n; // ring buffer: n pending steps, beginning with step[first]
    struct step_record step[MAX_PENDING_STEPS];
};

void steps_create(struct steps *s, int slots, int nodes);
void steps_destroy(struct steps *s);                           // { 0 } is fine
struct step_record *steps_current(struct steps *s);            // the record to fill in; not in the queue yet
void steps_push(struct steps *s);                              // adds the current record to the queue
const struct step_record *steps_oldest(const struct steps *s); // the queue must not be empty
void steps_pop(struct steps *s);                               // removes the oldest

void record_verification(struct sequence_record *to, const struct verification *j);
