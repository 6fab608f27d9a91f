// engine.h - what is behind the library's interface (speclab.h), for the code of this tree: the members of a target and
// a decoder, and decoders that are read from settings, or opened in two parts because their verifiers share a cache.
//
// A target (a model on a backend, with its tokenizer) is opened once and shared. A decoder (a drafter, a rule and a
// sampling) is first read, which checks everything that needs no model, then opened on a target. `speclab generate` has
// one of each; an experiment has a target and a decoder per cell:
//
//     struct speclab_target *t = speclab_target_open("smollm2-135m-instruct", NULL, &err);
//     struct speclab_decoder *d = decoder_read(drafter, rule, sampling, &err); // speclab_decoder_create reads texts
//     d->listener = ..                                                         // and what else precedes opening
//     bool ok = decoder_open(d, t, 1, 2048, &err) && speclab_decoder_start(d, &request, &err);
//     while (ok && speclab_decoder_active(d) > 0)
//         ok = speclab_decoder_step(d, &err);
//     speclab_decoder_destroy(d);
//     speclab_target_close(t);
//
// Functions that return bool return false and set err on failure.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "core/error.h"
#include "core/tensor.h"
#include "engine/stop_strings.h"
#include "kernels/devices.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "models/tokenizers/chat_template.h"
#include "models/tokenizers/tokenizer.h"
#include "sampling/sampling.h"
#include "verifier/verifier.h"
#include "engine/speclab.h"

struct backend;
struct drafter;
struct drafter_type;
struct model;
struct rule;
struct settings;
struct weights;

// TARGET_ROWS: max rows of a pass that suits one slot: any draft (MAX_NODES), and prompts in large chunks.
// SCORE_ROWS: rows of a pass that suits `inspect --score`, enough to amortize reading the weights.
enum { TARGET_ROWS = 512, SCORE_ROWS = 128, TARGET_ENDS = MAX_ENDS + 1, MAX_THREADS = 1024 };

// ---- the target (target.c)

struct speclab_target {
    char *path; // the model's, or the name of its shape (models/formats/shape.h); owned
    struct devices *devices;
    struct backend *backend; // the model's
    struct model *model;
    struct tokenizer *tokenizer; // NULL: missing or not supported, see no_tokenizer
    struct error no_tokenizer;   // why tokenizer is NULL
    struct chat_format chat;     // kind CHAT_NONE if there is no_chat
    struct error no_chat;        // why conversations have no template; "": they have one, or need none
    enum type cache;             // element type of keys and values
    int used_vocab; // ids that the tokenizer knows, at most the vocabulary; later ids are padding, never sampled
    struct states_memory *states; // kept between calls of speclab_states and speclab_score (states.c); NULL: none
    struct weights *weights;      // opened by the first call of speclab_weight (facts.c); NULL: there was none
};

void states_memory_free(struct states_memory *s, struct backend *b); // NULL is fine (states.c)
// value: 0 or from 1 to max; why: what sets the maximum, for the message.
bool option_in_range(const char *what, int value, int max, const char *why, struct error *err);
bool target_needs_text(const struct speclab_target *t, struct error *err); // fails without a tokenizer (stop_strings.c)
// Selects another chat template: chat_choose with the checkpoint's own template and tokens.
bool target_set_chat(struct speclab_target *t, struct chat_request r, struct error *err);
// Appends the ids of n messages, ready for the answer. The tokenizer's BOS comes first unless a template writes its
// own.
bool target_encode_chat(const struct speclab_target *t, const struct message *m, int n, struct ids *to,
                        struct error *err);

// Appends token ids of text to `to`: a whole prompt begins with BOS if the model's tokenizer adds it, a continuation
// does not. In a rendered chat special tokens are recognized; it has a BOS of its own, or none.
enum { ENCODE_BOS = 1, ENCODE_SPECIAL = 2 };
bool text_encode(const struct tokenizer *t, const struct model_config *c, int how, const char *text, size_t n,
                 struct ids *to, struct error *err);
bool target_encode(const struct speclab_target *t, int how, const char *text, size_t n, struct ids *to,
                   struct error *err);
static inline int encode_rendered(const struct chat_format *chat)
{
    return ENCODE_SPECIAL | (chat_lacks_bos(chat) ? ENCODE_BOS : 0);
}

// ---- the decoder

struct speclab_decoder {
    // As read; owned. NULL: the parts are another's (decoder_create)
    const struct drafter_type *type;
    void *drafter_options;
    const struct rule *rule;
    void *rule_options;
    struct sampling sampling;
    // Set before opening
    uint64_t seed;
    struct speclab_listener listener;
    bool texts; // speclab_end.text is made
    // As opened
    struct speclab_target *target;
    struct drafter *drafter;
    struct verifier *verifier;
    // The loop (decode.c)
    int slots, length, nodes;
    int n_end;
    int32_t end[TARGET_ENDS];  // tokens that end a text: the checkpoint's and the chat template's
    int64_t left_ns, still_ns; // when the last call returned; time that is not part of the decoder's clock
    struct sequence *sequence; // (slots)
    struct request *request;   // (slots)
    struct advance *advance;   // (slots)
    struct advance *continued; // (slots) advances of the sequences that have not ended, for the drafter
    int first, pending;        // ring buffer: so many steps that are not reported yet, beginning with record[first]
    struct step_record *record;
};

// Reads and checks options (decoder.c). Each argument is a mapping with the key `kind` (sampling: a mapping of stage
// names), or NULL: drafter none, rule rejection, temperature 1. Unknown kinds or options, and a rule that does not take
// the drafter's drafts, are errors with file and line. NULL on failure.
struct speclab_decoder *decoder_read(const struct settings *drafter, const struct settings *rule,
                                     const struct settings *sampling, struct error *err);
struct speclab_decoder *decoder_read_drafter(const struct settings *drafter, struct error *err); // no rule, no sampling
// Creates drafter, verifier and loop. length: max tokens of a sequence, prompt included. Borrows t.
bool decoder_open(struct speclab_decoder *d, struct speclab_target *t, int slots, int length, struct error *err);
// It is done in two parts for decoders whose verifiers share a cache: the setup between them says what cache suffices
// (setup.shared). folder: base of a draft model's relative path, or NULL.
bool decoder_open_drafter(struct speclab_decoder *d, struct speclab_target *t, const char *folder, int slots,
                          int length, struct error *err);
struct verifier_setup decoder_verifier(struct speclab_decoder *d, int slots, int length);
bool decoder_open_verifier(struct speclab_decoder *d, const struct verifier_setup *setup, struct error *err);
// Whether drafter and rule share their random numbers (pick: coupled with rule match), so that draft tokens are not
// independent of the verification.
bool decoder_shares_randomness(const struct speclab_decoder *d);

// ---- the loop (decode.c)
//
// Each sequence occupies a slot. A step drafts for, scores and verifies all active sequences in one pass. A sequence
// that ends frees its slot. Each sequence has a random stream of its own, keyed by the seed and its number, so its text
// does not depend on the other slots. Decoders of one device share its time stamps: each is paused before another one
// steps.

const char *stop_name(enum speclab_stop why);

// Prepares the loop over d's verifier and drafter.
bool loop_create(struct speclab_decoder *d, int slots, struct error *err);
void loop_destroy(struct speclab_decoder *d); // { 0 }: no effect
// A decoder over parts that the caller has and keeps.
struct speclab_decoder *decoder_create(struct verifier *v, struct drafter *d, int slots, uint64_t seed,
                                       struct speclab_listener listener, struct error *err);

// The rows of a step that a listener gets. Code of the tree that runs a rule again reads the draft and its rows from
// `of`.
struct speclab_rows {
    const struct verified *of; // NULL in `scored`
    struct tensor logits;      // (nodes, vocab) on the backend; data NULL in `decided`
    struct backend *backend;
    float *copy; // (vocab) a row of logits from a device; owned by the loop
};

// The draft of a step, without q.
static inline struct draft step_draft(const struct speclab_step *s)
{
    return (struct draft){ .n = s->drafted + 1,
                           .capacity = s->drafted + 1,
                           .token = (int32_t *)(uintptr_t)s->draft,
                           .parent = (int32_t *)(uintptr_t)s->parent,
                           .proposal = (uint8_t *)(uintptr_t)s->proposal,
                           .source = (uint8_t *)(uintptr_t)s->source };
}

struct stops { // conditions that end a text
    int n;
    const int32_t *token; // (n) end-of-text ids; n = 0: they are ordinary tokens
    // If one of the last `fresh` tokens completes a stop string: the number of new tokens to keep; else 0. May be NULL.
    int (*string)(void *self, const int32_t *token, int n, int fresh);
    void *self;
};
// Starts a sequence with stops of the caller's, borrowed until it ends, in place of those of the request. sampling: the
// target's for it, borrowed as well, in place of the request's.
bool decoder_start(struct speclab_decoder *d, const struct speclab_request *r, const struct stops *stops,
                   const struct sampling *sampling, struct error *err);
