// engine.h - a target model, and a drafter, rule and sampling stages to decode it with. Commands and experiments use it.
//
// There are two objects with two lifetimes. A target (a model on a backend, with its tokenizer) is opened once and
// shared. A pairing (drafter, rule, sampling) is first read, which checks everything that needs no model, then opened on
// a target. `speclab generate` has one of each; an experiment has one target and a pairing per cell:
//
//     struct target t = { 0 };
//     struct pairing p = { 0 };
//     bool ok = target_open(&t, "smollm2-135m-instruct", &(struct target_options){ 0 }, &err) &&
//               pairing_read(&p, drafter, rule, sampling, &err) && pairing_open(&p, &t, 1, 2048, &err);
//     ...                                  // decoder_create(p.verifier, p.drafter, ...): engine/decode.h
//     pairing_close(&p);
//     target_close(&t);
//
// Functions that return bool return false and set err on failure.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/error.h"
#include "core/tensor.h"
#include "engine/decode.h"
#include "engine/stop_strings.h"
#include "kernels/devices.h"
#include "models/tokenizers/chat_template.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "models/tokenizers/tokenizer.h"
#include "sampling/sampling.h"
#include "verifier/verifier.h"

struct backend;
struct devices;
struct drafter;
struct drafter_type;
struct model;
struct rule;
struct settings;
struct verifier;

// TARGET_ROWS: max rows of a pass that suits one slot: any draft (MAX_NODES), and prompts in large chunks.
enum { TARGET_ROWS = 512, TARGET_ENDS = MAX_ENDS + 1, MAX_THREADS = 1024 };

// ---- options

// Device and element types of a model, as requested; { 0 }: the defaults. After target_open, model_activations and
// target.cache have the resolved types.
struct precision {
    const char *device; // a name of devices_get; NULL: cpu
    int activations;    // enum activations
    int cache;          // enum kv_type
};

// Whether packed weights are cached in a file beside the model. It does not change any result.
enum packed_how { PACKED_NO, PACKED_KEEP };

// The flags of every command that opens a model.
// clang-format off
#define PRECISION_FLAGS(p) \
    { "device", FLAG_DEVICE, &(p).device, "NAME", DEVICE_NAMES "; default: cpu", 0, 0 }, \
    { "activations", FLAG_CHOICE, &(p).activations, ACTIVATIONS_CHOICES, \
      "what products round their input to; default: as the weights allow", 0, 0 }, \
    { "cache", FLAG_CHOICE, &(p).cache, KV_CHOICES, "element type of keys and values", 0, 0 }
#define PACKED_FLAG(to) \
    { "packed", FLAG_CHOICE, &(to), "no|keep", \
      "keep: packed weights are read from a file beside the model,\nand written there if none fits; default: no", 0, 0 }
#define CHAT_VARIABLES_FLAG(to) \
    { "chat-template-kwargs", FLAG_TEXT, &(to), "JSON", \
      "variables of the chat template: '{\"enable_thinking\": false}'", 0, 0 }
// clang-format on

// ---- the target

struct target { // initialize with { 0 }
    char *path; // the model's, or the name of its shape (models/formats/shape.h); owned
    struct devices *devices;
    struct backend *backend; // of the model
    struct model *model;
    struct tokenizer *tokenizer; // NULL: missing or not supported, see no_tokenizer
    struct error no_tokenizer;   // why tokenizer is NULL
    enum type cache;             // element type of keys and values
    int used_vocab; // ids that the tokenizer knows, at most the vocabulary; later ids are padding, never sampled
};

struct target_options { // { 0 }: the defaults
    struct precision precision;
    const char *folder; // base of a relative path; NULL: the working directory
    int threads;        // 0: one for each processor
    int rows;           // max rows of one pass, until a pairing needs more; 0: TARGET_ROWS
    int packed;         // enum packed_how
    bool ids_only;      // no tokenizer is opened
    // Gets what happened to the file of PACKED_KEEP, and what a device gave up (backend.log). May be NULL.
    void (*log)(void *self, const char *sentence);
    void *self;
};

// Opens a model and its tokenizer. name: a path or a name that models/paths.h finds. A missing or unsupported tokenizer
// is no failure; target_needs_text fails then.
bool target_open(struct target *t, const char *name, const struct target_options *o, struct error *err);
void target_close(struct target *t); // { 0 }: no effect

// ---- text

bool target_needs_text(const struct target *t, struct error *err); // fails without a tokenizer

// Selects a chat template (models/tokenizers/chat_template.h): chat_choose with the checkpoint's own template and tokens.
bool target_chat(const struct target *t, struct chat_request r, struct chat_format *to, struct error *err);
// Appends the ids of n messages, ready for the answer. The tokenizer's BOS comes first unless a template writes its own.
bool target_encode_chat(const struct target *t, const struct chat_format *chat, const struct message *m, int n,
                        struct ids *to, struct error *err);

// Appends token ids of text to `to`: a whole prompt begins with BOS if the model's tokenizer adds it, a continuation does not. In a rendered
// chat special tokens are recognized; it has a BOS of its own, or none.
enum { ENCODE_BOS = 1, ENCODE_SPECIAL = 2 };
bool text_encode(const struct tokenizer *t, const struct model_config *c, int how, const char *text, size_t n,
                 struct ids *to, struct error *err);
bool target_encode(const struct target *t, int how, const char *text, size_t n, struct ids *to, struct error *err);
static inline int encode_rendered(const struct chat_format *chat)
{
    return ENCODE_SPECIAL | (chat_lacks_bos(chat) ? ENCODE_BOS : 0);
}

// The text of n token ids, special tokens left out: NUL-terminated, free() it. bytes: its length, may be NULL. NULL: no
// tokenizer.
char *target_text(const struct target *t, const int32_t *token, size_t n, size_t *bytes);

struct text_ends {      // what ends a text; do not move while a sequence uses it
    struct stops stops; // of the assignment (engine/decode.h)
    int32_t end[TARGET_ENDS];
    struct stop_strings strings;
};
// The ids of the checkpoint and of the chat template (NULL: none), without them with ignore_end, and n stop strings, borrowed. These need a
// tokenizer.
void text_ends_set(struct text_ends *e, const struct target *t, const struct chat_format *chat, bool ignore_end, int n,
                   const char *const *string);

// ---- the pairing

struct pairing { // initialize with { 0 }; do not move while open: the verifier borrows its members
    const struct drafter_type *type;
    void *drafter_options; // owned
    const struct rule *rule;
    void *rule_options;            // owned
    struct sampling sampling;      // owned
    struct drafter *drafter;       // NULL until pairing_open
    struct verifier *verifier;     // NULL until pairing_open
    struct step_observer observer; // of the verifier's steps; set before pairing_open; { 0 }: no observer
};

// Reads and checks options. Each argument is a mapping with the key `kind` (sampling: a mapping of stage names), or
// NULL: drafter none, rule rejection, temperature 1. Unknown kinds or options, and a rule that does not take the
// drafter's drafts, are errors with file and line.
bool pairing_read(struct pairing *p, const struct settings *drafter, const struct settings *rule,
                  const struct settings *sampling, struct error *err);
bool pairing_read_drafter(struct pairing *p, const struct settings *drafter, struct error *err); // no rule, no sampling
// Creates drafter and verifier. length: max tokens of a sequence, prompt included. Borrows t.
bool pairing_open(struct pairing *p, struct target *t, int slots, int length, struct error *err);
// It is done in two parts for pairings whose verifiers share a cache: the setup between them says what cache suffices (setup.shared).
// folder: base of a draft model's relative path, or NULL.
bool pairing_open_drafter(struct pairing *p, struct target *t, const char *folder, int slots, int length,
                          struct error *err);
struct verifier_setup pairing_verifier(const struct pairing *p, const struct target *t, int slots, int length);
bool pairing_open_verifier(struct pairing *p, const struct verifier_setup *setup, struct error *err);
// Whether drafter and rule share their random numbers (pick: coupled with rule match), so that draft tokens are not
// independent of the verification.
bool pairing_shares_randomness(const struct pairing *p);
void pairing_close(struct pairing *p); // frees everything; { 0 }: no effect
