// decode.h - the loop: propose, verify, advance.
//
// Each sequence occupies a slot. A step drafts for, scores and verifies all active sequences in one pass. A sequence that ends
// frees its slot. Each sequence has a random stream of its own, keyed by the seed and its number, so its text does not depend
// on the other slots.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct decoder;
struct draft;
struct drafter;
struct error;
struct sampling;
struct verification;
struct verifier;

enum stop_reason { STOP_TOKEN, STOP_STRING, STOP_LIMIT, STOP_CONTEXT };
const char *stop_name(enum stop_reason why); // "end", "string", "limit", "context"

struct step { // one step of one sequence, for a listener
    int64_t sequence;
    int slot, position;                      // position: of the root in the sequence
    const struct draft *draft;               // the verified draft, without q
    const struct verification *verification; // from the rule: its first n tokens and nodes are those of the advance
    int kept; // tokens of these that belong to the text: fewer than verification->n if the text ended
    int64_t propose_ns, verify_ns, advance_ns; // of the whole batch
    int64_t at_ns;   // by the decoder's clock, from the end of the sequence's prefill until the host had these tokens
    int batch;       // sequences in this step
    int64_t experts; // that the target's pass read, of all sequences and over all layers; 0: no mixture of experts
};

struct ending { // a finished sequence, for a listener
    int64_t sequence;
    const int32_t *token; // (n) the new tokens, including an end-of-text token
    int n;
    enum stop_reason why;
    int shared;         // tokens of the prompt whose rows an earlier text had computed (verifier_setup.prompts)
    int64_t prefill_ns; // what these took then included
    int64_t decode_ns;  // this sequence's share of the time of its steps
    int64_t wall_ns;    // from the end of its prefill to its end, by the decoder's clock
};
// The decoder's clock is a wall clock that stands still outside of decoder_start and decoder_step and during what is not part of decoding:
// callbacks (unless a device works meanwhile), an observer, untimed drafts. Prefills of other sequences are part of it.

// Callbacks of decoder_step. Their time is not part of the measured times. All pointers are borrowed for the call.
//
// On a device that queues work, a step is reported while the device runs the pass of the second step after it: callbacks must
// not use the models. The steps of a sequence are reported in order, then its end.
struct listener {
    void (*step)(void *self, const struct step *s); // may be NULL
    void (*done)(void *self, const struct ending *e);
    void *self;
};

struct stops { // conditions that end a text
    int n;
    const int32_t *token; // (n) end-of-text ids; n = 0: they are ordinary tokens (ignore_end)
    // If one of the last `fresh` tokens completes a stop string: the number of new tokens to keep; else 0. May be NULL.
    int (*string)(void *self, const int32_t *token, int n, int fresh);
    void *self;
};

struct assignment {            // one sequence to decode
    int64_t sequence;          // selects its random stream; below 2^32
    const int32_t *prompt;     // (n) at least one token; copied
    int n, limit;              // limit: max new tokens, at least 1
    const struct stops *stops; // borrowed until the sequence ends; NULL: only the limit
    // The target's for this sequence, borrowed until it ends; NULL: the verifier's. A drafter's q is of the verifier's.
    const struct sampling *sampling;
};

// Borrows verifier and drafter. Decoders of one device share its time stamps: each is paused (decoder_pause) before another one steps.
struct decoder *decoder_create(struct verifier *v, struct drafter *d, int slots, uint64_t seed,
                               struct listener listener, struct error *err);
void decoder_destroy(struct decoder *d); // drops active sequences without a report

bool decoder_has_free_slot(const struct decoder *d);
// Prefills the prompt into a free slot. A prompt that fills the whole context is an error.
bool decoder_start(struct decoder *d, const struct assignment *a, struct error *err);
bool decoder_step(struct decoder *d, struct error *err); // one pass for all active sequences
// Waits for queued work and reports all steps, so that another decoder of the device may go on. Active sequences keep their slots.
bool decoder_pause(struct decoder *d, struct error *err);
void decoder_drop(struct decoder *d);        // ends active sequences without a report, after decoder_pause
int decoder_active(const struct decoder *d); // number of active sequences
int decoder_slot(const struct decoder *d, int64_t sequence); // slot of an active sequence; -1: not active
