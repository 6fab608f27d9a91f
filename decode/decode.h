// decode.h - the loop: propose, verify, advance.
//
// Sequences sit in slots; every step drafts, scores and judges for all live ones in one pass. A sequence that ends
// frees its slot. Each has its own stream of chance, keyed by the seed and its own number, so its text does not
// depend on its neighbours.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct advance;
struct decoder;
struct draft;
struct drafter;
struct error;
struct verification;
struct verifier;

enum stop_reason { STOP_TOKEN, STOP_STRING, STOP_LIMIT, STOP_CONTEXT };
const char *stop_name(enum stop_reason why); // "end", "string", "limit", "context"

struct step { // what one step did for one sequence; for whoever keeps records
    int64_t sequence;
    int position;                  // of the root in the sequence
    const struct draft *draft;     // the very one that was judged, but without q
    const struct advance *advance; // as the rule gave it, without features
    const struct verification *verification;
    int kept; // tokens of advance that are in the text: fewer than advance->n where the text ended
    int64_t propose_ns, verify_ns, advance_ns; // of the whole batch
    int batch;
};

struct ending {
    int64_t sequence;
    const int32_t *token; // (n) the new tokens, one that ends a text included
    int n;
    enum stop_reason why;
    int64_t prefill_ns;
    int64_t decode_ns; // this sequence's share of the time in steps
    int64_t wall_ns;   // from the end of its prefill to its end
};

// Called within decoder_step, outside the clocks. Everything is borrowed for the call.
//
// On a device that queues, a step is reported while the device is at the pass of the second step after it: whoever
// listens must leave the models alone. Of a sequence all steps come in order, and then its end.
struct listener {
    void (*step)(void *self, const struct step *s); // may be NULL
    void (*done)(void *self, const struct ending *e);
    void *self;
};

struct stops { // what ends a text
    int n;
    const int32_t *token; // (n) end-of-text ids; 0 of them: they are ordinary tokens (ignore_end)
    // How many of the new tokens stay, when one of the last `fresh` completes a stop string; 0: none does. May be NULL.
    int (*string)(void *self, const int32_t *token, int n, int fresh);
    void *self;
};

struct assignment {            // one sequence to decode
    int64_t sequence;          // names its stream of chance; below 2^32
    const int32_t *prompt;     // (n) at least one token; copied
    int n, limit;              // limit: new tokens at most, at least 1
    const struct stops *stops; // borrowed until it is done; NULL: nothing but the limit
};

// Borrows verifier and drafter. Of the decoders on one device only one may have live sequences: they share its stamps.
struct decoder *decoder_create(struct verifier *v, struct drafter *d, int slots, uint64_t seed,
                               struct listener listener, struct error *err);
void decoder_destroy(struct decoder *d); // of sequences that have not ended nothing more is reported

bool decoder_has_free_slot(const struct decoder *d);
// Takes in the prompt. One that leaves no room for a new token in the cache's length is an error.
bool decoder_start(struct decoder *d, const struct assignment *a, struct error *err);
bool decoder_step(struct decoder *d, struct error *err); // every live sequence, one pass
int decoder_active(const struct decoder *d);
int decoder_slot(const struct decoder *d, int64_t sequence); // of one that is live; -1: it is not
